/** Names and values: metadata, hyperparameters, packages. */

import type { ReactElement } from 'react';

import { EmptyState, formatNumber, formatValue } from '../common';
import { nameText, visible } from '../common/text';

/** Rows that are drawn; the rest is counted. */
const MOST = 2000;

export function Values({ label, values, head, measured = false }: {
  label: string; values: Record<string, unknown>; head?: [string, string]; /** They are metrics. */ measured?: boolean;
}): ReactElement {
  const rows = Object.entries(values);
  return (
    <div className="det-x-scroll" tabIndex={0} role="region" aria-label={label}>
      <table className="det-facts-table">
        {head && <thead><tr><th scope="col">{head[0]}</th><th scope="col">{head[1]}</th></tr></thead>}
        <tbody>
          {rows.slice(0, MOST).map(([name, value]) => (
            <tr key={name}>
              <th scope="row"><bdi>{nameText(name, 200)}</bdi></th>
              <td className={measured ? 'det-num det-measured' : 'det-num'}>{measured ? formatNumber(value as number) : valueText(value, 400)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {rows.length > MOST && <p className="det-soft">and {rows.length - MOST} more</p>}
    </div>
  );
}

export function Metadata({ values }: { values: Record<string, unknown> }): ReactElement {
  if (!Object.keys(values).length) return <EmptyState title="No metadata.">Set some by Edit, or: <code>det model edit MODEL --metadata key=value</code></EmptyState>;
  return <Values label="Metadata" values={values} />;
}

/** Any value in a cell, in one line and safe to show. */
export function valueText(value: unknown, most = 120): string {
  return visible(formatValue(value, most).replace(/[\r\n\t]+/g, ' '));
}

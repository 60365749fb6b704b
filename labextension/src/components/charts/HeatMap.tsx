/** Numbers by row and column as a table whose cells are darker the greater they are; each says its number, too. */

import type { CSSProperties, ReactElement, ReactNode } from 'react';

import { nameText } from '../common/text';

export interface HeatCell {
  text: string;
  /** From 0 to 1. */
  share: number;
  tone?: 'closed';
}

export function HeatMap({ label, about, corner, columns, rows, leftOut }: {
  label: string; about: ReactNode; corner: string; columns: readonly string[]; rows: readonly { name: string; cells: readonly HeatCell[] }[]; leftOut: number;
}): ReactElement {
  return (
    <div className="det-x-scroll" tabIndex={0} role="group" aria-label={label}>
      <h2>{label}</h2>
      <p className="det-soft">{about}</p>
      <table className="det-heat">
        <thead>
          <tr>
            <th scope="col">{corner}</th>
            {columns.map((name, i) => <th key={i} scope="col"><bdi>{nameText(name, 40)}</bdi></th>)}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, i) => (
            <tr key={i}>
              <th scope="row"><bdi>{nameText(row.name, 60)}</bdi></th>
              {row.cells.map((cell, at) => (
                <td key={at} data-tone={cell.tone} style={{ '--det-share': `${Math.round(100 * cell.share)}%` } as CSSProperties}>{nameText(cell.text, 40)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {leftOut > 0 && <p className="det-soft">… and {leftOut} more</p>}
    </div>
  );
}

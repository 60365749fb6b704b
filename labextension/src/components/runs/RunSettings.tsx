/** Parameters, results and tags of a run. */

import { ReactElement, useState } from 'react';

import type { RunView } from '../../state/wire';
import { EmptyState } from '../common';
import { CopyButton } from '../common/CopyButton';
import { nameText } from '../common/text';
import { valueText } from './model';

/** Rows drawn of each; a run may have thousands of parameters. */
const MOST = 300;

export function RunSettings({ run }: { run: RunView }): ReactElement {
  const [search, setSearch] = useState('');
  const tags = Object.fromEntries(Object.entries(run.tags).filter(([name]) => !name.startsWith('mlflow.') && !name.startsWith('detlab.')));
  const part = search.trim().toLowerCase();
  const rows = (of: Record<string, unknown>): [string, string][] => Object.entries(of).map(([name, value]): [string, string] => [name, valueText(value)])
    .filter(([name, value]) => !part || name.toLowerCase().includes(part) || value.toLowerCase().includes(part));
  const tables: [string, [string, string][]][] = [['Parameter', rows(run.config)], ['Result', rows(run.summary)], ['Tag', rows(tags)]];
  const any = [run.config, run.summary, tags].some(of => Object.keys(of).length > 0);
  if (!any) {
    return (
      <EmptyState title="No parameters.">
        <p><code>det.init(config={'{"lr": 0.1}'})</code> keeps them; <code>run.config.lr = 0.2</code> sets one later.</p>
      </EmptyState>
    );
  }
  return (
    <div className="det-hparams-tab">
      <div className="det-controls">
        <input className="det-input det-grow" type="search" aria-label="Filter" placeholder="Filter by name or value" value={search} onChange={event => setSearch(event.target.value)} />
        <CopyButton text={JSON.stringify(run.config, null, 2)} label="Copy as JSON" what="the parameters" />
      </div>
      {tables.every(([, found]) => !found.length) && <EmptyState title="Nothing fits." />}
      {tables.map(([name, found]) => found.length > 0 && (
        <table key={name} className="det-facts-table">
          <thead><tr><th scope="col">{name}</th><th scope="col">Value</th></tr></thead>
          <tbody>
            {found.slice(0, MOST).map(([key, value]) => <tr key={key}><th scope="row">{nameText(key)}</th><td>{value}</td></tr>)}
            {found.length > MOST && <tr><th scope="row">and {found.length - MOST} more</th><td>narrow the filter</td></tr>}
          </tbody>
        </table>
      ))}
    </div>
  );
}

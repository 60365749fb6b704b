/** Metrics and settings of runs as tables: a row for each name, a column for each run. */

import { Fragment, ReactElement, ReactNode, useState } from 'react';

import type { Difference, RunMetric } from '../../state/wire';
import { Go } from '../admin/parts';
import { EmptyState, formatNumber, formatTime, Toggle } from '../common';
import { nameText } from '../common/text';
import { valueText } from '../view/Values';
import type { Statistic } from './link';
import { bestPlaces, keyOfMetric, placeOfSide, Side, statisticText } from './model';
import type { PaneProps } from './pane';

/** Rows that are drawn at first, and with each "Show more". */
const PAGE = 200;
const STATISTICS: [Statistic, string][] = [['best', 'at best validation'], ['last', 'last'], ['min', 'minimum'], ['max', 'maximum']];

export function MetricsTable(props: PaneProps): ReactElement {
  const { data, options, onOptions } = props;
  const [search, setSearch] = useState('');
  const wanted = search.trim().toLowerCase();
  const rows = data.metrics.filter(row => keyOfMetric(row).toLowerCase().includes(wanted));
  if (!data.metrics.length) return <EmptyState title="No metrics were reported." />;
  return (
    <>
      <div className="det-controls" role="group" aria-label="Table options">
        <input className="det-input det-grow" type="search" aria-label="Filter metrics" placeholder="Filter metrics" value={search} onChange={event => setSearch(event.target.value)} />
        <label className="det-labelled">
          Value
          <select className="det-input" value={options.statistic} onChange={event => onOptions({ statistic: event.target.value as Statistic })}>
            {STATISTICS.map(([key, label]) => <option key={key} value={key}>{label}</option>)}
          </select>
        </label>
      </div>
      <SideTable {...props} label="Metrics" rows={rows} nameOf={keyOfMetric} cells={row => <MetricCells row={row} statistic={options.statistic} />} />
      {data.metrics_left_out > 0 && <p className="det-soft">{data.metrics_left_out} more metrics are not compared.</p>}
    </>
  );
}

function MetricCells({ row, statistic }: { row: RunMetric; statistic: Statistic }): ReactElement {
  const best = bestPlaces(row, statistic);
  return (
    <>
      {row.values.map((_, i) => (
        <td key={i} className={`det-num${best.has(i) ? ' det-compare-best' : ''}`}>
          {statisticText(row, i, statistic, formatNumber)}{best.has(i) && <span className="det-compare-word"> best</span>}
        </td>
      ))}
    </>
  );
}

export function HyperparametersTable(props: PaneProps): ReactElement {
  return <Settings {...props} label="Hyperparameters" rows={props.data.hyperparameters} none="There are no hyperparameters." />;
}

/** Hyperparameters have a table of their own. */
export function configRows(config: readonly Difference[]): Difference[] {
  return config.filter(row => !row.name.startsWith('hyperparameters.'));
}

export function ConfigTable(props: PaneProps): ReactElement {
  const rows = configRows(props.data.config);
  return <Settings {...props} label="Config" rows={rows} none="There is no config." />;
}

function Settings({ rows, label, none, ...props }: PaneProps & { rows: readonly Difference[]; label: string; none: string }): ReactElement {
  const { options, onOptions } = props;
  const differing = rows.filter(row => !row.same);
  const shown = options.all ? [...differing, ...rows.filter(row => row.same)] : differing;
  if (!rows.length) return <EmptyState title={none} />;
  return (
    <>
      <div className="det-controls">
        <Toggle on={!options.all} label="Only differences" tip="Hide rows whose values are the same in all runs" onChange={on => onOptions({ all: !on })} />
        <span className="det-soft">{differing.length} of {rows.length} differ</span>
      </div>
      {shown.length > 0
        ? <SideTable {...props} label={label} rows={shown} nameOf={row => row.name} cells={row => <SettingCells row={row} />} />
        : <EmptyState title={props.sides.length > 1 ? 'All are the same.' : 'There is one run only: nothing differs.'} />}
    </>
  );
}

/** A setting is chosen, not measured: all digits of whole numbers (a seed, a number of samples) are shown. */
function settingText(value: unknown): string {
  return Number.isInteger(value) ? String(value) : valueText(value, 200);
}

function SettingCells({ row }: { row: Difference }): ReactElement {
  const first = JSON.stringify(row.values[0] ?? null);
  return (
    <>
      {row.values.map((value, i) => (
        <td key={i} className={`det-num det-compare-value${i > 0 && !row.same && JSON.stringify(value ?? null) !== first ? ' det-compare-other' : ''}`} title={typeof value === 'number' ? String(value) : undefined}>{settingText(value)}</td>
      ))}
    </>
  );
}

/** A table with a column for each run. */
function SideTable<T extends { values: readonly unknown[] }>({ sides, onDrop, label, rows, nameOf, cells }: PaneProps & {
  label: string; rows: readonly T[]; nameOf: (row: T) => string; cells: (row: T) => ReactNode;
}): ReactElement {
  const [most, setMost] = useState(PAGE);
  return (
    <>
      <div className="det-adm-scroll" tabIndex={0} role="region" aria-label={label}>
        <table className="det-adm-sheet det-compare-table">
          <thead>
            <tr>
              <th scope="col"><span className="det-hidden">Name</span></th>
              {sides.map(side => <SideHead key={side.key} side={side} onDrop={onDrop && (() => onDrop(side))} />)}
            </tr>
          </thead>
          <tbody>
            {rows.slice(0, most).map((row, i) => (
              <tr key={i}><th scope="row"><bdi>{broken(nameText(nameOf(row), 120))}</bdi></th>{cells(row)}</tr>
            ))}
          </tbody>
        </table>
      </div>
      {rows.length > most && <button type="button" className="det-button" onClick={() => setMost(most + PAGE)}>Show more ({rows.length - most})</button>}
    </>
  );
}

/** A name that may go on in the next line after each dot. */
function broken(name: string): ReactNode {
  return name.split('.').map((part, i) => (i ? <Fragment key={i}>.<wbr />{part}</Fragment> : part));
}

function SideHead({ side, onDrop }: { side: Side; onDrop?: () => void }): ReactElement {
  const { run, name } = side;
  return (
    <th scope="col" title={`${nameText(run.owner, 60)}, ${formatTime(run.created_at)}`}>
      <span className="det-compare-head">
        <Go to={placeOfSide(side)}>{name}</Go>
        {onDrop && <button type="button" className="det-button det-compact" aria-label={`Leave out ${name}`} title="Leave out" onClick={onDrop}>✕</button>}
      </span>
      <bdi className="det-soft det-compare-of">{nameText(run.name, 40)}</bdi>
      {run.kind === 'experiment' && run.trial_ids.length > 1 && <span className="det-soft det-compare-of">{`mean of trials ${run.trial_ids.slice(0, 5).join(', ')}${run.trial_ids.length > 5 ? ' …' : ''}`}</span>}
    </th>
  );
}

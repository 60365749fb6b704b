/** The trials: filter, choice of columns, and the table. */

import { ReactElement, useMemo, useRef, useState } from 'react';

import { useApp, useStore } from '../../../state/context';
import { isOver } from '../../../state/states';
import type { ExperimentView } from '../../../state/wire';
import { Column, EmptyState, Menu, plural, StateBadge, Table } from '../../common';
import { nameText, visible } from '../../common/text';
import { FilterBox } from '../../finding/FilterBox';
import { ColumnPicker } from '../../view/ColumnPicker';
import { notSteered, trialActs } from '../../search';
import { endWord, toneState } from '../../view/progress';
import { useMetricColumns } from './metriccolumns';
import { bestPoint } from './seeds';
import { columnsOf, filterOf, isWords, TrialColumn, TrialRow, whyStopped, widthOf } from './trialtable';
import { useMatching } from './useMatching';

const key = (row: TrialRow): string => String(row.trial.id);

export function TrialsTab({ experiment: e, rows, surplus, onLearn }: {
  experiment: ExperimentView; rows: readonly TrialRow[]; surplus: boolean; onLearn(view: ExperimentView): void;
}): ReactElement {
  const app = useApp();
  const { navigate } = app;
  const me = useStore(s => s.me);
  const [filter, setFilter] = useState('');
  const [choice, setChoice] = useState<ReadonlyMap<string, boolean>>(new Map());
  const asks = !isWords(filter);
  const box = useRef<HTMLInputElement>(null);
  // Columns depend on the rows, but must not be rebuilt with every report.
  const names = useMemo(() => columnSignature(rows), [rows]);
  const metrics = useMetricColumns(e, rows, choice);
  const columns = useMemo(() => {
    const found = columnsOf(rows, e.metric, e.smaller_is_better, () => Date.now() / 1000, e.config?.['hyperparameters']);
    const at = found.findIndex(column => column.key === 'steps');
    return [...found.slice(0, at), ...metrics, ...found.slice(at)];
    // eslint-disable-next-line react-hooks/exhaustive-deps -- names: what of the rows the columns depend on
  }, [names, metrics, e.metric, e.smaller_is_better, e.config]);
  const shown = useMemo(() => columns.filter(column => choice.get(column.key) ?? column.usual), [columns, choice]);
  const over = rows.filter(row => isOver(row.trial.state)).length;
  const matching = useMatching(e.id, asks ? filter : null, `${rows.length} ${over}`);
  const found = useMemo(() => {
    if (asks) return matching.ids ? rows.filter(row => matching.ids!.has(row.trial.id)) : rows;
    return filter ? rows.filter(filterOf(filter, columns)) : rows;
  }, [rows, columns, filter, asks, matching.ids]);
  const waits = asks && !matching.ids && !matching.problem;
  // Menus are made when they open, from what is known then.
  const now = useRef({ e, me, onLearn });
  now.current = { e, me, onLearn };
  const steered = notSteered(e, me) === null;
  const drawn = useMemo(() => {
    const menu = (row: TrialRow): ReactElement | string => isOver(row.trial.state) ? '' : (
      <Menu
        label={`Actions of trial ${row.trial.id}`}
        actions={() => trialActs(app, row.trial, now.current.e, now.current.me, now.current.onLearn)}
      />
    );
    const acts: Column<TrialRow> = { key: 'acts', title: 'Act', width: 52, fixed: true, value: () => '', render: menu };
    return [...shown.map(column => asColumn(column, rows)), ...(steered ? [acts] : [])];
    // eslint-disable-next-line react-hooks/exhaustive-deps -- names, as above
  }, [shown, names, steered, app]);
  const seeded = rows.some(row => row.point);
  const best = seeded
    ? new Set(bestPoint([...new Set(rows.flatMap(row => row.point ?? []))], e.smaller_is_better)?.rows.map(row => row.trial.id))
    : new Set(e.best ? [e.best.trial_id] : []);
  return (
    <div className="det-trials-tab">
      <div className="det-controls">
        <FilterBox table="trials" value={filter} problem={matching.problem} inputRef={box} onApply={setFilter} />
        <ColumnPicker always="trial" columns={columns} isShown={column => choice.get(column.key) ?? column.usual}
          onChange={(column, on) => setChoice(new Map(choice).set(column, on))} onReset={() => setChoice(new Map())} />
        <span className="det-soft det-num" role="status">
          {waits ? 'Filtering …' : filter && !matching.problem ? `${found.length} of ${plural(rows.length, 'trial')}` : plural(rows.length, 'trial')}
          {surplus ? ' (more are not shown)' : ''}
        </span>
      </div>
      {matching.notes.map(note => <p key={note} className="det-soft" role="note">{visible(note)}</p>)}
      <Table
        label={`Trials of experiment ${e.id}`} rows={found} columns={drawn} rowKey={key} maxHeight="var(--det-table-height, 60vh)"
        initialSort={{ key: seeded ? 'mean' : 'best', descending: !e.smaller_is_better }}
        rowClass={row => (best.has(row.trial.id) ? 'det-best-row' : '')}
        onOpen={row => navigate({ kind: 'trial', id: row.trial.id, experiment: e.id })}
        empty={
          <EmptyState title={rows.length ? 'No trial matches the filter.' : 'No trials yet.'}>
            {!rows.length && 'The searcher creates the first ones when the experiment starts.'}
          </EmptyState>
        }
      />
    </div>
  );
}

function columnSignature(rows: readonly TrialRow[]): string {
  const first = rows[0] ? Object.keys(rows[0].hparams).join('\n') : '';
  const last = rows.length ? Object.keys(rows[rows.length - 1]!.hparams).join('\n') : '';
  const due = rows.filter(row => row.trial.point_due).length;
  return `${rows.length} ${due} ${rows.some(row => whyStopped(row.trial))} ${rows.some(row => row.point)} ${first} ${last}`;
}

function asColumn(column: TrialColumn, rows: readonly TrialRow[]): Column<TrialRow> {
  return {
    key: column.key,
    title: column.title,
    width: column.key === 'state' ? 128 : widthOf(column, rows),
    grow: 1,
    align: column.numeric ? 'right' : 'left',
    descending: column.descending,
    value: column.value,
    render: column.key === 'state'
      ? row => <StateBadge state={toneState(row.trial)} word={endWord(row.trial)} about={row.trial.pending_reason ?? (nameText(whyStopped(row.trial), 400) || null)} />
      : row => column.text(row)
  };
}

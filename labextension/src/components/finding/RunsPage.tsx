/** The table of all experiments, or of all trials, that the user may read. */

import { ReactElement, useCallback, useEffect, useMemo, useRef, useState } from 'react';

import { useApp, useStore, type Place } from '../../state/context';
import { View } from '../admin/parts';
import { ActionButton, EmptyState, ErrorBanner, Loading, Menu, Notice, Toggle } from '../common';
import { nameText } from '../common/text';
import { readOnly } from '../view/actions';
import { BatchBar } from './BatchBar';
import { ColumnChooser } from './ColumnChooser';
import { ALWAYS, columnsOf, emptyColumns, extraOf, USUAL, type Run } from './columns';
import { saveFile } from './exporting';
import { FilterBox } from './FilterBox';
import { KeysHelp } from './KeysHelp';
import { useTableKeys } from './keys';
import { exportPath, fieldOf, readRequest, sorted, toggled, writeRequest, type RunTable, type TableRequest } from './request';
import { RunsGrid, type GridHandle } from './RunsGrid';
import { useRows, type Rows } from './useRows';
import { useViews, ViewsMenu } from './ViewsMenu';

const NONE: ReadonlySet<number> = new Set();
const TITLES: Record<RunTable, string> = { experiments: 'Experiments', trials: 'Trials' };

function placeOf(row: Run): Place {
  return 'best_validation' in row ? { kind: 'trial', id: row.id, experiment: row.experiment_id } : { kind: 'experiment', id: row.id };
}

/** `query`: what the address says, as `writeRequest` writes it. */
export function RunsPage({ table, query = '' }: { table: RunTable; query?: string }): ReactElement {
  const [request, setRequest] = useRequest(table, query);
  const root = useRef<HTMLDivElement>(null);
  return (
    <div ref={root} className="det-runs" tabIndex={-1}>
      <Runs key={table} root={root} table={table} request={request} onRequest={setRequest} />
    </div>
  );
}

/** What is shown, kept in the address where there is one. */
function useRequest(table: RunTable, query: string): [TableRequest, (request: TableRequest) => void] {
  const { settle } = useApp();
  const [request, setRequest] = useState(() => readRequest(query));
  useEffect(() => setRequest(old => (writeRequest(old) === writeRequest(readRequest(query)) ? old : readRequest(query))), [table, query]);
  const change = useCallback((next: TableRequest) => {
    setRequest(next);
    settle?.({ kind: 'runs', table, query: writeRequest(next) });
  }, [table, settle]);
  return [request, change];
}

interface RunsProps {
  root: { readonly current: HTMLDivElement | null };
  table: RunTable;
  request: TableRequest;
  onRequest(request: TableRequest): void;
}

function Runs({ root, table, request, onRequest }: RunsProps): ReactElement {
  const app = useApp();
  const me = useStore(s => s.me);
  const names = useMemo(() => {
    const asked = request.columns ?? USUAL[table];
    return asked.includes(ALWAYS) ? asked : [ALWAYS, ...asked];
  }, [request.columns, table]);
  const extra = useMemo(() => extraOf(table, names), [table, names]);
  const rows = useRows(table, request, extra);
  const sample = rows.rows[0];
  // eslint-disable-next-line react-hooks/exhaustive-deps -- further pages change no column
  const columns = useMemo(() => columnsOf(table, names, rows.columns, rows.rows), [table, names, rows.columns, sample?.id]);
  const empty = useMemo(() => (rows.loading ? [] : emptyColumns(columns, rows.rows)), [columns, rows.rows, rows.loading]);
  const views = useViews(table);
  const [selected, setSelected] = useState(NONE);
  const [active, setActive] = useState<number | null>(null);
  const [help, setHelp] = useState(false);
  const box = useRef<HTMLInputElement>(null);
  const grid = useRef<GridHandle>(null);
  const change = (part: Partial<TableRequest>): void => onRequest({ ...request, ...part });
  const onSelect = useCallback((ids: readonly number[], on: boolean) => setSelected(old => {
    const next = new Set(old);
    for (const id of ids) {
      if (on) next.add(id);
      else next.delete(id);
    }
    return next;
  }), []);
  // Nothing is done with rows that another filter has shown.
  useEffect(() => setSelected(NONE), [request.filter, request.archived]);
  useEffect(() => setActive(null), [request.filter, request.archived, request.sort]);

  useTableKeys(root, app.host === 'hub', {
    find: () => box.current?.focus(),
    move: by => {
      if (!rows.rows.length) return;
      const to = Math.min(Math.max((active ?? (by > 0 ? -1 : 1)) + by, 0), rows.rows.length - 1);
      setActive(to);
      grid.current?.show(to);
      grid.current?.focus();
    },
    select: () => {
      const row = active === null ? undefined : rows.rows[active];
      if (row) onSelect([row.id], !selected.has(row.id));
    },
    open: () => {
      const row = active === null ? undefined : rows.rows[active];
      if (row) app.navigate(placeOf(row));
    },
    help: () => setHelp(true),
    clear: () => setSelected(NONE)
  });

  const problem = rows.error?.problems.some(one => one.path === 'filter') ? rows.error.message : null;
  const ids = [...selected];
  const save = (format: 'csv' | 'parquet') => (): Promise<void> => saveFile(app, exportPath(table, request, names, format), `${table}.${format}`);
  return (
    <View
      title={TITLES[table]}
      tools={(
        <>
          <ActionButton label="Refresh" onRun={rows.reload} />
          <Menu label="Export" actions={() => [{ key: 'csv', label: 'CSV', run: save('csv') }, { key: 'parquet', label: 'Parquet', run: save('parquet') }]}>
            Export <span aria-hidden="true">▾</span>
          </Menu>
          <ActionButton label="Keys" compact onRun={() => setHelp(true)}>?</ActionButton>
        </>
      )}
    >
      {help && <KeysHelp onClose={() => setHelp(false)} />}
      <div className="det-run-bar" role="search" aria-label={`Find ${table}`}>
        <FilterBox table={table} value={request.filter} problem={problem} inputRef={box} onApply={text => change({ filter: text })} />
        <ViewsMenu table={table} request={request} views={views} why={readOnly(me)} onRequest={onRequest} />
        <ColumnChooser table={table} shown={names} empty={empty} onChange={chosen => change({ columns: chosen })} />
        <Toggle on={request.archived} label="Archived" tip="Show also what is archived" onChange={archived => change({ archived })} />
        <Count rows={rows} table={table} />
      </div>
      <Said rows={rows} names={names} extra={extra} request={request} empty={empty} hasFilterProblem={problem !== null} onRequest={onRequest} />
      <BatchBar table={table} ids={ids} onClear={() => setSelected(NONE)} onDone={rows.reload} />
      {rows.first && !rows.error && <Loading what={`Loading the ${table}`} />}
      {!rows.first && (
        <RunsGrid
          label={TITLES[table]} rows={rows.rows} columns={columns} sort={request.sort} pinned={request.pinned} heat={request.heat} empty={empty}
          selected={selected} active={active} more={rows.next !== null} busy={rows.loading} handle={grid} placeOf={placeOf}
          onSort={(column, more) => change({ sort: sorted(request.sort, column.name, column.descending, more) })}
          onPin={name => change({ pinned: toggled(request.pinned, name) })} onHeat={name => change({ heat: toggled(request.heat, name) })}
          onHide={name => change({ columns: names.filter(one => one !== name) })}
          onSelect={onSelect} onActive={setActive} onMore={rows.more}
        />
      )}
      {!rows.first && !rows.rows.length && !rows.loading && <Nothing table={table} request={request} onRequest={onRequest} />}
    </View>
  );
}

function Count({ rows, table }: { rows: Rows; table: RunTable }): ReactElement {
  const count = rows.rows.length.toLocaleString('en');
  const text = rows.loading ? 'Loading …' : rows.next === null ? `${count} ${rows.rows.length === 1 ? table.slice(0, -1) : table}` : `${count} of more ${table}`;
  return <span className="det-soft det-num" role="status">{text}</span>;
}

/** What is wrong with the request, and what is missing: columns that are gone can be taken away. */
function Said({ rows, names, extra, request, empty, hasFilterProblem, onRequest }: {
  rows: Rows; names: readonly string[]; extra: readonly string[]; request: TableRequest; empty: readonly string[]; hasFilterProblem: boolean; onRequest(request: TableRequest): void;
}): ReactElement | null {
  const wrong = rows.error && !hasFilterProblem ? rows.error : null;
  const bad = wrong ? unreadable(wrong.problems.map(one => one.path), request, extra) : { columns: [], sort: [] };
  const without = (columns: readonly string[], sort: readonly string[]): void => onRequest({
    ...request, columns: names.filter(one => !columns.includes(one)), sort: request.sort.filter(one => !sort.includes(one))
  });
  const whole = rows.next === null && empty.length > 0;
  if (!wrong && !rows.notes.length && !whole) return null;
  return (
    <>
      {wrong && (
        <ErrorBanner error={wrong} onRetry={bad.columns.length + bad.sort.length ? undefined : rows.reload}>
          {bad.columns.length + bad.sort.length > 0 && (
            <button type="button" className="det-link" onClick={() => without(bad.columns, bad.sort)}>
              Take away {[...bad.columns, ...bad.sort.map(fieldOf)].map(one => nameText(one, 60)).join(', ')}
            </button>
          )}
        </ErrorBanner>
      )}
      {rows.notes.map(note => <Notice key={note} tone="paused">{nameText(note, 600)}</Notice>)}
      {whole && !rows.notes.length && (
        <Notice>
          <span>No row here has {empty.map(one => nameText(one, 60)).join(', ')}.</span>
          <button type="button" className="det-link" onClick={() => without(empty, [])}>Hide</button>
        </Notice>
      )}
    </>
  );
}

/** The columns and keys that the master cannot read, by the paths of its problems: `column.0`, of those that were asked for. */
function unreadable(paths: readonly string[], request: TableRequest, extra: readonly string[]): { columns: string[]; sort: string[] } {
  const found: { columns: string[]; sort: string[] } = { columns: [], sort: [] };
  for (const path of paths) {
    const [list, at] = path.split('.');
    const name = list === 'column' ? extra[Number(at)] : request.sort[Number(at)];
    if (name === undefined) continue;
    if (list === 'column') found.columns.push(name);
    if (list === 'sort') found.sort.push(name);
  }
  return found;
}

function Nothing({ table, request, onRequest }: { table: RunTable; request: TableRequest; onRequest(request: TableRequest): void }): ReactElement {
  const { navigate } = useApp();
  if (request.filter) {
    return (
      <EmptyState title={"Nothing fulfils the filter."}>
        <p>
          <code>=</code> is exact, <code>~</code> finds a part of a text: <code>name ~ mnist</code>. Metrics are those at the best validation; <code>accuracy.max</code> is the greatest.
          {!request.archived && ' What is archived is left out.'}
        </p>
        <button type="button" className="det-link" onClick={() => onRequest({ ...request, filter: '' })}>Show all</button>
      </EmptyState>
    );
  }
  return (
    <EmptyState title={`There are no ${table} yet.`}>
      <p>{table === 'trials' ? 'An experiment makes them: one for each point of its search.' : 'All that you may read appears here: yours, and what others share with you.'}</p>
      {!request.archived && <p>What is archived is left out. <button type="button" className="det-link" onClick={() => onRequest({ ...request, archived: true })}>Show archived ones, too</button></p>}
      <button type="button" className="det-link" onClick={() => navigate({ kind: 'new' })}>New experiment</button>
    </EmptyState>
  );
}

/** The table of runs that no cluster started: the user's own in all projects, or all of one project. */

import { ReactElement, ReactNode, useCallback, useEffect, useMemo, useState } from 'react';

import type { Api } from '../../state/api';
import { useApp } from '../../state/context';
import type { ProjectView, RunView, RunViewList } from '../../state/wire';
import { View } from '../admin/parts';
import { ActionButton, EmptyState, ErrorBanner, Loading, plural, Table, useLoaded } from '../common';
import { CopyButton } from '../common/CopyButton';
import { useRechecked } from '../common/loading/rights';
import { nameText } from '../common/text';
import { ColumnPicker } from '../view/ColumnPicker';
import { useChosen, useColumns } from './columns';
import { comparisonOf, goesOn, readRuns, titleOf, writeRuns, type RunsWanted } from './model';

const PAGE = 100;
/** The master compares no more. */
const MOST_COMPARED = 50;
const NONE_PICKED: ReadonlySet<string> = new Set();
/** The master has no more in a page. */
const MOST_AT_ONCE = 1000;
/** Not a state of the master's: runs that are marked as deleted, whatever their state. */
const DELETED = 'DELETED';
const STATES: [string, string][] = [['', 'any state'], ['RUNNING', 'running'], ['FINISHED', 'finished'], ['FAILED', 'failed'], ['KILLED', 'killed'], [DELETED, 'deleted']];

/** `query`: what the address says, as `writeRuns` writes it. */
export function TrackedPage({ query = '' }: { query?: string }): ReactElement {
  const { settle } = useApp();
  const [wanted, setWanted] = useState(() => readRuns(query));
  useEffect(() => setWanted(readRuns(query)), [query]);
  const choose = (next: RunsWanted): void => {
    setWanted(next);
    settle?.({ kind: 'tracked', query: writeRuns(next) });
  };
  return (
    <View title="Runs" summary="Your runs that no cluster started: scripts and notebooks anywhere that log with det.init, det track or a client of MLflow.">
      <Runs wanted={wanted} onWanted={choose} empty={<Teach />} />
    </View>
  );
}

/** The runs of a project, on its page; nothing where there are none. */
export function ProjectRuns({ project }: { project: ProjectView }): ReactElement | null {
  const [wanted, setWanted] = useState(() => readRuns(''));
  return <Runs project={`${project.workspace}/${project.name}`} wanted={wanted} onWanted={setWanted} empty={null} head={<h2>Runs that no cluster started</h2>} />;
}

function Runs({ project, wanted, onWanted, empty, head }: {
  /** `OWNER/WORKSPACE/NAME`; absent: the user's own runs. */
  project?: string; wanted: RunsWanted; onWanted: (wanted: RunsWanted) => void; empty: ReactNode; head?: ReactNode;
}): ReactElement | null {
  const { api } = useApp();
  const [most, setMost] = useState(PAGE);
  const [search, setSearch] = useState('');
  const path = pathOf(project, wanted);
  const { data, error, reload } = useLoaded(`${path} ${most}`, signal => load(api, path, most, signal));
  const rows = useMemo(() => data?.rows ?? [], [data]);
  const seen = useSeen(rows);
  useRechecked(reload);
  const filtered = writeRuns(wanted) !== '';
  if (head && error?.status === 404) return null; // an older master, or a project that is gone
  if (error && !data) return <ErrorBanner error={error} what="Runs" onRetry={reload} />;
  if (!data) return head ? null : <Loading what="Loading the runs" />;
  if (!rows.length && !filtered) return empty === null ? null : <>{empty}</>;
  const part = search.trim().toLowerCase();
  const shown = part ? rows.filter(run => [titleOf(run), run.group, run.job_type, run.project, run.owner, run.id].some(text => text.toLowerCase().includes(part))) : rows;
  return (
    <section className="det-tracked" aria-label="Runs">
      {head}
      <div className="det-controls" role="search" aria-label="Runs">
        <input className="det-input det-grow" type="search" aria-label="Filter by name" placeholder={`Filter ${plural(rows.length, 'run')}`} value={search} onChange={event => setSearch(event.target.value)} />
        <Choice label="State" value={wanted.status} options={STATES} onChange={status => onWanted({ ...wanted, status })} />
        <Choice label="Group" value={wanted.group} options={named('any group', seen.groups, wanted.group)} onChange={group => onWanted({ ...wanted, group })} />
        <Choice label="Job type" value={wanted.job} options={named('any job type', seen.jobs, wanted.job)} onChange={job => onWanted({ ...wanted, job })} />
        {rows.some(goesOn) && <button type="button" className="det-button" onClick={reload}>Look again</button>}
        <Grid rows={shown} project={project} reload={reload} more={data.more} onMore={() => setMost(most + PAGE)} filtered={filtered || part !== ''} onAll={() => { setSearch(''); onWanted({ status: '', group: '', job: '' }); }} />
      </div>
    </section>
  );
}

async function load(api: Api, path: string, most: number, signal: AbortSignal): Promise<{ rows: RunView[]; more: boolean }> {
  const rows: RunView[] = [];
  for (;;) {
    const page = await api.get<RunViewList>(`${path}limit=${Math.min(MOST_AT_ONCE, most - rows.length)}&skip=${rows.length}`, signal);
    rows.push(...page.items);
    if (page.next === null || !page.items.length) return { rows, more: false };
    if (rows.length >= most) return { rows, more: true };
  }
}

function pathOf(project: string | undefined, { status, group, job }: RunsWanted): string {
  const parts = { project: project ?? '', ...(status === DELETED ? { deleted: 'true' } : { status }), group, job_type: job };
  return `runs?${Object.entries(parts).filter(([, value]) => value).map(([name, value]) => `${name}=${encodeURIComponent(value)}&`).join('')}`;
}

/** Groups and job types of the runs that were seen so far: a filter does not take away its other choices. */
function useSeen(rows: readonly RunView[]): { groups: ReadonlySet<string>; jobs: ReadonlySet<string> } {
  const [seen] = useState(() => ({ groups: new Set<string>(), jobs: new Set<string>() }));
  for (const run of rows) {
    if (run.group) seen.groups.add(run.group);
    if (run.job_type) seen.jobs.add(run.job_type);
  }
  return seen;
}

function named(any: string, names: ReadonlySet<string>, chosen: string): [string, string][] {
  const all = [...new Set([...names, ...(chosen ? [chosen] : [])])].sort();
  return [['', any], ...all.map((name): [string, string] => [name, nameText(name, 60)])];
}

function Choice({ label, value, options, onChange }: { label: string; value: string; options: [string, string][]; onChange: (value: string) => void }): ReactElement | null {
  if (options.length < 2) return null;
  return (
    <select className="det-input det-tracked-choice" aria-label={label} value={value} onChange={event => onChange(event.target.value)}>
      {options.map(([key, text]) => <option key={key} value={key}>{text}</option>)}
    </select>
  );
}

function Grid({ rows, project, reload, more, onMore, filtered, onAll }: {
  rows: readonly RunView[]; project?: string; reload: () => void; more: boolean; onMore: () => void; filtered: boolean; onAll: () => void;
}): ReactElement {
  const { navigate } = useApp();
  const [chosen, choose, reset] = useChosen();
  const gone = useCallback(() => reload(), [reload]);
  const [picked, setPicked] = useState<ReadonlySet<string>>(NONE_PICKED);
  const pick = useCallback((id: string, on: boolean): void => setPicked(old => new Set(on ? [...old, id] : [...old].filter(one => one !== id))), []);
  const columns = useColumns(rows, project === undefined, gone, picked, pick);
  const compared = rows.filter(run => picked.has(run.id)).map(run => run.id);
  const isShown = (column: { key: string; usual: boolean }): boolean => chosen.get(column.key) ?? column.usual;
  return (
    <>
      <ActionButton
        label={compared.length ? `Compare (${compared.length})` : 'Compare'} onRun={() => navigate(comparisonOf(compared))}
        why={!compared.length ? 'Choose runs by their boxes.' : compared.length > MOST_COMPARED ? `At most ${MOST_COMPARED} fit side by side.` : null}
      />
      <ColumnPicker columns={columns.filter(one => one.key !== 'actions' && one.key !== 'choose')} always="name" isShown={isShown} onChange={choose} onReset={reset} />
      <div className="det-tracked-table">
        <Table
          label="Runs" rows={rows} columns={columns.filter(isShown)} rowKey={run => run.id} rowHeight={30} onOpen={run => navigate({ kind: 'run', id: run.id })}
          empty={(
            <EmptyState title={filtered ? 'No run fits.' : 'No runs.'}>
              <button type="button" className="det-link" onClick={onAll}>Show all</button>
            </EmptyState>
          )}
        />
      </div>
      {more && <p className="det-adm-more"><ActionButton label="Show more" onRun={onMore} /></p>}
    </>
  );
}

const EXAMPLE = `import detlab as det

det.init(project="digits", config={"lr": 0.1})
det.log({"loss": 0.3})
det.finish()
`;

function Teach(): ReactElement {
  return (
    <EmptyState title="No run from anywhere yet.">
      <div className="det-tracked-teach">
        <p>A script on a laptop, in a notebook elsewhere or under another scheduler keeps its run here. Log in there once with <code>det login</code>, then:</p>
        <pre className="det-media-example">{EXAMPLE}</pre>
        <p className="det-tracked-copy"><CopyButton text={EXAMPLE} label="Copy" what="the lines" /></p>
        <p>Metrics, output, code, packages and how the machine fared are kept; without a network on disk, until <code>det sync</code>. A command that you do not want to change: <code>det track -- python train.py</code>.</p>
      </div>
    </EmptyState>
  );
}

/** Columns of the table of runs: what each has, and those metrics and parameters that are chosen. */

import { useMemo, useState } from 'react';

import { useApp, useStore } from '../../state/context';
import type { RunView } from '../../state/wire';
import { Ago, Go } from '../admin/parts';
import { formatNumber, Menu, StateBadge, type Column } from '../common';
import { toNumber } from '../common/format';
import { nameText } from '../common/text';
import { comparisonOf, goesOn, SYSTEM, titleOf } from './model';
import { useRemoval } from './removal';

/** Metrics that are shown unless the user says otherwise, and names offered as columns. */
const USUAL = 3;
const MOST_NAMES = 200;
const KEPT = 'detlab:runs:columns';

export interface RunColumn extends Column<RunView> {
  usual: boolean;
}

export function useColumns(
  rows: readonly RunView[], showProject: boolean, onGone: () => void, picked: ReadonlySet<string>, pick: (id: string, on: boolean) => void
): RunColumn[] {
  const me = useStore(s => s.me);
  const { navigate } = useApp();
  const remove = useRemoval();
  const metrics = useMemo(() => common(rows.map(run => Object.keys(run.metrics).filter(name => !name.startsWith(SYSTEM)))), [rows]);
  const params = useMemo(() => common(rows.map(run => Object.keys(run.config))), [rows]);
  const varied = useMemo(() => new Set(params.filter(name => new Set(rows.map(run => run.config[name])).size > 1)), [params, rows]);
  return useMemo(() => {
    const columns: RunColumn[] = [
      {
        key: 'choose', title: '', width: 34, fixed: true, usual: true, about: 'Choose runs for a comparison', value: () => null,
        render: run => <input type="checkbox" aria-label={`Choose ${titleOf(run)}`} checked={picked.has(run.id)} onChange={event => pick(run.id, event.target.checked)} />
      },
      {
        key: 'name', title: 'Run', width: 170, grow: 4, usual: true, value: titleOf,
        render: run => <Go to={{ kind: 'run', id: run.id }} title={titleOf(run)}><bdi>{titleOf(run)}</bdi></Go>
      },
      { key: 'state', title: 'State', width: 104, usual: true, value: run => run.status, render: run => <StateBadge state={run.status} about={run.end_reason} /> },
      { key: 'group', title: 'Group', width: 80, grow: 1, usual: rows.some(run => run.group), value: run => nameText(run.group, 120) || null },
      { key: 'job', title: 'Job type', width: 78, grow: 1, usual: rows.some(run => run.job_type), value: run => nameText(run.job_type, 120) || null },
      {
        key: 'project', title: 'Project', width: 110, grow: 1, usual: showProject, value: run => nameText(run.project, 120) || null,
        render: run => (run.project_id === null ? '–' : <Go to={{ kind: 'project', workspace: run.workspace, project: String(run.project_id) }}><bdi>{nameText(run.project, 120)}</bdi></Go>)
      },
      { key: 'owner', title: 'Owner', width: 80, grow: 1, usual: !showProject, value: run => nameText(run.owner, 60) },
      { key: 'started', title: 'Started', width: 110, usual: true, descending: true, value: run => run.started_at, render: run => <Ago time={run.started_at} /> },
      {
        key: 'heard', title: 'Last heard', width: 110, usual: true, descending: true, about: 'When one of its processes was last heard from, or when it ended',
        value: heardOf, render: run => <Ago time={heardOf(run)} />
      },
      ...metrics.map((name, i): RunColumn => ({
        key: `metric:${name}`, title: nameText(name, 40), width: 96, grow: 1, align: 'right', usual: i < USUAL, about: `Newest value of ${nameText(name)}`,
        value: run => toNumber(run.metrics[name]?.value), render: run => (run.metrics[name] ? formatNumber(run.metrics[name].value) : '–')
      })),
      ...params.map((name): RunColumn => ({
        key: `param:${name}`, title: nameText(name, 40), width: 96, grow: 1, usual: false, about: `Parameter ${nameText(name)}${varied.has(name) ? '' : ': the same in all'}`,
        value: run => (name in run.config ? nameText(run.config[name]!, 200) : null)
      })),
      {
        key: 'actions', title: '', width: 58, fixed: true, usual: true, value: () => null,
        render: run => (
          <Menu
            label={`Actions of ${titleOf(run)}`}
            actions={() => [
              { key: 'open', label: 'Open', run: () => navigate({ kind: 'run', id: run.id }) },
              { key: 'compare', label: 'Compare …', run: () => navigate(comparisonOf([run.id])) },
              ...remove(run, me, onGone, onGone)
            ]}
          />
        )
      }
    ];
    return columns;
  }, [metrics, params, varied, rows, showProject, remove, me, onGone, navigate, picked, pick]);
}

function heardOf(run: RunView): number | null {
  return goesOn(run) ? run.heard_at : run.ended_at ?? run.heard_at;
}

/** Names by how many rows have them, then by name. */
function common(of: readonly (readonly string[])[]): string[] {
  const counts = new Map<string, number>();
  for (const names of of) for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).slice(0, MOST_NAMES).map(([name]) => name);
}

/** Which columns the user has turned on or off; kept by the browser, where it keeps anything. */
export function useChosen(): [ReadonlyMap<string, boolean>, (key: string, on: boolean) => void, () => void] {
  const [chosen, setChosen] = useState<ReadonlyMap<string, boolean>>(remembered);
  const keep = (next: ReadonlyMap<string, boolean>): void => {
    setChosen(next);
    try {
      localStorage.setItem(KEPT, JSON.stringify([...next]));
    } catch {
      // Private windows may have no storage: then each page starts with the usual ones.
    }
  };
  return [chosen, (key, on) => keep(new Map(chosen).set(key, on)), () => keep(new Map())];
}

function remembered(): ReadonlyMap<string, boolean> {
  try {
    const found = JSON.parse(localStorage.getItem(KEPT) ?? '[]') as unknown;
    return new Map((Array.isArray(found) ? found : []).filter((one): one is [string, boolean] => Array.isArray(one) && typeof one[0] === 'string' && typeof one[1] === 'boolean'));
  } catch {
    return new Map();
  }
}

/** The work of all users: a summary per user, and the list. */

import { useMemo, useState, type ReactElement } from 'react';

import { useApp, useStore, type Place } from '../../state/context';
import { experimentState, isOver, missedMetric, shownState, stateWord } from '../../state/states';
import type { ExperimentView, TaskView } from '../../state/wire';
import {
  EmptyState, formatAge, formatNumber, formatPercent, Loading, plural, StateBadge, Table, toNumber, useNow, type Column
} from '../common';
import { nameText } from '../common/text';
import { people, slotsHeld, type Person } from './people';
import { Go, Sheet, View } from './parts';

interface Row {
  key: string;
  place: Place;
  kind: string;
  id: string;
  /** The id without the kind, which has a column of its own. */
  short: string;
  name: string;
  owner: string;
  state: string;
  why: string | null;
  warning: string | null;
  over: boolean;
  progress: string;
  best: number | null;
  slots: number;
  time: number;
}

export function AllWork(): ReactElement {
  const { ready, experiments, tasks, queue, agents } = useStore(snapshot => snapshot);
  const [owner, setOwner] = useState('');
  const [text, setText] = useState('');
  const [ended, setEnded] = useState(false);
  const rows = useMemo(() => {
    const held = slotsHeld(agents);
    return [...experiments.map(view => ofExperiment(view, held)), ...tasks.map(ofTask)];
  }, [experiments, tasks, agents]);
  const persons = useMemo(() => people({ experiments, tasks, queue, agents }), [experiments, tasks, queue, agents]);
  const owners = useMemo(() => [...new Set(rows.map(row => row.owner))].sort(), [rows]);
  const wanted = text.trim().toLowerCase();
  const shown = rows.filter(
    row =>
      (!owner || row.owner === owner) && (ended || !row.over) &&
      (!wanted || `${row.kind} ${row.id} ${row.name} ${row.owner} ${row.state} ${stateWord(row.state)}`.toLowerCase().includes(wanted))
  );
  return (
    <View title="All users' work" summary={ready ? `${plural(persons.length, 'user')} with active work` : undefined}>
      {!ready && <Loading what="Loading" />}
      {ready && persons.length > 0 && <People persons={persons} owner={owner} choose={setOwner} />}
      {ready && (
        <>
          <div className="det-adm-filters" role="search">
            <input
              className="det-input" type="search" placeholder="Filter" aria-label="Filter by name, id, kind or state"
              value={text} onChange={event => setText(event.target.value)}
            />
            <select className="det-input" aria-label="Owner" value={owner} onChange={event => setOwner(event.target.value)}>
              <option value="">all users</option>
              {owners.map(name => <option key={name} value={name}>{nameText(name, 60)}</option>)}
            </select>
            <label className="det-adm-check">
              <input type="checkbox" checked={ended} onChange={event => setEnded(event.target.checked)} /> Show ended
            </label>
          </div>
          <WorkTable rows={shown} all={rows.length} />
        </>
      )}
    </View>
  );
}

function People({ persons, owner, choose }: {
  persons: Person[]; owner: string; choose: (name: string) => void;
}): ReactElement {
  const head = (
    <>
      <th>User</th>
      <th className="det-right">Slots held</th>
      <th className="det-right">Experiments</th>
      <th className="det-right">Tasks</th>
      <th className="det-right">Waiting</th>
    </>
  );
  return (
    <Sheet label="Users" head={head}>
      {persons.map(person => (
        <tr key={person.name}>
          <td>
            <button
              type="button" className="det-link" aria-pressed={owner === person.name}
              title={owner === person.name ? 'Show all users below' : 'Show only this user below'}
              onClick={() => choose(owner === person.name ? '' : person.name)}
            >
              {nameText(person.name)}
            </button>
          </td>
          <td className="det-right det-num">{person.slots}</td>
          <td className="det-right det-num">{person.experiments}</td>
          <td className="det-right det-num">{person.tasks}</td>
          <td className="det-right det-num">{person.waiting}</td>
        </tr>
      ))}
    </Sheet>
  );
}

function WorkTable({ rows, all }: { rows: Row[]; all: number }): ReactElement {
  const { navigate } = useApp();
  const now = useNow();
  const columns = useMemo<Column<Row>[]>(
    () => [
      { key: 'kind', title: 'Kind', width: 108, value: row => row.kind },
      {
        key: 'id', title: 'Id', width: 124, value: row => row.id,
        render: row => <Go to={row.place} title={row.id}>{row.short}</Go>
      },
      { key: 'name', title: 'Name', width: 160, grow: 2, value: row => row.name },
      { key: 'owner', title: 'Owner', width: 100, grow: 1, value: row => nameText(row.owner) },
      {
        key: 'state', title: 'State', width: 110, value: row => row.state,
        render: row => <StateBadge state={row.state} about={row.why} warning={row.warning} />
      },
      { key: 'progress', title: 'Progress', width: 84, align: 'right', value: row => row.progress, fixed: true },
      {
        key: 'best', title: 'Best', width: 90, align: 'right', value: row => row.best,
        render: row => (row.best === null ? '–' : formatNumber(row.best))
      },
      { key: 'slots', title: 'Slots', width: 70, align: 'right', descending: true, value: row => row.slots },
      {
        key: 'age', title: 'Age', width: 80, align: 'right', descending: true, value: row => row.time,
        render: row => formatAge(row.time, now)
      }
    ],
    [now]
  );
  const empty = all ? (
    <EmptyState title="No work matches the filter." />
  ) : (
    <EmptyState title="No work yet.">Notebooks, shells, commands and experiments of all users appear here.</EmptyState>
  );
  return (
    <Table
      label="All users' work" rows={rows} columns={columns} rowKey={row => row.key} maxHeight="62vh" rowHeight={32}
      initialSort={{ key: 'age', descending: true }} onOpen={row => navigate(row.place)} empty={empty}
    />
  );
}

function ofExperiment(view: ExperimentView, held: ReadonlyMap<string, number>): Row {
  const over = isOver(view.state);
  return {
    key: `e${view.id}`, place: { kind: 'experiment', id: view.id }, kind: 'experiment', id: String(view.id),
    short: String(view.id), name: nameText(view.name), owner: view.owner, state: experimentState(view), warning: missedMetric(view), why: nameText(view.pending_reason ?? ''), over,
    progress: formatPercent(over && view.state === 'COMPLETED' ? 1 : view.progress), best: toNumber(view.best?.value),
    slots: over ? 0 : (held.get(String(view.id)) ?? 0), time: view.created_at
  };
}

function ofTask(view: TaskView): Row {
  const over = isOver(view.state);
  return {
    key: `t${view.id}`, place: { kind: 'task', id: view.id }, kind: view.kind.replaceAll('_', ' '),
    id: view.id, short: view.id.replace(`${view.kind}-`, ''), name: nameText(view.name), owner: view.owner, state: shownState(view), warning: null, why: nameText(view.pending_reason ?? ''), over,
    progress: '–', best: null, slots: over ? 0 : view.slots.length, time: view.created_at
  };
}

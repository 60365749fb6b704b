/** Notebooks that run by the clock, or once after something has completed: what is due, what became of the last run. */

import type { ReactElement } from 'react';

import { everyItem } from '../../state/api';
import { useApp, useStore } from '../../state/context';
import type { CreateTaskReply, ScheduleView, UserView } from '../../state/wire';
import { Ago, Go, Sheet, View } from '../admin/parts';
import { EmptyState, ErrorBanner, formatTime, Loading, Menu, StateBadge, useLoaded, type Action } from '../common';
import { useAct, useReloadOn } from '../common/loading/load';
import { nameText } from '../common/text';
import { readOnly } from '../view/actions';

export function SchedulesPage(): ReactElement {
  const { api } = useApp();
  const me = useStore(s => s.me);
  const { data, error, reload } = useLoaded('schedules', signal => everyItem<ScheduleView>(api, 'schedules', 'after', signal));
  useReloadOn('task', reload, 2000);
  const others = data?.some(one => one.owner !== me?.name) ?? false;
  return (
    <View title="Schedules" summary="Notebooks that run by the clock, or once after something has completed. Each run has its owner's rights of that time.">
      {error && <ErrorBanner error={error} what="Schedules" onRetry={reload} />}
      {!data && !error && <Loading what="Loading the schedules" />}
      {data && !data.length && (
        <EmptyState title="No schedules yet.">
          <p>In a terminal: <code>det notebook run nightly.ipynb --cron '0 6 * * 1-5' --timezone Europe/Berlin</code>, or <code>--after 12</code> to run it once when experiment 12 has completed.</p>
        </EmptyState>
      )}
      {data && data.length > 0 && <Rows items={data} owners={others} reload={reload} />}
    </View>
  );
}

function Rows({ items, owners, reload }: { items: readonly ScheduleView[]; owners: boolean; reload: () => void }): ReactElement {
  const me = useStore(s => s.me);
  const head = (
    <>
      <th>Name</th>
      {owners && <th>Owner</th>}
      <th>State</th>
      <th>When</th>
      <th>Next run</th>
      <th>Last run</th>
      <th className="det-right">Runs</th>
      <th className="det-right" title="Not started, since the run before had not ended">Skipped</th>
      <th><span className="det-hidden">Actions</span></th>
    </>
  );
  return (
    <Sheet label="Schedules" head={head}>
      {items.map(one => <Row key={one.id} of={one} owners={owners} me={me} reload={reload} />)}
    </Sheet>
  );
}

function Row({ of, owners, me, reload }: { of: ScheduleView; owners: boolean; me: UserView | null; reload: () => void }): ReactElement {
  const told = [of.reason, of.note].filter(Boolean);
  return (
    <>
      <tr>
        <td className="det-models-name">
          <span className="det-adm-name"><bdi>{nameText(of.name, 120) || 'notebook run'}</bdi></span> <span className="det-soft det-num">#{of.id}</span>
          {of.notebook && <span className="det-models-about det-soft">{nameText(of.notebook, 200)}</span>}
        </td>
        {owners && <td><span className="det-adm-name"><bdi>{nameText(of.owner, 60)}</bdi></span></td>}
        <td><StateBadge {...badge(of)} /></td>
        <td><When of={of} /></td>
        <td className="det-num">{nextWords(of)}</td>
        <td><Last of={of} /></td>
        <td className="det-right det-num">{of.runs}</td>
        <td className="det-right det-num">{of.skipped}</td>
        <td className="det-right"><Acts of={of} why={readOnly(me)} reload={reload} /></td>
      </tr>
      {told.length > 0 && (
        <tr>
          <td colSpan={owners ? 9 : 8} className="det-told-why">
            <div className="det-why-waits">{told.map((text, i) => <div key={i}>{i === 0 && of.reason ? '' : 'Not started: '}{nameText(text, 600)}{text === of.note && of.noted_at !== null && <span className="det-soft"> (<Ago time={of.noted_at} />)</span>}</div>)}</div>
          </td>
        </tr>
      )}
    </>
  );
}

/** A state as `StateBadge` has it. */
function badge({ state, reason }: ScheduleView): { state: string; word: string; about: string } {
  const known = { active: 'RUNNING', paused: 'PAUSED', disabled: 'ERROR', done: reason ? 'CANCELED' : 'COMPLETED' } as const;
  return { state: known[state] ?? 'PAUSED', word: state, about: reason };
}

function When({ of }: { of: ScheduleView }): ReactElement {
  if (of.after_experiment !== null) return <>after <Go to={{ kind: 'experiment', id: of.after_experiment }}>experiment {of.after_experiment}</Go></>;
  if (of.after_task !== null) return <>after <Go to={{ kind: 'task', id: of.after_task }}>{nameText(of.after_task, 60)}</Go></>;
  const words = cronWords(of.cron);
  return (
    <span className="det-told-when">
      {words && <span>{words}</span>}
      <span className="det-soft"><code>{nameText(of.cron, 100)}</code> {nameText(of.time_zone, 60)}</span>
    </span>
  );
}

const DAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday', 'Sunday'];
const SHORT = new Map(Object.entries({ '@hourly': 'every hour', '@daily': 'every day at 00:00', '@midnight': 'every day at 00:00', '@weekly': 'every Sunday at 00:00', '@monthly': 'on day 1 of every month at 00:00', '@yearly': 'on 1 January at 00:00', '@annually': 'on 1 January at 00:00' }));

/** The usual ones in words; of others nothing beside their fields. */
export function cronWords(cron: string): string {
  const short = SHORT.get(cron.trim().toLowerCase());
  if (short) return short;
  const [minute = '', hour = '', day = '', month = '', week = '', ...more] = cron.trim().split(/\s+/);
  if (more.length || month !== '*') return '';
  const every = /^\*\/(\d{1,2})$/.exec(minute);
  if (every && hour === '*' && day === '*' && week === '*' && 60 % Number(every[1]) === 0) return every[1] === '1' ? 'every minute' : `every ${every[1]} minutes`;
  if (!/^\d{1,2}$/.test(minute)) return '';
  const pad = (text: string): string => text.padStart(2, '0');
  if (hour === '*' && day === '*' && week === '*') return `every hour at minute ${Number(minute)}`;
  if (!/^\d{1,2}$/.test(hour)) return '';
  const at = `at ${pad(hour)}:${pad(minute)}`;
  if (day === '*' && week === '*') return `every day ${at}`;
  if (/^\d{1,2}$/.test(day) && week === '*') return `on day ${Number(day)} of every month ${at}`;
  if (day !== '*') return '';
  const span = /^([0-7])-([0-7])$/.exec(week);
  if (span) return `${DAYS[Number(span[1])]} to ${DAYS[Number(span[2])]} ${at}`;
  return /^[0-7]$/.test(week) ? `every ${DAYS[Number(week)]} ${at}` : '';
}

function nextWords(of: ScheduleView): string {
  if (of.state !== 'active') return '–';
  return of.next_at === null ? 'when that has completed' : formatTime(of.next_at);
}

function Last({ of }: { of: ScheduleView }): ReactElement {
  if (of.last_task === null) return <>–</>;
  if (of.last_task_state === null) return <span className="det-soft" title="It is there no more">removed, <Ago time={of.last_started_at} /></span>;
  return <><Go to={{ kind: 'task', id: of.last_task }}><StateBadge state={of.last_task_state} /><span className="det-hidden"> {nameText(of.last_task, 80)}</span></Go> <Ago time={of.last_started_at} /></>;
}

function Acts({ of, why, reload }: { of: ScheduleView; why: string | null; reload: () => void }): ReactElement {
  const { api, confirm, navigate, notify } = useApp();
  const act = useAct();
  const name = nameText(of.name, 80) || 'notebook run';
  const path = `schedules/${of.id}`;
  const post = async (verb: 'pause' | 'resume'): Promise<void> => { if (await act(() => api.post(`${path}/${verb}`))) reload(); };
  const run = (): Promise<boolean> => act(async () => {
    const made = await api.post<CreateTaskReply>(`${path}/run`);
    reload();
    notify(`A run of ${name} has started.`, 'good');
    if (made.task) navigate({ kind: 'task', id: made.task.id });
  });
  const remove = async (): Promise<void> => {
    const question = { title: `Delete schedule ${name}?`, body: 'It starts nothing any more. A run that goes on is left alone.', yes: 'Delete', danger: true };
    if ((await confirm(question)) && (await act(() => api.del(path)))) reload();
  };
  const actions = (): Action[] => [
    of.state === 'active' ? { key: 'pause', label: 'Pause', why, run: () => post('pause') }
      : { key: 'resume', label: 'Resume', why: why ?? (of.state === 'done' ? 'It was to start one run.' : null), run: () => post('resume') },
    { key: 'run', label: 'Run now', why, run: async () => void (await run()) },
    { key: 'delete', label: 'Delete …', why, danger: true, run: remove }
  ];
  return <Menu label={`Actions of schedule ${of.id}, ${name}`} actions={actions} />;
}

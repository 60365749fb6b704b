/** "Queue": entries by pool in order, and why each waits; the caller's own can be moved. */

import { ReactElement, useId, useState } from 'react';

import { useApp, useStore } from '../../state/context';
import type { PoolView, QueueItem } from '../../state/wire';
import { allOf, byPool, JobWhy, ranked, schedulerWord, usePools, whyOf } from '../jobs';
import { EmptyState, formatAge, plural, useNow } from '../common';
import { nameText } from '../common/text';

const MOST = 100;

export function Queue({ filter }: { filter: string }): ReactElement {
  const queue = useStore(s => s.queue);
  if (!queue.length) return <EmptyState title="Queue is empty." />;
  return <Entries queue={queue} filter={filter} />;
}

function Entries({ queue, filter }: { queue: readonly QueueItem[]; filter: string }): ReactElement {
  const pools = usePools();
  const now = useNow();
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const found = queue.filter(item => words.every(word => searched(item).includes(word)));
  if (!found.length) return <EmptyState title={`No queued work matches “${filter}”.`} />;
  const lines = byPool(found, pools);
  const pooled = pools.length > 1 || lines.length > 1;
  let room = MOST;
  const drawn = lines.map(({ name, items }) => {
    const groups = together(items);
    const shown = groups.slice(0, room);
    room -= shown.length;
    const pool = pools.find(one => one.name === name);
    const waiting = words.length ? items.length : allOf(pool, items, queue);
    return { name, pool, waiting, shown, rest: groups.length - shown.length + waiting - items.length };
  });
  const rest = drawn.reduce((sum, line) => sum + line.rest, 0);
  return (
    <ol className="det-list" aria-label="Queue">
      {drawn.filter(line => line.shown.length).map(line => [
        pooled && <PoolHead key={`pool ${line.name}`} name={line.name} pool={line.pool} waiting={line.waiting} />,
        ...line.shown.map(group => <Waiting key={group[0]!.allocation_id} group={group} now={now} pool={line.pool} />)
      ])}
      {rest > 0 && <li className="det-item det-soft">and {rest} more</li>}
    </ol>
  );
}

function PoolHead({ name, pool, waiting }: { name: string; pool: PoolView | undefined; waiting: number }): ReactElement {
  return (
    <li className="det-item det-group">
      <strong className="det-ellipsis" title={nameText(pool?.description || name)}>{nameText(name)}</strong>
      {pool && <span className="det-ellipsis">{schedulerWord(pool)}</span>}
      <span className="det-age det-num">{waiting} queued</span>
    </li>
  );
}

/** Group neighbours of one experiment with the same reason, and anonymous neighbours that look the same. */
export function together(items: readonly QueueItem[]): QueueItem[][] {
  const groups: QueueItem[][] = [];
  for (const item of items) {
    const last = groups[groups.length - 1]?.[0];
    const sameJob = item.experiment_id !== null ? last?.experiment_id === item.experiment_id : anonymous(item) && !!last && anonymous(last);
    const same = last && sameJob && last.pool === item.pool && last.kind === item.kind && last.weight === item.weight
      && last.reason === item.reason && last.slots === item.slots && last.priority === item.priority;
    if (same) groups[groups.length - 1]!.push(item);
    else groups.push([item]);
  }
  return groups;
}

/** An entry of another user, whose details the caller may not see. */
function anonymous(item: QueueItem): boolean {
  return item.experiment_id === null && item.task_id === null;
}

function Waiting({ group, now, pool }: { group: QueueItem[]; now: number; pool: PoolView | undefined }): ReactElement {
  const item = group[0]!;
  const last = group[group.length - 1]!;
  const several = group.length > 1;
  const kind = item.kind.replaceAll('_', ' ');
  const first = item.trial_id !== null ? `trial ${item.trial_id}` : kind;
  const oldest = Math.min(...group.map(one => one.requested_at));
  return (
    <li className={`det-item det-waiting${item.mine ? ' det-mine' : ''}`}>
      <span className="det-place det-num" title={`position in the queue of pool ${nameText(item.pool)}`}>
        {item.place}{several ? `–${last.place}` : ''}
      </span>
      <div className="det-waiting-what">
        <div className="det-item-head">
          <Title group={group} />
          <time className="det-age det-num det-soft" title="waiting for">{formatAge(oldest, now)}</time>
        </div>
        <div className="det-facts">
          {!anonymous(item) && <span className="det-ellipsis">{item.mine ? 'you' : nameText(item.owner)}</span>}
          {several ? <span>{plural(group.length, kind)}</span> : !anonymous(item) && <span>{first}</span>}
          <span className="det-num">{plural(item.slots, 'slot')}{several ? ' each' : ''}</span>
          {ranked(pool) && <span className="det-num" title="1 to 99; lower runs first">priority {item.priority}</span>}
          {item.weight !== 1 && <span className="det-num" title="share relative to other jobs">weight {item.weight}</span>}
        </div>
        <Reason item={item} />
      </div>
    </li>
  );
}

function Title({ group }: { group: QueueItem[] }): ReactElement {
  const app = useApp();
  const admin = useStore(s => s.me?.admin ?? false);
  const item = group[0]!;
  if (anonymous(item)) return <span className="det-soft det-ellipsis">{nameText(item.owner)}’s {item.kind.replaceAll('_', ' ')}</span>;
  const title = nameText(item.name) || (item.experiment_id ? `experiment ${item.experiment_id}` : item.kind);
  const open = item.task_id
    ? () => app.navigate({ kind: 'task', id: item.task_id! })
    : item.trial_id && group.length > 1
      ? () => app.navigate({ kind: 'experiment', id: item.experiment_id! })
      : item.trial_id
        ? () => app.navigate({ kind: 'trial', id: item.trial_id!, experiment: item.experiment_id ?? undefined })
        : null;
  return open && (item.mine || admin)
    ? <button type="button" className="det-link det-ellipsis" onClick={open} title={title}>{title}</button>
    : <span className="det-ellipsis" title={title}>{title}</span>;
}

/** The reason for waiting; opens the details. */
function Reason({ item }: { item: QueueItem }): ReactElement | null {
  const [open, setOpen] = useState(false);
  const id = useId();
  if (whyOf(item) === null) return null;
  return (
    <>
      <button
        type="button" className="det-reason det-reason-open" aria-expanded={open} aria-controls={id}
        title={open ? 'Hide details' : 'Show why it is queued, when it may start, and its position'} onClick={() => setOpen(!open)}
      >
        <span aria-hidden="true" className="det-twist">{open ? '▾' : '▸'}</span>
        <span>{nameText(item.reason, 400) || 'not considered yet'}</span>
      </button>
      <div id={id}>{open && <JobWhy item={item} />}</div>
    </>
  );
}

function searched(item: QueueItem): string {
  return [item.name, item.owner, item.pool, item.kind, item.experiment_id, item.trial_id, item.mine ? 'you mine' : '']
    .join(' ').toLowerCase();
}

/** "Queue": who waits, in which order, and why. */

import type { ReactElement } from 'react';

import { useApp, useStore } from '../../state/context';
import type { QueueItem } from '../../state/wire';
import { severalPools } from '../admin/Queue';
import { EmptyState, formatAge, plural, useNow } from '../common';
import { nameText } from '../logs/text';

const MOST = 100;

export function Queue({ filter }: { filter: string }): ReactElement {
  const queue = useStore(s => s.queue);
  const now = useNow();
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const found = queue.filter(item => words.every(word => searched(item).includes(word)));
  if (!queue.length) return <EmptyState title="Nobody waits." />;
  if (!found.length) return <EmptyState title={`Nothing that waits matches “${filter}”.`} />;
  const groups = together(found);
  const pooled = severalPools(queue);
  return (
    <ol className="det-list" aria-label="Queue">
      {groups.slice(0, MOST).map(group => (
        <Waiting key={group[0]!.allocation_id} group={group} now={now} pooled={pooled} />
      ))}
      {groups.length > MOST && <li className="det-item det-soft">and {groups.length - MOST} more</li>}
    </ol>
  );
}

/** Neighbours of one experiment that wait for the same reason are one entry. */
export function together(items: readonly QueueItem[]): QueueItem[][] {
  const groups: QueueItem[][] = [];
  for (const item of items) {
    const last = groups[groups.length - 1]?.[0];
    const same = last && item.experiment_id !== null && last.experiment_id === item.experiment_id
      && last.reason === item.reason && last.slots === item.slots && last.priority === item.priority;
    if (same) groups[groups.length - 1]!.push(item);
    else groups.push([item]);
  }
  return groups;
}

function Waiting({ group, now, pooled }: { group: QueueItem[]; now: number; pooled: boolean }): ReactElement {
  const app = useApp();
  const item = group[0]!;
  const last = group[group.length - 1]!;
  const several = group.length > 1;
  const title = nameText(item.name) || (item.experiment_id ? `experiment ${item.experiment_id}` : item.kind);
  const open = item.task_id
    ? () => app.navigate({ kind: 'task', id: item.task_id! })
    : item.trial_id && several
      ? () => app.navigate({ kind: 'experiment', id: item.experiment_id! })
      : item.trial_id
        ? () => app.navigate({ kind: 'trial', id: item.trial_id!, experiment: item.experiment_id ?? undefined })
        : null;
  return (
    <li className={`det-item det-waiting${item.mine ? ' det-mine' : ''}`}>
      <span className="det-place det-num" title="place in the queue">
        {item.place}{several ? `–${last.place}` : ''}
      </span>
      <div className="det-waiting-what">
        <div className="det-item-head">
          {open && item.mine
            ? <button type="button" className="det-link det-ellipsis" onClick={open} title={title}>{title}</button>
            : <span className="det-ellipsis" title={title}>{title}</span>}
          <span className="det-soft det-ellipsis">{item.mine ? 'you' : nameText(item.owner)}</span>
        </div>
        <div className="det-facts">
          <span>
            {several
              ? `${group.length} trials`
              : item.trial_id ? `trial ${item.trial_id}` : item.kind.replace('_', ' ')}
          </span>
          <span className="det-num">{plural(item.slots, 'slot')}{several ? ' each' : ''}</span>
          <span className="det-num" title="lower goes first">priority {item.priority}</span>
          {item.weight !== 1 && <span className="det-num" title="share beside other jobs">weight {item.weight}</span>}
          {pooled && <span className="det-ellipsis" title="resource pool">pool {nameText(item.pool)}</span>}
          <time className="det-age det-num" title="waits since">{formatAge(item.requested_at, now)}</time>
        </div>
        {item.reason && <div className="det-reason">{nameText(item.reason, 400)}</div>}
      </div>
    </li>
  );
}

function searched(item: QueueItem): string {
  return [item.name, item.owner, item.pool, item.kind, item.experiment_id, item.trial_id, item.mine ? 'you mine' : '']
    .join(' ').toLowerCase();
}

/** "Queue": who waits, in which order, and why. */

import type { ReactElement } from 'react';

import { useApp, useStore } from '../../state/context';
import type { QueueItem } from '../../state/wire';
import { EmptyState, formatAge, plural, useNow } from '../common';

const MOST = 100;

export function Queue({ filter }: { filter: string }): ReactElement {
  const queue = useStore(s => s.queue);
  const now = useNow();
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const found = queue.filter(item => words.every(word => searched(item).includes(word)));
  if (!queue.length) return <EmptyState title="Nobody waits." />;
  if (!found.length) return <EmptyState title={`Nothing that waits matches “${filter}”.`} />;
  return (
    <ol className="det-list" aria-label="Queue">
      {found.slice(0, MOST).map(item => <Waiting key={item.allocation_id} item={item} now={now} />)}
      {found.length > MOST && <li className="det-item det-soft">and {found.length - MOST} more</li>}
    </ol>
  );
}

function Waiting({ item, now }: { item: QueueItem; now: number }): ReactElement {
  const app = useApp();
  const title = item.name || (item.experiment_id ? `experiment ${item.experiment_id}` : item.kind);
  const open = item.task_id
    ? () => app.navigate({ kind: 'task', id: item.task_id! })
    : item.trial_id
      ? () => app.navigate({ kind: 'trial', id: item.trial_id!, experiment: item.experiment_id ?? undefined })
      : null;
  return (
    <li className={`det-item det-waiting${item.mine ? ' det-mine' : ''}`}>
      <span className="det-place det-num" title="place in the queue">{item.place}</span>
      <div className="det-waiting-what">
        <div className="det-item-head">
          {open && item.mine
            ? <button type="button" className="det-link det-ellipsis" onClick={open} title={title}>{title}</button>
            : <span className="det-ellipsis" title={title}>{title}</span>}
          <span className="det-soft det-ellipsis">{item.mine ? 'you' : item.owner}</span>
        </div>
        <div className="det-facts">
          <span>{item.trial_id ? `trial ${item.trial_id}` : item.kind.replace('_', ' ')}</span>
          <span className="det-num">{plural(item.slots, 'slot')}</span>
          <span className="det-num" title="lower goes first">priority {item.priority}</span>
          <time className="det-age det-num" title="waits since">{formatAge(item.requested_at, now)}</time>
        </div>
        {item.reason && <div className="det-reason">{item.reason}</div>}
      </div>
    </li>
  );
}

function searched(item: QueueItem): string {
  return [item.name, item.owner, item.kind, item.experiment_id, item.trial_id, item.mine ? 'you mine' : '']
    .join(' ').toLowerCase();
}

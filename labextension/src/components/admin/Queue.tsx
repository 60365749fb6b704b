/** The queue in the scheduler's order: position, owner, slots and the reason for waiting. */

import { Fragment, useState, type ReactElement } from 'react';

import { useStore, type Place } from '../../state/context';
import type { PoolView, QueueItem } from '../../state/wire';
import { EmptyState, formatDuration, Loading, plural, useNow } from '../common';
import { allWaiting, byPool, JobWhy, usedWords, usePools, useQuotas, whose, whyOf } from '../jobs';
import { nameText } from '../common/text';
import { Go, Sheet, View } from './parts';

/** The master sends at most this many of the caller's own entries. */
const MOST_OWN = 200;

export function Queue(): ReactElement {
  const { ready, queue, cluster, me } = useStore(snapshot => snapshot);
  const known = useQuotas().data;
  const quotas = (known?.items ?? []).filter(quota => !me?.admin || quota.name === me.name);
  const ofWorkspaces = me?.admin ? [] : known?.workspaces ?? [];
  const pools = usePools();
  return (
    <View title="Queue" summary={queue.length ? summaryOf(queue, pools) : undefined}>
      {cluster?.draining && (
        <p className="det-banner" data-tone="paused" role="status">
          The cluster is draining: nothing new starts until the service is restarted.
        </p>
      )}
      {cluster?.is_copy && (
        <p className="det-banner" data-tone="paused" role="status">
          This cluster is a copy: it starts nothing and changes no checkpoint, which are the original&rsquo;s, until it takes over (in its
          own folder: det down &amp;&amp; det up --take-over, once the original is stopped for good).
        </p>
      )}
      {quotas.map(quota => (
        <p key={`${quota.kind} ${quota.name}`} className="det-soft">
          {quota.kind === 'user' ? 'Your quota' : `Quota of the ${whose(quota, '')}`}: {usedWords(quota)}
        </p>
      ))}
      {ofWorkspaces.map(quota => (
        <p key={`workspace ${quota.workspace_id}`} className="det-soft">Quota of workspace {nameText(quota.workspace, 120)}: {usedWords(quota)}</p>
      ))}
      {!ready && <Loading what="Loading the queue" />}
      {ready && !queue.length && (
        <EmptyState title="Queue is empty.">
          {cluster?.slots_total
            ? `${cluster.slots_total - cluster.slots_used} of ${plural(cluster.slots_total, 'slot')} free: new work starts immediately.`
            : 'No node offers slots: work that needs one will wait here.'}
        </EmptyState>
      )}
      {queue.length > 0 && <QueueSheet queue={queue} pools={pools} />}
    </View>
  );
}

/** How many requests are queued, and how many of them are the caller's. */
export function summaryOf(queue: readonly QueueItem[], pools: readonly PoolView[]): string {
  const all = allWaiting(queue, pools);
  const mine = queue.filter(item => item.mine).length;
  const yours = mine >= MOST_OWN && all > queue.length ? `${mine} or more` : String(mine);
  return `${plural(all, 'request')} queued, ${yours} of them yours`;
}

/** Whether the pools have to be shown. */
export function severalPools(queue: readonly QueueItem[]): boolean {
  return new Set(queue.map(item => item.pool)).size > 1;
}

function QueueSheet({ queue, pools }: { queue: readonly QueueItem[]; pools: readonly PoolView[] }): ReactElement {
  const now = useNow(5000);
  const pooled = severalPools(queue);
  const weighted = queue.some(item => item.weight !== 1);
  const head = (
    <>
      <th className="det-right det-adm-roomy">Position</th>
      <th>Work</th>
      <th className="det-adm-roomy">Owner</th>
      {pooled && <th>Pool</th>}
      <th className="det-right">Slots</th>
      <th className="det-right det-adm-roomy" title="Lower runs first">Priority</th>
      {weighted && <th className="det-right" title="Share relative to other jobs">Weight</th>}
      <th className="det-right det-adm-roomy">Waiting</th>
      <th>Why</th>
    </>
  );
  return (
    <Sheet label="Queue" head={head}>
      {byPool(queue, pools).flatMap(line => line.items).map(item => (
        <QueueRow key={item.allocation_id} item={item} now={now} pooled={pooled} weighted={weighted} />
      ))}
    </Sheet>
  );
}

function QueueRow({ item, now, pooled, weighted }: {
  item: QueueItem; now: number; pooled: boolean; weighted: boolean;
}): ReactElement {
  const [open, setOpen] = useState(false);
  const known = whyOf(item) !== null;
  return (
    <Fragment>
      <tr data-mine={item.mine ? '' : undefined}>
        <td className="det-right det-num det-adm-roomy">{item.place}</td>
        <td>
          <What item={item} />
        </td>
        <td className="det-adm-roomy">{item.mine ? 'you' : nameText(item.owner)}</td>
        {pooled && <td>{nameText(item.pool)}</td>}
        <td className="det-right det-num">{item.slots}</td>
        <td className="det-right det-num det-adm-roomy">{item.priority}</td>
        {weighted && <td className="det-right det-num">{item.weight}</td>}
        <td className="det-right det-num det-adm-roomy">{formatDuration(now - item.requested_at)}</td>
        <td className="det-adm-wide">
          {known
            ? (
              <button
                type="button" className="det-reason-open det-adm-why" aria-expanded={open}
                title={open ? 'Hide details' : 'Show why it is queued, when it may start, and its position'} onClick={() => setOpen(!open)}
              >
                <span aria-hidden="true" className="det-twist">{open ? '▾' : '▸'}</span>
                <span>{nameText(item.reason, 400) || 'not considered yet'}</span>
              </button>
            )
            : '–'}
        </td>
      </tr>
      {open && <tr><td /><td colSpan={6 + Number(pooled) + Number(weighted)}><JobWhy item={item} /></td></tr>}
    </Fragment>
  );
}

function What({ item }: { item: QueueItem }): ReactElement {
  const kind = item.kind.replaceAll('_', ' ');
  const place: Place | null =
    item.task_id !== null ? { kind: 'task', id: item.task_id }
      : item.experiment_id !== null ? { kind: 'experiment', id: item.experiment_id } : null;
  const word = item.trial_id !== null ? `trial ${item.trial_id}` : kind;
  return (
    <>
      {place ? <Go to={place}>{word}</Go> : word} {item.name !== word && <span className="det-adm-name">{nameText(item.name)}</span>}
    </>
  );
}

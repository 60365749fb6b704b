/** Pools, and the instances that an elastic pool is launching. */

import type { ReactElement } from 'react';

import { useApp, useStore } from '../../state/context';
import type { BatchSystemView, ElasticPoolList, ElasticPoolView, PoolList, PoolView } from '../../state/wire';
import { useGet, useReloadOn } from '../common/loading/load';
import { formatLasting, plural, useLoaded, useNow } from '../common';
import { nameText } from '../common/text';

const RELOAD_MS = 3000;
const PROSE = 400;

/** The pools, kept current; empty until they are loaded. */
export function usePools(): readonly PoolView[] {
  const { data, reload } = useGet<PoolList>('pools');
  useReloadOn('cluster', reload, RELOAD_MS);
  return data?.items ?? NONE;
}

const NONE: readonly never[] = [];

/** The instances of elastic pools, which only administrators may see. */
export function useInstances(wanted: boolean): readonly ElasticPoolView[] {
  const { api } = useApp();
  const admin = useStore(s => s.me?.admin ?? false);
  const { data, reload } = useLoaded(admin && wanted ? 'instances' : null, signal => api.get<ElasticPoolList>('instances', signal));
  useReloadOn('cluster', reload, RELOAD_MS);
  return data?.items ?? NONE;
}

const FAILED: Record<string, string> = {
  list: 'Listing instances failed', launch: 'Launching an instance failed', terminate: 'Terminating an instance failed'
};

/** An elastic pool's instances that are launching, why there are not more, and the provider's last error. */
export function CloudNotes({ pool, cloud }: { pool: PoolView; cloud: ElasticPoolView | undefined }): ReactElement {
  const now = useNow();
  const coming = cloud?.instances.filter(one => one.agent_state !== 'connected') ?? [];
  const error = cloud?.errors[0];
  const plain = !pool.agents && !coming.length;
  return (
    <>
      {plain && <div className="det-reason">No agents now: the pool launches them when work is queued and stops idle ones.</div>}
      {coming.map(one => (
        <div key={one.id} className="det-reason" data-tone="running">
          {nameText(one.agent_id)} is launching: {nameText(one.state)} {formatLasting(one.launched_at, now)}
        </div>
      ))}
      {cloud && cloud.wanted > 0 && (
        <div className="det-reason">{plural(cloud.wanted, 'more agent')} requested{cloud.held_back && `: ${nameText(cloud.held_back, PROSE)}`}</div>
      )}
      {error && (
        <div className="det-reason" data-tone="bad" title={nameText(error.hint, PROSE)}>
          {FAILED[error.doing] ?? 'The provider failed'}: {nameText(error.message, PROSE)}
          {error.hint && <span className="det-soft"> ({nameText(error.hint, PROSE)})</span>}
        </div>
      )}
    </>
  );
}

/** Of a pool that a batch system places: what the nodes of its partitions do. */
export function BatchNotes({ batch }: { batch: BatchSystemView }): ReactElement {
  return (
    <>
      <div className="det-reason">{nameText(batch.name)} places these tasks in its own queue.</div>
      {batch.partitions.map(one => (
        <div key={one.name} className="det-reason" data-tone={one.up ? undefined : 'bad'}>
          Partition {nameText(one.name)}
          {one.default && ' (default)'}: {plural(one.idle, 'node')} idle, {one.allocated} in use
          {one.other > 0 && `, ${one.other} unavailable`}
          {one.time_limit && `, time limit ${nameText(one.time_limit)}`}
          {!one.up && '; it takes no jobs'}
        </div>
      ))}
    </>
  );
}

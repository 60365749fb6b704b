/** Pools, and what an elastic one is about to get. */

import type { ReactElement } from 'react';

import { useApp, useStore } from '../../state/context';
import type { ElasticPoolList, ElasticPoolView, PoolList, PoolView } from '../../state/wire';
import { useGet, useReloadOn } from '../common/load';
import { formatAge, plural, useLoaded, useNow } from '../common';
import { nameText } from '../common/text';

const RELOAD_MS = 3000;
const PROSE = 400;

/** The pools, fresh; none while they are not known. */
export function usePools(): readonly PoolView[] {
  const { data, reload } = useGet<PoolList>('pools');
  useReloadOn('cluster', reload, RELOAD_MS);
  return data?.items ?? NONE;
}

const NONE: readonly never[] = [];

/** What was launched for elastic pools, which only administrators are told. */
export function useInstances(wanted: boolean): readonly ElasticPoolView[] {
  const { api } = useApp();
  const admin = useStore(s => s.me?.admin ?? false);
  const { data, reload } = useLoaded(admin && wanted ? 'instances' : null, signal => api.get<ElasticPoolList>('instances', signal));
  useReloadOn('cluster', reload, RELOAD_MS);
  return data?.items ?? NONE;
}

const FAILED: Record<string, string> = {
  list: 'Its instances cannot be listed', launch: 'No instance could be launched', terminate: 'An instance could not be ended'
};

/** An elastic pool's instances that are on their way, why there are not more, and the last error of its provider. */
export function CloudNotes({ pool, cloud }: { pool: PoolView; cloud: ElasticPoolView | undefined }): ReactElement {
  const now = useNow();
  const coming = cloud?.instances.filter(one => one.agent_state !== 'connected') ?? [];
  const error = cloud?.errors[0];
  const plain = !pool.agents && !coming.length;
  return (
    <>
      {plain && <div className="det-reason">No agent now: the pool starts some when work waits, and stops idle ones.</div>}
      {coming.map(one => (
        <div key={one.id} className="det-reason" data-tone="running">
          {nameText(one.agent_id)} is coming: {nameText(one.state)} since {formatAge(one.launched_at, now)}
        </div>
      ))}
      {cloud && cloud.wanted > 0 && (
        <div className="det-reason">{plural(cloud.wanted, 'more agent')} wanted{cloud.held_back && `: ${nameText(cloud.held_back, PROSE)}`}</div>
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

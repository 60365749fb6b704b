/** Quotas and their use: the caller's and those of their groups; all of them for administrators. */

import type { ReactElement } from 'react';

import { useStore } from '../../state/context';
import type { QuotaList, QuotaView } from '../../state/wire';
import { useGet, useReloadOn } from '../common/loading/load';
import { plural, Progress, type Loaded } from '../common';
import { nameText } from '../common/text';

const RELOAD_MS = 3000;

/** The quotas that the caller may see, kept current. */
export function useQuotas(): Loaded<QuotaList> {
  const found = useGet<QuotaList>('quotas');
  useReloadOn('cluster', found.reload, RELOAD_MS);
  return found;
}

export function whose(quota: Pick<QuotaView, 'kind' | 'name'>, me: string): string {
  if (quota.kind === 'group') return `group ${nameText(quota.name)}`;
  return quota.name === me ? 'you' : nameText(quota.name);
}

/** `4 of 6 slots in use, 2 queued`. */
export function usedWords(quota: Pick<QuotaView, 'slots' | 'held' | 'waiting'>): string {
  return `${quota.held} of ${plural(quota.slots, 'slot')} in use${quota.waiting ? `, ${quota.waiting} queued` : ''}`;
}

export function QuotaItems({ items }: { items: readonly QuotaView[] }): ReactElement {
  const me = useStore(s => s.me?.name ?? '');
  return (
    <ul className="det-list" aria-label="Quotas">
      {items.map(quota => {
        const name = whose(quota, me);
        const full = quota.held >= quota.slots;
        return (
          <li key={`${quota.kind} ${quota.name}`} className="det-item">
            <div className="det-item-head">
              <strong className="det-ellipsis" title={nameText(quota.name)}>{name}</strong>
              <span className={`det-age det-num${full && quota.waiting ? ' det-warn' : ' det-soft'}`}>{usedWords(quota)}</span>
            </div>
            <Progress
              value={quota.slots ? Math.min(quota.held / quota.slots, 1) : 1} label={`Quota of ${name} in use`}
              tone={full ? 'waiting' : 'running'}
            />
          </li>
        );
      })}
    </ul>
  );
}

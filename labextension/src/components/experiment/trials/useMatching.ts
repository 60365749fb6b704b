/** Which trials of an experiment fulfil a filter, as the master reads it. */

import type { FoundTrials, TrialView } from '../../../state/wire';
import { useApp } from '../../../state/context';
import { useLoaded } from '../../common';
import { useSettled } from '../../common/loading/useThrottled';

const PAGE = 1000;

export interface Matching {
  /** Null until the first answer. */
  ids: ReadonlySet<number> | null;
  /** What is wrong with the filter, or why it was not answered. */
  problem: string | null;
  /** Names in it that nothing has. */
  notes: readonly string[];
}

/** `filter`: null asks nothing; `state`: asked again when it changes. */
export function useMatching(experiment: number, filter: string | null, state: string): Matching {
  const { api } = useApp();
  const settled = useSettled(state, 1000);
  const { data, error, loading } = useLoaded<{ ids: ReadonlySet<number>; notes: readonly string[]; filter: string }>(
    filter === null ? null : JSON.stringify([experiment, filter, settled]),
    async signal => {
      const query = new URLSearchParams({ filter: filter!, limit: '1' });
      // All trials that one may read tell which names are known.
      const { notes } = await api.get<FoundTrials>(`trials?${query}`, signal);
      const ids = new Set<number>();
      for (let after: number | null | undefined = 0; after !== null && after !== undefined;) {
        const more = new URLSearchParams({ filter: filter!, limit: String(PAGE), ...(after ? { after: String(after) } : {}) });
        const page: { items: TrialView[]; next: number | null } = await api.get(`experiments/${experiment}/trials?${more}`, signal);
        page.items.forEach(trial => ids.add(trial.id));
        after = page.next === after ? null : page.next;
      }
      return { ids, notes, filter: filter! };
    }
  );
  const answered = data?.filter === filter ? data : null;
  return { ids: answered?.ids ?? null, notes: answered?.notes ?? [], problem: !loading && error ? error.message : null };
}

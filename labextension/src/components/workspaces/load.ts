/** Lists that come page by page. */

import { useMemo, useState } from 'react';

import type { ApiError } from '../../state/api';
import { useApp } from '../../state/context';
import type { WorkspaceList, WorkspaceView } from '../../state/wire';
import { useLoaded } from '../common';
import { useRechecked } from '../common/loading/rights';

export interface Paged<T> {
  items: readonly T[] | null;
  error: ApiError | null;
  more: boolean;
  reload(): void;
  showMore(): Promise<void>;
}

interface Page<T> {
  items: T[];
  after?: number | null;
  next?: number | string | null;
}

/** A list by pages: the first one, kept while it is loaded anew, and those that were asked for. `cursor` takes where to go on. */
export function usePaged<T>(path: string, cursor: 'after' | 'before'): Paged<T> {
  const { api } = useApp();
  const { data, error, reload } = useLoaded(path, signal => api.get<Page<T>>(path, signal));
  const [rest, setRest] = useState<{ of: Page<T>; items: T[]; edge: number | string | null } | null>(null);
  const added = rest !== null && rest.of === data ? rest : null;
  const items = useMemo(() => (data ? [...data.items, ...(added?.items ?? [])] : null), [data, added]);
  const edge = added ? added.edge : data ? edgeOf(data) : null;
  const showMore = async (): Promise<void> => {
    if (!data || edge === null) return;
    const next = await api.get<Page<T>>(`${path}${path.includes('?') ? '&' : '?'}${cursor}=${encodeURIComponent(edge)}`);
    setRest({ of: data, items: [...(added?.items ?? []), ...next.items], edge: edgeOf(next) });
  };
  return { items, error, more: edge !== null, reload, showMore };
}

function edgeOf(page: Page<unknown>): number | string | null {
  return page.after ?? page.next ?? null;
}

/** Whether there is a workspace beside the user's personal one. `again` loads anew when it changes. */
export function useTeams(again: unknown = null): boolean {
  return useShared(again).length > 0;
}

/** Some workspaces beside the user's personal one, the oldest first; none until they are loaded. */
export function useShared(again: unknown = null, limit = 2): readonly WorkspaceView[] {
  const { api } = useApp();
  const { data, reload } = useLoaded(`workspaces ${limit} ${String(again)}`, signal => api.get<WorkspaceList>(`workspaces?limit=${limit}`, signal));
  useRechecked(reload);
  return useMemo(() => data?.items.filter(one => !one.personal) ?? [], [data]);
}

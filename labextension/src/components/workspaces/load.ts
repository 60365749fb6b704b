/** Lists that come page by page, and what is asked again because rights to it may have gone. */

import { useCallback, useEffect, useMemo, useRef, useState } from 'react';

import { type ApiError, asApiError } from '../../state/api';
import { useApp } from '../../state/context';
import type { WorkspaceList, WorkspaceView } from '../../state/wire';
import { useLoaded } from '../common';

/** Rights may be taken away at any time, also by a change of a group in the Hub, which nothing tells of. */
const RECHECK_MS = 30_000;

/** Call it when the page is looked at again, and every half minute while it is looked at. */
export function useRechecked(check: (() => void) | null): void {
  const call = useRef(check);
  call.current = check;
  const on = check !== null;
  useEffect(() => {
    if (!on) return;
    const look = (): void => {
      if (document.visibilityState !== 'hidden') call.current?.();
    };
    const timer = window.setInterval(look, RECHECK_MS);
    document.addEventListener('visibilitychange', look);
    return () => {
      window.clearInterval(timer);
      document.removeEventListener('visibilitychange', look);
    };
  }, [on]);
}

/** Why an object can no longer be seen, or null: `path` is asked again and again; null asks nothing. `learn` gets what it answers. */
export function useGone<T>(path: string | null, learn?: (view: T) => void): ApiError | null {
  const { api } = useApp();
  const [gone, setGone] = useState<{ path: string; error: ApiError } | null>(null);
  const told = useRef(learn);
  told.current = learn;
  const check = useCallback(async (): Promise<void> => {
    try {
      const view = await api.get<T>(path!);
      setGone(null);
      told.current?.(view);
    } catch (caught) {
      const error = asApiError(caught);
      if (error.status === 404 || error.status === 403) setGone({ path: path!, error });
    }
  }, [api, path]);
  useRechecked(path === null ? null : () => void check());
  return gone !== null && gone.path === path ? gone.error : null;
}

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
  next?: number | null;
}

/** A list by pages: the first one, kept while it is loaded anew, and those that were asked for. `cursor` takes where to go on. */
export function usePaged<T>(path: string, cursor: 'after' | 'before'): Paged<T> {
  const { api } = useApp();
  const { data, error, reload } = useLoaded(path, signal => api.get<Page<T>>(path, signal));
  const [rest, setRest] = useState<{ of: Page<T>; items: T[]; edge: number | null } | null>(null);
  const added = rest !== null && rest.of === data ? rest : null;
  const items = useMemo(() => (data ? [...data.items, ...(added?.items ?? [])] : null), [data, added]);
  const edge = added ? added.edge : data ? edgeOf(data) : null;
  const showMore = async (): Promise<void> => {
    if (!data || edge === null) return;
    const next = await api.get<Page<T>>(`${path}${path.includes('?') ? '&' : '?'}${cursor}=${edge}`);
    setRest({ of: data, items: [...(added?.items ?? []), ...next.items], edge: edgeOf(next) });
  };
  return { items, error, more: edge !== null, reload, showMore };
}

function edgeOf(page: Page<unknown>): number | null {
  return page.after ?? page.next ?? null;
}

/** Whether there is a workspace beside the user's personal one. `again` loads anew when it changes. */
export function useTeams(again: unknown = null): boolean {
  return useShared(again).length > 0;
}

/** Some workspaces beside the user's personal one, the oldest first; none until they are loaded. */
export function useShared(again: unknown = null, limit = 2): readonly WorkspaceView[] {
  const { api } = useApp();
  const { data } = useLoaded(`workspaces ${limit} ${String(again)}`, signal => api.get<WorkspaceList>(`workspaces?limit=${limit}`, signal));
  return useMemo(() => data?.items.filter(one => !one.personal) ?? [], [data]);
}

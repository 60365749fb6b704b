/** A list that is shown page by page: the first one is loaded, and loaded again; the others on request. */

import { useEffect, useMemo, useState } from 'react';

import type { ApiError } from '../../../state/api';
import { useApp } from '../../../state/context';
import { useLoaded } from './hooks';

interface Page<T> {
  items: T[];
  /** `after` of the next one; null: this is the last one. */
  next: number | string | null;
}

export interface Paged<T> {
  /** Null: nothing has come yet. */
  items: readonly T[] | null;
  error: ApiError | null;
  more: boolean;
  reload(): void;
  showMore(): Promise<void>;
}

/** `path` has a query; the first page is loaded again when `round` changes. */
export function usePaged<T>(path: string, round = ''): Paged<T> {
  const { api } = useApp();
  const { data, error, reload } = useLoaded(`${path} ${round}`, signal => api.get<Page<T>>(path, signal));
  const [rest, setRest] = useState<(Page<T> & { of: Page<T> }) | null>(null);
  useEffect(() => setRest(null), [data]);
  const added = rest !== null && rest.of === data ? rest : null;
  const items = useMemo(() => (data ? [...data.items, ...(added?.items ?? [])] : null), [data, added]);
  const next = added ? added.next : data?.next ?? null;
  const showMore = async (): Promise<void> => {
    if (!data || next === null) return;
    const page = await api.get<Page<T>>(`${path}&after=${encodeURIComponent(next)}`);
    setRest({ of: data, items: [...(added?.items ?? []), ...page.items], next: page.next });
  };
  return { items, error, more: next !== null, reload, showMore };
}

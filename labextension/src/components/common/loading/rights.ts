/** What is shown may be taken away: then the view asks again, says so and leaves. */

import { useCallback, useEffect, useRef, useState } from 'react';

import { type ApiError, asApiError } from '../../../state/api';
import { useApp } from '../../../state/context';

/** Call it when the master says that rights have changed, and when the page is looked at again: of a group in the Hub nothing tells. */
export function useRechecked(check: (() => void) | null): void {
  const { store } = useApp();
  const call = useRef(check);
  call.current = check;
  const on = check !== null;
  useEffect(() => {
    if (!on) return;
    const look = (): void => {
      if (document.visibilityState !== 'hidden') call.current?.();
    };
    const off = store.onEvent(event => {
      if (event.kind === 'resync' || event.data.rights) call.current?.();
    });
    document.addEventListener('visibilitychange', look);
    return () => {
      off();
      document.removeEventListener('visibilitychange', look);
    };
  }, [on, store]);
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

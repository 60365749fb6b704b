/** Requests of views: what a path answers, and actions that may be refused. */

import { useCallback, useEffect, useRef } from 'react';

import { asApiError } from '../../../state/api';
import { useApp } from '../../../state/context';
import type { Event } from '../../../state/wire';
import { useLoaded, type Loaded } from './hooks';

/** GET a path as JSON; the result of the previous path stays until the new one has come. */
export function useGet<T>(path: string): Loaded<T> {
  const { api } = useApp();
  return useLoaded<T>(path, signal => api.get<T>(path, signal));
}

/** Reload when the store gets an event of this kind, which `concerns` it, at most once in `wait` ms. */
export function useReloadOn(kind: string, reload: () => void, wait = 1000, concerns: (event: Event) => boolean = () => true): void {
  const { store } = useApp();
  const timer = useRef(0);
  const asked = useRef(concerns);
  asked.current = concerns;
  useEffect(() => {
    const off = store.onEvent(event => {
      if (event.kind !== kind || timer.current || !asked.current(event)) return;
      timer.current = window.setTimeout(() => {
        timer.current = 0;
        reload();
      }, wait);
    });
    return () => {
      off();
      window.clearTimeout(timer.current);
      timer.current = 0;
    };
  }, [store, kind, reload, wait]);
}

/** Run an action; an error is shown as a notification. Resolves to whether it succeeded. */
export function useAct(): (work: () => Promise<unknown>) => Promise<boolean> {
  const { notify } = useApp();
  return useCallback(
    async work => {
      try {
        await work();
        return true;
      } catch (error) {
        const problem = asApiError(error);
        notify(problem.hint ? `${problem.message}. ${problem.hint}` : problem.message, 'bad');
        return false;
      }
    },
    [notify]
  );
}

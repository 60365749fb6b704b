/** Small hooks that several views need. */

import { RefObject, startTransition, useCallback, useEffect, useRef, useState } from 'react';

import { ApiError, asApiError } from '../../../state/api';

/** The time in seconds since the epoch, updated every `everyMs` while the page is visible. */
export function useNow(everyMs = 15_000): number {
  const [now, setNow] = useState(() => Date.now() / 1000);
  useEffect(() => {
    let timer = 0;
    const tick = (): void => {
      window.clearTimeout(timer);
      if (document.visibilityState === 'hidden') return;
      setNow(Date.now() / 1000);
      timer = window.setTimeout(tick, everyMs);
    };
    timer = window.setTimeout(tick, everyMs);
    document.addEventListener('visibilitychange', tick);
    return () => {
      window.clearTimeout(timer);
      document.removeEventListener('visibilitychange', tick);
    };
  }, [everyMs]);
  return now;
}

/** Whether an element is visible (JupyterLab hides tabs, panels scroll). */
export function useVisible(ref: RefObject<Element>): boolean {
  const [visible, setVisible] = useState(true);
  useEffect(() => {
    if (!ref.current || typeof IntersectionObserver === 'undefined') return;
    const seen = new IntersectionObserver(entries => setVisible(entries[entries.length - 1]!.isIntersecting));
    seen.observe(ref.current);
    return () => seen.disconnect();
  }, [ref]);
  return visible;
}

/** Rows added at a time, and the pause in between (ms), in which the page responds to input. */
const SLICE = 25;
const REST_MS = 150;

/**
 * How many of `wanted` rows to draw now: first as many as fit on the screen, then step by step all, so that neither the
 * first paint nor "Show more" waits for rows below the fold.
 */
export function useGrowing(wanted: number, leastHeight: number): number {
  const [drawn, setDrawn] = useState(() => Math.ceil(window.innerHeight / leastHeight) + 1);
  useEffect(() => {
    if (drawn >= wanted) return;
    const timer = window.setTimeout(() => startTransition(() => setDrawn(drawn + SLICE)), REST_MS);
    return () => window.clearTimeout(timer);
  }, [drawn, wanted]);
  return Math.min(drawn, wanted);
}

export interface Loaded<T> {
  data: T | null;
  error: ApiError | null;
  loading: boolean;
  reload(): void;
}

/** The result of a call, repeated when `key` changes; the old result stays until the new one has come. */
export function useLoaded<T>(key: string | null, load: (signal: AbortSignal) => Promise<T>): Loaded<T> {
  const [state, setState] = useState<{ key: string | null; data: T | null; error: ApiError | null }>(
    { key: null, data: null, error: null }
  );
  const [round, setRound] = useState(0);
  const call = useRef(load);
  call.current = load;
  useEffect(() => {
    if (key === null) return;
    const control = new AbortController();
    call.current(control.signal).then(
      data => { if (!control.signal.aborted) setState({ key, data, error: null }); },
      error => { if (!control.signal.aborted) setState(old => ({ key, data: old.data, error: asApiError(error) })); }
    );
    return () => control.abort();
  }, [key, round]);
  const reload = useCallback(() => setRound(n => n + 1), []);
  return { data: state.data, error: state.error, loading: key !== null && state.key !== key, reload };
}

/** Small hooks that several views need. */

import { RefObject, startTransition, useCallback, useEffect, useRef, useState } from 'react';

import { ApiError, asApiError } from '../../state/api';

/** Seconds since the epoch, renewed now and then while the page is visible, for ages. */
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

/** Whether an element is in sight (JupyterLab hides tabs, panels scroll). */
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

/** Rows that are added at a time, and the rest (ms) in between: what is seen is drawn, and pressed, first. */
const SLICE = 25;
const REST_MS = 150;

/**
 * How many of `wanted` rows to draw now: first as many as can be in sight, then by and by all, so that neither the first
 * sight nor a press of "Show more" waits for rows that nobody sees yet.
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

/** What a call answers, asked anew when `key` changes; the old answer stays until the new one is there. */
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

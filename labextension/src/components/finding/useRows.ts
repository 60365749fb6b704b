/** The rows of a table, page by page as they are scrolled to. */

import { useCallback, useEffect, useMemo, useRef, useState } from 'react';

import { asApiError, type ApiError } from '../../state/api';
import { useApp, useStore } from '../../state/context';
import type { ExperimentPage, ExperimentView, FoundColumn, FoundTrials } from '../../state/wire';
import type { Run } from './columns';
import { pagePath, type RunTable, type TableRequest } from './request';

const FIRST = 100;
const FURTHER = 1000;

type Page = ExperimentPage | FoundTrials;

interface Loaded {
  /** What it is the answer to. */
  path: string;
  rows: readonly Run[];
  columns: readonly FoundColumn[];
  notes: readonly string[];
  next: number | null;
}

export interface Rows extends Omit<Loaded, 'path'> {
  /** Nothing was answered yet. */
  first: boolean;
  /** What is shown is of an earlier request, or not all that was asked for. */
  loading: boolean;
  error: ApiError | null;
  /** Load the next page, if there is one and none is being loaded. */
  more(): void;
  reload(): void;
}

/** `extra`: the columns whose values have to be asked for. The rows of the request before stay until the new ones have come. */
export function useRows(table: RunTable, request: TableRequest, extra: readonly string[]): Rows {
  const { api } = useApp();
  const path = pagePath(table, request, extra, FIRST, null);
  const [state, setState] = useState<Loaded | null>(null);
  const [error, setError] = useState<{ path: string; error: ApiError } | null>(null);
  const [round, setRound] = useState(0);
  const busy = useRef<AbortController | null>(null);
  const begin = useCallback((): AbortController => {
    busy.current?.abort();
    return (busy.current = new AbortController());
  }, []);

  useEffect(() => {
    const control = begin();
    api.get<Page>(path, control.signal).then(
      page => {
        if (control.signal.aborted) return;
        busy.current = null;
        setError(null);
        setState({ path, rows: page.items, columns: page.columns, notes: page.notes, next: page.next });
      },
      problem => {
        if (control.signal.aborted) return;
        busy.current = null;
        setError({ path, error: asApiError(problem) });
      }
    );
    return () => control.abort();
  }, [api, path, round, begin]);

  const more = (): void => {
    if (busy.current || !state || state.path !== path || state.next === null || error) return;
    const control = begin();
    api.get<Page>(pagePath(table, request, extra, FURTHER, state.next), control.signal).then(
      page => {
        if (control.signal.aborted) return;
        busy.current = null;
        // A master that does not move on would be asked for ever; what has moved up meanwhile comes once.
        const known = new Set(state.rows.map(row => row.id));
        const rows = [...state.rows, ...(page.items as Run[]).filter(row => !known.has(row.id))];
        setState({ ...state, rows, next: page.next === state.next ? null : page.next });
      },
      problem => {
        if (control.signal.aborted) return;
        busy.current = null;
        setError({ path, error: asApiError(problem) });
      }
    );
  };
  const reload = useCallback(() => {
    setError(null);
    setRound(n => n + 1);
  }, []);
  const rows = useLive(state?.rows ?? NONE);
  return {
    rows, columns: state?.columns ?? [], notes: state?.notes ?? [], next: state?.next ?? null,
    first: state === null, loading: state?.path !== path && error?.path !== path, error: error?.path === path ? error.error : null, more, reload
  };
}

const NONE: readonly Run[] = [];

/** Rows of experiments that the stream reports follow it: state, progress and best, not their place in the order. */
function useLive(rows: readonly Run[]): readonly Run[] {
  const experiments = useStore(s => s.experiments);
  const kept = useRef(new Map<number, { row: Run; live: ExperimentView; made: Run }>());
  return useMemo(() => {
    if (!rows.length || 'best_validation' in rows[0]!) return rows;
    const live = new Map(experiments.map(one => [one.id, one]));
    return rows.map(row => {
      const now = live.get(row.id);
      if (!now) return row;
      const before = kept.current.get(row.id);
      if (before?.row === row && before.live === now) return before.made;
      const made = { ...now, config: null, values: row.values };
      kept.current.set(row.id, { row, live: now, made });
      return made;
    });
  }, [rows, experiments]);
}

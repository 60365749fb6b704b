/** Judging as one types: the master's dry run, not more often than needed, the latest text's answer only. */

import { useEffect, useRef, useState } from 'react';

import { ApiError, asApiError } from '../state/api';
import type { ProblemView } from '../state/wire';

const SETTLED_MS = 350;

export interface Judgement {
  /** The text that was judged. */
  text: string | null;
  /** What it was judged beside. */
  beside: string;
  problems: ProblemView[];
  config: Record<string, unknown> | null;
  /** It could not be judged at all. */
  error: ApiError | null;
}

export interface Judged { problems: ProblemView[]; config: Record<string, unknown> | null }

export function useDryRun(
  text: string, beside: string, judge: (text: string) => Promise<Judged>
): Judgement & { judging: boolean } {
  const [found, setFound] = useState<Judgement>({ text: null, beside, problems: [], config: null, error: null });
  const call = useRef(judge);
  call.current = judge;
  useEffect(() => {
    let current = true;
    const timer = window.setTimeout(() => {
      call.current(text).then(
        judged => { if (current) setFound({ text, beside, ...judged, error: null }); },
        error => { if (current) setFound({ text, beside, ...fromError(asApiError(error)) }); }
      );
    }, SETTLED_MS);
    return () => {
      current = false;
      window.clearTimeout(timer);
    };
  }, [text, beside]);
  return { ...found, judging: found.text !== text || found.beside !== beside };
}

/** A refusal with problems is a judgement; anything else is trouble. */
function fromError(error: ApiError): Omit<Judgement, 'text' | 'beside'> {
  if (error.problems.length) return { problems: error.problems, config: null, error: null };
  if (error.status === 422 || error.status === 400) {
    const problem: ProblemView = { path: '', message: error.message, hint: error.hint, level: 'error' };
    return { problems: [problem], config: null, error: null };
  }
  return { problems: [], config: null, error };
}

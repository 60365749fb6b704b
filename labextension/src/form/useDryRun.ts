/** Validation while typing: the master's dry run, debounced; only the answer to the latest text counts. */

import { useEffect, useRef, useState } from 'react';

import { ApiError, asApiError } from '../state/api';
import type { ProblemView } from '../state/wire';

const SETTLED_MS = 350;

interface Checked {
  /** The text that was validated. */
  text: string | null;
  /** What it depended on. */
  dependsOn: string;
  problems: ProblemView[];
  config: Record<string, unknown> | null;
  /** The validation itself failed. */
  error: ApiError | null;
}

export interface Validation { problems: ProblemView[]; config: Record<string, unknown> | null }

export function useDryRun(
  text: string, dependsOn: string, validate: (text: string) => Promise<Validation>
): Checked & { checking: boolean } {
  const [found, setFound] = useState<Checked>({ text: null, dependsOn, problems: [], config: null, error: null });
  const call = useRef(validate);
  call.current = validate;
  useEffect(() => {
    let current = true;
    const timer = window.setTimeout(() => {
      call.current(text).then(
        checked => { if (current) setFound({ text, dependsOn, ...checked, error: null }); },
        error => { if (current) setFound({ text, dependsOn, ...fromError(asApiError(error)) }); }
      );
    }, SETTLED_MS);
    return () => {
      current = false;
      window.clearTimeout(timer);
    };
  }, [text, dependsOn]);
  return { ...found, checking: found.text !== text || found.dependsOn !== dependsOn };
}

/** An error with problems is a result; anything else is a failure of the validation. */
function fromError(error: ApiError): Omit<Checked, 'text' | 'dependsOn'> {
  if (error.problems.length) return { problems: error.problems, config: null, error: null };
  if (error.status === 422 || error.status === 400) {
    const problem: ProblemView = { path: '', message: error.message, hint: error.hint, level: 'error' };
    return { problems: [problem], config: null, error: null };
  }
  return { problems: [], config: null, error };
}

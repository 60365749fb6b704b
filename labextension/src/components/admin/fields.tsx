/** A form of named fields for the registry's dialogs and editors: errors at their fields, one request at a time. */

import { FormEvent, ReactElement, ReactNode, useEffect, useId, useRef, useState } from 'react';
import { parse, stringify } from 'yaml';

import { ApiError, asApiError } from '../../state/api';
import { ErrorBanner } from '../common';
import { nameText } from '../common/text';

export interface FormField {
  /** As in the request, so that the master's errors find it. */
  key: string;
  label: string;
  about?: ReactNode;
  rows?: number;
  most?: number;
  /** Values to choose from, beside others. */
  offers?: readonly string[];
  mono?: boolean;
  required?: boolean;
  /** What is wrong with a value, or null. */
  check?(text: string): string | null;
}

export function FieldsForm({ label, fields, start, yes, onSubmit, onCancel, children, dialog = false, conflictAt }: {
  label: string;
  fields: readonly FormField[];
  start: Record<string, string>;
  yes: string;
  /** Rejects with what is shown at the fields. */
  onSubmit(values: Record<string, string>): Promise<void>;
  onCancel(): void;
  /** Above the buttons; made of the values. */
  children?: (values: Record<string, string>) => ReactNode;
  dialog?: boolean;
  /** The field at which a conflict is told, such as a name that is taken. */
  conflictAt?: string;
}): ReactElement {
  const id = useId();
  const form = useRef<HTMLFormElement>(null);
  const [values, setValues] = useState(start);
  const [problems, setProblems] = useState<Record<string, string>>({});
  const [error, setError] = useState<ApiError | null>(null);
  const [busy, setBusy] = useState(false);
  const alive = useRef(true);
  useEffect(() => {
    alive.current = true;
    form.current?.querySelector<HTMLElement>('input, textarea')?.focus();
    return () => { alive.current = false; };
  }, []);
  const submit = async (event: FormEvent): Promise<void> => {
    event.preventDefault();
    if (busy) return;
    const wrong = Object.fromEntries(fields.flatMap(field => {
      const problem = field.check?.(values[field.key] ?? '');
      return problem ? [[field.key, problem]] : [];
    }));
    setProblems(wrong);
    setError(null);
    const first = fields.find(field => wrong[field.key]);
    if (first) return form.current?.querySelector<HTMLElement>(`[name="${first.key}"]`)?.focus();
    setBusy(true);
    try {
      await onSubmit(values);
    } catch (caught) {
      if (!alive.current) return;
      const problem = asApiError(caught);
      const { placed, rest } = split(problem, fields, conflictAt);
      setProblems(placed);
      setError(rest);
      const wrong = fields.find(field => placed[field.key]);
      if (wrong) form.current?.querySelector<HTMLElement>(`[name="${wrong.key}"]`)?.focus();
    } finally {
      if (alive.current) setBusy(false);
    }
  };
  return (
    <form
      ref={form} className={`det-edits${dialog ? '' : ' det-edits-framed'}`} aria-label={label} noValidate onSubmit={event => void submit(event)}
      onKeyDown={event => { if (event.key === 'Escape' && !dialog) { event.stopPropagation(); onCancel(); } }}
    >
      {fields.map(field => {
        const problem = problems[field.key];
        const own = `${id}-${field.key}`;
        const common = {
          id: own, name: field.key, value: values[field.key] ?? '', autoComplete: 'off', required: field.required, maxLength: field.most,
          className: `det-input${field.mono ? ' det-mono' : ''}`, 'aria-invalid': problem ? true : undefined,
          'aria-describedby': [problem && `${own}-problem`, field.about && `${own}-about`].filter(Boolean).join(' ') || undefined,
          onChange: (event: { target: { value: string } }) => setValues({ ...values, [field.key]: event.target.value })
        } as const;
        return (
          <div key={field.key} className="det-edits-one">
            <label htmlFor={own}>{field.label}</label>
            {field.rows ? <textarea rows={field.rows} spellCheck={!field.mono} {...common} /> : <input list={field.offers?.length ? `${own}-offers` : undefined} {...common} />}
            {field.offers && field.offers.length > 0 && <datalist id={`${own}-offers`}>{field.offers.map(one => <option key={one} value={one} />)}</datalist>}
            {field.about && <small id={`${own}-about`} className="det-soft">{field.about}</small>}
            {problem && <small id={`${own}-problem`} role="alert" className="det-edits-problem">{problem}</small>}
          </div>
        );
      })}
      {children?.(values)}
      {error && <ErrorBanner error={error} />}
      <div className="det-dialog-buttons det-edits-buttons">
        <button type="button" className="det-button" onClick={onCancel}>Cancel</button>
        <button type="submit" className="det-button det-primary" aria-disabled={busy || undefined} aria-busy={busy || undefined}>{yes}</button>
      </div>
    </form>
  );
}

/** The problems that have a field, and the error if there is more to say. */
function split(
  error: ApiError, fields: readonly FormField[], conflictAt?: string
): { placed: Record<string, string>; rest: ApiError | null } {
  if (error.status === 409 && conflictAt !== undefined && !error.problems.length) {
    return { placed: { [conflictAt]: nameText([error.message, error.hint].filter(Boolean).join('. '), 600) }, rest: null };
  }
  const placed: Record<string, string> = {};
  let others = error.problems.length === 0;
  for (const { path, message } of error.problems) {
    const field = fields.find(one => one.key === path.split(/[.[]/)[0]);
    if (field) placed[field.key] = nameText([placed[field.key], message].filter(Boolean).join('; '), 600);
    else others = true;
  }
  return { placed, rest: others ? error : null };
}

/** Metadata as people edit it. */
export function metadataText(metadata: Record<string, unknown>): string {
  return Object.keys(metadata).length ? stringify(metadata, { lineWidth: 0 }) : '';
}

/** The metadata of a text, or what is wrong with it. */
export function metadataOf(text: string): { value: Record<string, unknown>; problem: string | null } {
  if (!text.trim()) return { value: {}, problem: null };
  try {
    const value: unknown = parse(text, { maxAliasCount: 0 });
    if (value !== null && typeof value === 'object' && !Array.isArray(value)) return { value: value as Record<string, unknown>, problem: null };
    return { value: {}, problem: 'A mapping is needed, such as “dataset: v3”.' };
  } catch (error) {
    return { value: {}, problem: nameText(`This is not YAML: ${(error as Error).message.split('\n')[0]!.replace(/:$/, '')}`, 400) };
  }
}

/** The keys that were changed or added, and those that are gone; nothing if nothing was. */
export function metadataChange(
  before: Record<string, unknown>, now: Record<string, unknown>
): { set_metadata?: Record<string, unknown>; remove_metadata?: string[] } {
  const set = Object.fromEntries(Object.entries(now).filter(([key, value]) => JSON.stringify(before[key]) !== JSON.stringify(value)));
  const gone = Object.keys(before).filter(key => !Object.hasOwn(now, key));
  return { ...(Object.keys(set).length && { set_metadata: set }), ...(gone.length && { remove_metadata: gone }) };
}

/** The form of an act on a search: a few fields, errors at the field, Escape closes it. */

import { FormEvent, ReactElement, useEffect, useId, useRef, useState } from 'react';
import { parse } from 'yaml';

import type { ApiError } from '../../state/api';
import type { SteerSearch } from '../../state/wire';
import { nameText } from '../common/text';
import { errorText } from './acts';

export interface ActField {
  /** As in the request, so that the master's errors find it. */
  key: 'trials' | 'units' | 'points' | 'hyperparameters' | 'limit';
  label: string;
  value: string;
  /** A whole number, or a mapping as YAML. */
  kind: 'number' | 'yaml';
  about?: string;
}

export interface ActFormProps {
  title: string;
  about: string;
  fields: readonly ActField[];
  yes: string;
  /** Make the request of the values. */
  act(values: Record<string, unknown>): SteerSearch;
  send(act: SteerSearch): Promise<ApiError | null>;
  onClose(): void;
}

type Problems = Record<string, string>;

export function ActForm({ title, about, fields, yes, act, send, onClose }: ActFormProps): ReactElement {
  const id = useId();
  const first = useRef<HTMLInputElement & HTMLTextAreaElement>(null);
  const [texts, setTexts] = useState(() => Object.fromEntries(fields.map(field => [field.key, field.value])));
  const [problems, setProblems] = useState<Problems>({});
  const [busy, setBusy] = useState(false);
  useEffect(() => first.current?.focus(), []);
  const submit = async (event: FormEvent): Promise<void> => {
    event.preventDefault();
    if (busy) return;
    const { values, wrong } = read(fields, texts);
    setProblems(wrong);
    if (Object.keys(wrong).length) return;
    setBusy(true);
    const error = await send(act(values));
    if (!error) return onClose();
    setBusy(false);
    setProblems(placed(error, fields));
  };
  return (
    <form
      className="det-act-form" aria-label={title} noValidate onSubmit={event => void submit(event)}
      onKeyDown={event => { if (event.key === 'Escape') { event.stopPropagation(); onClose(); } }}
    >
      <p className="det-soft">{about}</p>
      {fields.map((field, at) => {
        const problem = problems[field.key];
        const common = {
          id: `${id}-${field.key}`, ref: at === 0 ? first : undefined, className: 'det-input', value: texts[field.key],
          'aria-invalid': problem ? true : undefined,
          'aria-describedby': problem ? `${id}-${field.key}-problem` : field.about ? `${id}-${field.key}-about` : undefined,
          onChange: (event: { target: { value: string } }) => setTexts({ ...texts, [field.key]: event.target.value })
        } as const;
        return (
          <div key={field.key} className="det-act-field">
            <label htmlFor={common.id}>{field.label}</label>
            {field.kind === 'number'
              ? <input type="number" min={0} step={1} {...common} />
              : <textarea rows={Math.min(14, Math.max(3, field.value.split('\n').length))} spellCheck={false} {...common} />}
            {field.about && <span id={`${id}-${field.key}-about`} className="det-soft">{field.about}</span>}
            {problem && <p id={`${id}-${field.key}-problem`} role="alert" className="det-act-problem">{problem}</p>}
          </div>
        );
      })}
      <div className="det-act-buttons">
        <button type="submit" className="det-button det-primary" aria-disabled={busy || undefined} aria-busy={busy || undefined}>{yes}</button>
        <button type="button" className="det-button" onClick={onClose}>Cancel</button>
      </div>
    </form>
  );
}

function read(fields: readonly ActField[], texts: Record<string, string>): { values: Record<string, unknown>; wrong: Problems } {
  const values: Record<string, unknown> = {};
  const wrong: Problems = {};
  for (const { key, kind } of fields) {
    const text = (texts[key] ?? '').trim();
    if (kind === 'number') {
      values[key] = Number(text || '0');
      if (!/^\d*$/.test(text)) wrong[key] = 'A whole number of 0 or more is needed.';
      continue;
    }
    try {
      values[key] = parse(text);
      if (values[key] === null || typeof values[key] !== 'object' || Array.isArray(values[key])) wrong[key] = 'A mapping is needed, such as "lr: 0.01".';
    } catch (error) {
      wrong[key] = nameText(`This is not YAML: ${(error as Error).message.split('\n')[0]!.replace(/:$/, '')}`, 400);
    }
  }
  return { values, wrong };
}

/** The master's error at the fields that it is about; at the last one if it names none. */
function placed(error: ApiError, fields: readonly ActField[]): Problems {
  const found: Problems = {};
  for (const { path, message } of error.problems) {
    const [start = ''] = path.split(/[.[]/);
    const field = fields.find(one => one.key === start) ?? fields[fields.length - 1]!;
    const where = path === start ? '' : `${path.slice(start.length).replace(/^\./, '')}: `;
    found[field.key] = nameText([found[field.key], `${where}${message}`].filter(Boolean).join('; '), 600);
  }
  return Object.keys(found).length ? found : { [fields[fields.length - 1]!.key]: errorText(error) };
}

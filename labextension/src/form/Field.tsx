/** One field with its label, its explanation and its problems. */

import { ReactElement, ReactNode, useEffect, useId, useState } from 'react';

import { Coded } from '../components/common';
import type { ProblemView } from '../state/wire';
import { shown, typed } from './document';
import { FieldSpec, renderPath } from './schema';

export interface FieldProps {
  spec: FieldSpec;
  value: unknown;
  problems: readonly ProblemView[];
  disabled: boolean;
  onChange(value: unknown): void;
}

export function Field({ spec, value, problems, disabled, onChange }: FieldProps): ReactElement {
  const id = useId();
  const path = renderPath(spec.path);
  const text = shown(value);
  const closed = Object.entries(spec.closed ?? {});
  const described = [spec.about && `${id}-a`, closed.length && `${id}-c`, problems.length && `${id}-p`].filter(Boolean).join(' ') || undefined;
  const common = {
    id, disabled, 'data-path': path, 'aria-describedby': described,
    'aria-invalid': problems.some(p => p.level === 'error') || undefined, 'aria-required': spec.needed || undefined
  };
  const control = (): ReactNode => {
    if (text === null) return <input {...common} className="det-input" disabled value="(see the YAML)" readOnly />;
    if (spec.kind === 'boolean') {
      return (
        <select
          {...common} className="det-input" value={text}
          onChange={e => onChange(e.target.value === '' ? undefined : e.target.value === 'true')}
        >
          <option value="">{spec.standard ? `default: ${spec.standard === 'true' ? 'yes' : 'no'}` : 'default'}</option>
          <option value="true">yes</option>
          <option value="false">no</option>
        </select>
      );
    }
    if (spec.kind === 'choice') {
      return (
        <select {...common} className="det-input" value={text} onChange={e => onChange(e.target.value || undefined)}>
          {!spec.needed && <option value="">{spec.standard ? `default: ${spec.standard}` : 'default'}</option>}
          {spec.needed && !text && <option value="">choose …</option>}
          {text && !spec.choices.includes(text) && <option value={text}>{text}</option>}
          {spec.choices.map(choice => (
            <option key={choice} value={choice} disabled={spec.closed?.[choice] !== undefined}>{choice}</option>
          ))}
        </select>
      );
    }
    return <TextInput common={common} spec={spec} text={text} onChange={onChange} />;
  };
  return (
    <div className="det-field">
      <label htmlFor={id} title={path}>{spec.label}{spec.needed && <span className="det-needed"> *</span>}</label>
      {control()}
      {spec.about && <div id={`${id}-a`} className="det-about"><Coded text={spec.about} /></div>}
      {closed.length > 0 && (
        <div id={`${id}-c`} className="det-about">{closed.map(([choice, why]) => `${choice}: ${why}`).join('; ')}.</div>
      )}
      <Problems id={`${id}-p`} problems={problems} base={path} />
    </div>
  );
}

/** Keeps the text as typed (a trailing comma, `1.`) while its value is the same. */
function TextInput({ common, spec, text, onChange }: {
  common: Record<string, unknown>; spec: FieldSpec; text: string; onChange(value: unknown): void;
}): ReactElement {
  const [draft, setDraft] = useState(text);
  useEffect(() => {
    setDraft(now => (shown(typed(spec.kind, now)) === text ? now : text));
  }, [text, spec.kind]);
  return (
    <input
      {...common} className="det-input" type="text" value={draft} spellCheck={false} autoComplete="off"
      inputMode={spec.kind === 'integer' ? 'numeric' : spec.kind === 'number' ? 'decimal' : undefined}
      placeholder={spec.standard ? `default: ${spec.standard}` : spec.kind === 'words' ? 'separated by commas' : ''}
      onChange={e => {
        setDraft(e.target.value);
        onChange(typed(spec.kind, e.target.value));
      }}
    />
  );
}

export function Problems({ id, problems, base = '' }: {
  id?: string; problems: readonly ProblemView[]; base?: string;
}): ReactElement | null {
  if (!problems.length) return null;
  return (
    <ul id={id} className="det-problems">
      {problems.map((p, i) => (
        <li key={i} data-level={p.level}>
          {p.path !== base && p.path && <code>{p.path}: </code>}
          <ProblemText problem={p} />
        </li>
      ))}
    </ul>
  );
}

/** The message of a problem with its hint, without its path. */
export function ProblemText({ problem }: { problem: ProblemView }): ReactElement {
  return (
    <>
      {problem.level === 'warning' && 'warning: '}<Coded text={problem.message} />
      {problem.hint && <span className="det-soft"> (<Coded text={problem.hint} />)</span>}
    </>
  );
}

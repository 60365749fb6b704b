/** A config as a form beside its YAML; either may be edited, the YAML is authoritative. */

import { ReactElement, ReactNode, useEffect, useId, useMemo, useRef, useState } from 'react';

import { ActionButton, ErrorBanner, plural } from '../components/common';
import { ApiError, asApiError } from '../state/api';
import type { ProblemView } from '../state/wire';
import { parseConfig, valueAt, withKey, withValue } from './document';
import { ProblemText, Field } from './Field';
import { Hyperparameters } from './Hyperparameters';
import { assign } from './problems';
import { FieldSpec, fieldsOf, Path, renderPath, resolve, Schema, variant } from './schema';
import { Validation, useDryRun } from './useDryRun';

export interface Section {
  title: string;
  /** Where its keys are; [] is the top. */
  base: Path;
  only?: readonly string[];
  /** A union chosen by `name`, the search space, or plain fields. */
  kind?: 'union' | 'hyperparameters';
  /** Folded at first. */
  folded?: boolean;
}

export interface FormProps {
  title: string;
  schema: Schema;
  sections: readonly Section[];
  initial: string;
  /** The initial text is a template to fill in: its errors are shown once the user changes something or submits. */
  template?: boolean;
  submitLabel: string;
  /** The host's own fields, such as the code to upload. */
  extra?: ReactNode;
  /** Problems of the host's own fields, which show them under a `data-path` of that name. */
  ownProblems?: readonly ProblemView[];
  validate(text: string): Promise<Validation>;
  /** What else the validation depends on (the code): when it changes, the text is validated anew. */
  dependsOn?: string | null;
  submit(text: string): Promise<void>;
}

const NO_PROBLEMS: readonly ProblemView[] = [];

export function ExperimentForm(props: FormProps): ReactElement {
  const [text, setText] = useState(props.initial);
  const [failure, setFailure] = useState<ApiError | null>(null);
  const [pressed, setPressed] = useState(false);
  const [begun] = useState(props.dependsOn);
  const id = useId();
  const root = useRef<HTMLDivElement>(null);
  const parsed = useMemo(() => parseConfig(text), [text]);
  const checked = useDryRun(text, props.dependsOn ?? '', props.validate);
  // What was refused was the text of before.
  useEffect(() => setFailure(null), [text, props.dependsOn]);
  const plan = useMemo(() => planOf(props.schema, props.sections, parsed.value), [props.schema, props.sections, parsed]);
  const untouched = props.template === true && !pressed && text === props.initial && props.dependsOn === begun;
  const found = untouched ? NO_PROBLEMS : checked.problems;
  const { at, rest } = useMemo(() => assign(found, plan.paths), [found, plan.paths]);
  const all = [...(props.ownProblems ?? []), ...rest, ...found.filter(p => !rest.includes(p))];
  const errors = all.filter(p => p.level === 'error').length;
  const held = untouched && checked.problems.some(p => p.level === 'error');
  const change = (path: Path, value: unknown): void => setText(now => withValue(now, path, value));

  const why = parsed.error !== null
    ? 'the YAML is invalid'
    : checked.checking ? 'the config is being checked'
      : errors ? `the config has ${plural(errors, 'error')}`
        : checked.error ? 'the config could not be checked' : null;
  const submit = async (): Promise<void> => {
    setPressed(true);
    if (held) return; // its errors are shown now
    setFailure(null);
    try {
      await props.submit(text);
    } catch (error) {
      setFailure(asApiError(error));
    }
  };
  const show = (problem: ProblemView): void => {
    const owner = [...at.entries()].find(([, list]) => list.includes(problem))?.[0] ?? problem.path;
    const fields = [...(root.current?.querySelectorAll<HTMLElement>('[data-path]') ?? [])];
    const el = fields.find(field => field.dataset['path'] === owner)
      ?? root.current?.querySelector<HTMLElement>('.det-yaml');
    el?.closest('details')?.setAttribute('open', '');
    el?.focus();
    el?.scrollIntoView?.({ block: 'center' });
  };

  return (
    <div className="det-form" ref={root}>
      <div className="det-form-head">
        <h1>{props.title}</h1>
        <Verdict
          checking={checked.checking} errors={errors} problems={all} error={parsed.error} failed={checked.error !== null} held={held}
          refused={failure !== null}
        />
        <ActionButton label={props.submitLabel} primary why={why} onRun={submit} />
      </div>
      {failure && <ErrorBanner error={failure} what={props.submitLabel} />}
      {checked.error && <ErrorBanner error={checked.error} what="Check failed" />}
      <div className="det-form-body">
        <div className="det-form-fields">
          {props.extra}
          {parsed.error !== null && (
            <div className="det-banner" data-tone="paused" role="status">The fields are disabled until the YAML is valid.</div>
          )}
          {plan.sections.map(section => (
            <SectionFields
              key={section.title} section={section} value={parsed.value} at={at} disabled={parsed.doc === null}
              onChange={change} onRename={(from, to) => setText(now => withKey(now, ['hyperparameters'], from, to))}
            />
          ))}
        </div>
        <div className="det-form-text">
          <label className="det-yaml-label" htmlFor={id}>YAML</label>
          <textarea
            id={id} className="det-input det-yaml det-mono" value={text} spellCheck={false} wrap="off"
            aria-invalid={parsed.error !== null || undefined} onChange={e => setText(e.target.value)}
          />
          {parsed.error !== null && <div className="det-yaml-error" role="alert">{parsed.error}</div>}
          <ProblemList problems={all} onShow={show} />
        </div>
      </div>
    </div>
  );
}

function Verdict({ checking, errors, problems, error, failed, held, refused }: {
  checking: boolean; errors: number; problems: readonly ProblemView[]; error: string | null; failed: boolean; held: boolean; refused: boolean;
}): ReactElement {
  const warnings = problems.length - errors;
  const text = error !== null
    ? 'the YAML is invalid'
    : checking ? 'checking …'
      : failed ? 'not checked' : held ? 'a template: choose code and fill it in' : errors ? plural(errors, 'error')
        : refused ? 'refused' : warnings ? plural(warnings, 'warning') : 'no errors';
  const tone = error !== null || errors || refused || (failed && !checking) ? 'bad' : checking || held ? 'off' : warnings ? 'waiting' : 'good';
  return <span className="det-verdict det-badge" data-tone={tone} role="status">{text}</span>;
}

function ProblemList({ problems, onShow }: {
  problems: readonly ProblemView[]; onShow(problem: ProblemView): void;
}): ReactElement | null {
  if (!problems.length) return null;
  return (
    <ul className="det-problem-list" aria-label="Errors and warnings">
      {problems.map((p, i) => (
        <li key={i} data-level={p.level}>
          <button type="button" className="det-link" onClick={() => onShow(p)}>{p.path || 'the whole config'}</button>
          : <ProblemText problem={p} />
        </li>
      ))}
    </ul>
  );
}

interface Planned extends Section {
  fields: FieldSpec[];
  /** Of a union: the field that chooses. */
  chooser: FieldSpec | null;
}

/** The fields of all sections for a value, and the paths under which problems are shown. */
export function planOf(
  root: Schema, sections: readonly Section[], value: unknown
): { sections: Planned[]; paths: string[] } {
  const paths: string[] = [];
  const planned = sections.map(section => {
    const raw = section.base.reduce<Schema>((s, key) => resolve(root, s).properties?.[key] ?? {}, root);
    const schema = resolve(root, raw);
    let fields: FieldSpec[] = [];
    let chooser: FieldSpec | null = null;
    if (section.kind === 'hyperparameters') {
      const names = Object.keys((valueAt(value, section.base) as object | null) ?? {});
      paths.push(...names.map(name => renderPath([...section.base, name])));
    } else if (section.kind === 'union') {
      const { names, chosen } = variant(root, schema, valueAt(value, [...section.base, 'name']));
      chooser = {
        path: [...section.base, 'name'], label: 'method', kind: 'choice', choices: names, needed: true,
        about: raw.description ?? '', standard: ''
      };
      fields = chosen ? fieldsOf(root, chosen, section.base, section.only) : [];
    } else fields = fieldsOf(root, schema, section.base, section.only);
    paths.push(...fields.map(f => renderPath(f.path)), ...(chooser ? [renderPath(chooser.path)] : []));
    // Problems of the block as a whole are shown at its first field.
    return { ...section, fields, chooser };
  });
  return { sections: planned, paths };
}

function SectionFields({ section, value, at, disabled, onChange, onRename }: {
  section: Planned; value: unknown; at: ReadonlyMap<string, ProblemView[]>; disabled: boolean;
  onChange(path: Path, value: unknown): void; onRename(from: string, to: string): void;
}): ReactElement {
  const specs = [...(section.chooser ? [section.chooser] : []), ...section.fields];
  const wrong = specs.reduce((n, spec) => n + (at.get(renderPath(spec.path))?.length ?? 0), 0);
  return (
    <details className="det-form-section" open={!section.folded || wrong > 0 || undefined}>
      <summary><h2>{section.title}</h2></summary>
      {section.kind === 'hyperparameters' && (
        <Hyperparameters
          value={valueAt(value, section.base)} problems={at} disabled={disabled}
          onChange={(name, next) => onChange([...section.base, name], next)} onRename={onRename}
        />
      )}
      <div className="det-fields">
        {specs.map(spec => (
          <Field
            key={renderPath(spec.path)} spec={spec} value={valueAt(value, spec.path)} disabled={disabled}
            problems={at.get(renderPath(spec.path)) ?? []} onChange={next => onChange(spec.path, next)}
          />
        ))}
      </div>
    </details>
  );
}

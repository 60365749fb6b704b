/** The search space: one row for each hyperparameter. */

import { ReactElement, useState } from 'react';
import { parse, stringify } from 'yaml';

import type { ProblemView } from '../state/wire';
import { Problems } from './Field';

type Entry = Record<string, unknown>;

const KINDS: Record<string, { label: string; keys: string[]; fresh: Entry | number }> = {
  const: { label: 'fixed', keys: ['val'], fresh: { type: 'const', val: 0 } },
  int: { label: 'integer', keys: ['minval', 'maxval'], fresh: { type: 'int', minval: 1, maxval: 10 } },
  double: { label: 'real', keys: ['minval', 'maxval'], fresh: { type: 'double', minval: 0, maxval: 1 } },
  log: { label: 'log', keys: ['minval', 'maxval', 'base'], fresh: { type: 'log', minval: -5, maxval: -1, base: 10 } },
  categorical: { label: 'one of', keys: ['vals'], fresh: { type: 'categorical', vals: ['a', 'b'] } },
  ordinal: { label: 'one of, ordered', keys: ['vals'], fresh: { type: 'ordinal', vals: [16, 32, 64] } }
};
/** What another kind of the same hyperparameter still means. */
const KEPT: readonly string[] = ['when'];
const WORDS: Record<string, string> = { val: 'value', minval: 'from', maxval: 'to', base: 'base', vals: 'values' };

export function Hyperparameters({ value, problems, disabled, onChange, onRename }: {
  value: unknown;
  /** By `hyperparameters.<name>`. */
  problems: ReadonlyMap<string, ProblemView[]>;
  disabled: boolean;
  onChange(name: string, value: unknown): void;
  onRename(from: string, to: string): void;
}): ReactElement {
  const entries = value && typeof value === 'object' && !Array.isArray(value) ? Object.entries(value) : [];
  const add = (): void => {
    let n = 1;
    while (entries.some(([name]) => name === `parameter_${n}`)) n += 1;
    onChange(`parameter_${n}`, KINDS['double']!.fresh);
  };
  return (
    <div className="det-hps">
      {entries.map(([name, entry], i) => (
        <Row
          key={i} name={name} entry={entry} disabled={disabled} problems={problems.get(`hyperparameters.${name}`) ?? []}
          onChange={next => onChange(name, next)} onRename={to => onRename(name, to)}
        />
      ))}
      <button type="button" className="det-button" disabled={disabled} onClick={add}>Add hyperparameter</button>
    </div>
  );
}

function Row({ name, entry, disabled, problems, onChange, onRename }: {
  name: string; entry: unknown; disabled: boolean; problems: ProblemView[];
  onChange(value: unknown): void; onRename(to: string): void;
}): ReactElement {
  const kind = kindOf(entry);
  const spec = kind === null ? null : KINDS[kind]!;
  const more = spec && isEntry(entry) ? Object.keys(entry).filter(key => key !== 'type' && !spec.keys.includes(key)) : [];
  const changed = (to: string): void => {
    const kept = isEntry(entry) ? Object.entries(entry).filter(([key]) => KEPT.includes(key)) : [];
    onChange({ ...(KINDS[to]!.fresh as Entry), ...Object.fromEntries(kept) });
  };
  const values: Entry = kind === 'const' && !isEntry(entry) ? { val: entry } : isEntry(entry) ? entry : {};
  return (
    <div className="det-hp" role="group" aria-label={`Hyperparameter ${name}`}>
      <div className="det-hp-row">
        <Draft label="name" text={name} disabled={disabled} onCommit={onRename} invalid={false} />
        {spec ? (
          <label className="det-hp-kind">
            <span className="det-hidden">kind of {name}</span>
            <select
              className="det-input" value={kind!} disabled={disabled}
              onChange={e => changed(e.target.value)}
            >
              {Object.entries(KINDS).map(([key, k]) => <option key={key} value={key}>{k.label}</option>)}
            </select>
          </label>
        ) : <span className="det-soft">a group: see the YAML</span>}
        {spec?.keys.map(key => (
          <Draft
            key={key} label={WORDS[key]!} text={asText(values[key])} disabled={disabled}
            invalid={problems.some(p => p.level === 'error')}
            onCommit={text => onChange({ type: kind, ...values, [key]: fromText(key, text) })}
          />
        ))}
        <button
          type="button" className="det-button det-compact" disabled={disabled} aria-label={`Remove ${name}`}
          title={`Remove ${name}`} onClick={() => onChange(undefined)}
        >
          ✕
        </button>
      </div>
      {more.length > 0 && (
        <div className="det-about det-hp-more">{more.map(key => `${key} ${brief(values[key])}`).join(' · ')} (see the YAML)</div>
      )}
      <Problems problems={problems} base={`hyperparameters.${name}`} />
    </div>
  );
}

/** An input whose text becomes a value when one leaves it or presses Enter, so that half-typed names rename nothing. */
function Draft({ label, text, disabled, invalid, onCommit }: {
  label: string; text: string; disabled: boolean; invalid: boolean; onCommit(text: string): void;
}): ReactElement {
  const [draft, setDraft] = useState<string | null>(null);
  const commit = (): void => {
    if (draft !== null && draft !== text) onCommit(draft);
    setDraft(null);
  };
  return (
    <label className="det-hp-part">
      <span>{label}</span>
      <input
        className="det-input" value={draft ?? text} disabled={disabled} spellCheck={false} autoComplete="off"
        aria-invalid={invalid || undefined} onChange={e => setDraft(e.target.value)} onBlur={commit}
        onKeyDown={e => { if (e.key === 'Enter') commit(); }}
      />
    </label>
  );
}

function isEntry(entry: unknown): entry is Entry {
  return typeof entry === 'object' && entry !== null && !Array.isArray(entry);
}

/** The kind of an entry; null is a group or something that is no hyperparameter. */
function kindOf(entry: unknown): string | null {
  if (!isEntry(entry)) return 'const';
  return typeof entry['type'] === 'string' && entry['type'] in KINDS ? entry['type'] : null;
}

function asText(value: unknown): string {
  if (value === undefined || value === null) return '';
  if (Array.isArray(value)) return value.map(v => stringify(v).trim()).join(', ');
  return typeof value === 'object' ? stringify(value).trim() : String(value);
}

/** A value in a few characters, as YAML on one line. */
function brief(value: unknown): string {
  const text = stringify(value, { collectionStyle: 'flow', lineWidth: 0 }).trim();
  return text.length > 60 ? `${text.slice(0, 59)}…` : text;
}

function fromText(key: string, text: string): unknown {
  try {
    return parse(key === 'vals' ? `[${text}]` : text) as unknown;
  } catch {
    return text;
  }
}

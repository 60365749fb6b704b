/** Which columns a table shows: fields, hyperparameters, and metrics in groups by what their names begin with. */

import { ReactElement, useState } from 'react';

import { useApp } from '../../state/context';
import type { Candidate, Completions } from '../../state/wire';
import { ErrorBanner, Loading, useLoaded } from '../common';
import { nameText } from '../common/text';
import { useSettled } from '../common/loading/useThrottled';
import { ALWAYS } from './columns';
import { Popover } from './Popover';
import { MOST_COLUMNS, type RunTable } from './request';

type Kind = 'column' | 'hyperparameter' | 'metric';
const TITLES: Record<Kind, string> = { column: 'Fields', hyperparameter: 'Hyperparameters', metric: 'Metrics' };
const SUMMARIES = ['last', 'min', 'max'] as const;

export interface ColumnChoice {
  table: RunTable;
  shown: readonly string[];
  /** Columns in which no row has a value. */
  empty: readonly string[];
  onChange(columns: readonly string[] | null): void;
}

export function ColumnChooser(props: ColumnChoice): ReactElement {
  return (
    <Popover label={`Columns (${props.shown.length})`} about="Columns" wide>
      {() => <Chooser {...props} />}
    </Popover>
  );
}

function Chooser({ table, shown, empty, onChange }: ColumnChoice): ReactElement {
  const [typed, setTyped] = useState('');
  const search = useSettled(typed.trim(), 150);
  const full = shown.length >= MOST_COLUMNS;
  const toggle = (name: string, on: boolean): void => onChange(on ? [...shown, name] : shown.filter(one => one !== name));
  const offer = { shown, full, empty, onToggle: toggle };
  return (
    <>
      <input className="det-input" type="search" aria-label="Search columns" placeholder="Search: loss, lr, owner" value={typed} onChange={event => setTyped(event.target.value)} />
      {full && <p className="det-soft">A table has {MOST_COLUMNS} columns at most.</p>}
      <div className="det-run-choices">
        {search === '' && <Choices title="Shown" names={shown.map(text => ({ text, kind: '', about: '' }))} {...offer} order={(name, by) => onChange(moved(shown, name, by))} />}
        {(['column', 'hyperparameter', 'metric'] as const).map(kind => <Found key={kind} table={table} kind={kind} search={search} {...offer} />)}
      </div>
      <button type="button" className="det-link" onClick={() => onChange(null)}>Usual columns</button>
    </>
  );
}

/** A list with a name moved by so many places. */
export function moved(list: readonly string[], name: string, by: number): string[] {
  const others = list.filter(one => one !== name);
  const to = Math.min(Math.max(list.indexOf(name) + by, 0), others.length);
  return [...others.slice(0, to), name, ...others.slice(to)];
}

interface Offer {
  shown: readonly string[];
  full: boolean;
  empty: readonly string[];
  onToggle(name: string, on: boolean): void;
}

function Found({ table, kind, search, ...offer }: Offer & { table: RunTable; kind: Kind; search: string }): ReactElement | null {
  const { api } = useApp();
  const query = new URLSearchParams({ table, kind, filter: search });
  const { data, error, reload } = useLoaded<Completions>(`${query}`, signal => api.get(`filters/complete?${query}`, signal));
  if (error) return <ErrorBanner error={error} what={TITLES[kind]} onRetry={reload} />;
  if (!data) return kind === 'column' ? <Loading /> : null;
  if (kind !== 'metric') return <Choices title={TITLES[kind]} names={data.items} {...offer} />;
  const names = search === '' ? data.items : data.items.flatMap(one => [one, ...SUMMARIES.map(of => ({ ...one, text: `${one.text}.${of}` }))]);
  if (!names.length) return search === '' ? <p className="det-soft">No metrics yet: they are offered once a trial has reported.</p> : null;
  return (
    <>
      {groupsOf(names).map(([prefix, members]) => (
        <Choices key={prefix} title={prefix ? `Metrics: ${nameText(prefix, 60)}` : 'Metrics'} names={members} {...offer} />
      ))}
      {data.items.length >= 50 && <p className="det-soft">There are more metrics: search for them.</p>}
    </>
  );
}

/** Metrics by what stands before the first `/`, `.` or `_` of their names, if several share it; the others together, first. */
export function groupsOf(names: readonly Candidate[]): [string, Candidate[]][] {
  const by = new Map<string, Candidate[]>();
  for (const one of names) {
    const plain = one.text.replace(/^"/, '').replace(/\.(last|min|max)$/, '');
    const prefix = /^[^/._"]+(?=[/._])/.exec(plain)?.[0] ?? '';
    by.set(prefix, [...(by.get(prefix) ?? []), one]);
  }
  const alone: Candidate[] = [];
  const groups: [string, Candidate[]][] = [];
  for (const [prefix, members] of by) {
    if (prefix === '' || members.length < 2) alone.push(...members);
    else groups.push([prefix, members]);
  }
  return [...(alone.length ? [['', alone] as [string, Candidate[]]] : []), ...groups.sort(([a], [b]) => (a < b ? -1 : 1))];
}

function Choices({ title, names, shown, full, empty, onToggle, order }: Offer & {
  title: string; names: readonly Candidate[]; order?: (name: string, by: number) => void;
}): ReactElement | null {
  if (!names.length) return null;
  return (
    <fieldset className="det-run-fieldset">
      <legend>{title}</legend>
      {names.map(({ text, about }) => {
        const on = shown.includes(text);
        const name = nameText(text, 100);
        return (
          <div key={text} className="det-run-pick">
            <label title={about ? `${name}: ${nameText(about, 200)}` : name}>
              <input type="checkbox" checked={on} disabled={text === ALWAYS || (!on && full)} onChange={event => onToggle(text, event.target.checked)} />
              <span className="det-ellipsis"><bdi>{name}</bdi></span>
              {empty.includes(text) && <span className="det-soft">no values</span>}
            </label>
            {order && text !== ALWAYS && (
              <span className="det-run-order">
                <button type="button" className="det-button det-compact" aria-label={`Move ${name} to the left`} title="To the left" onClick={() => order(text, -1)}>←</button>
                <button type="button" className="det-button det-compact" aria-label={`Move ${name} to the right`} title="To the right" onClick={() => order(text, 1)}>→</button>
              </span>
            )}
          </div>
        );
      })}
    </fieldset>
  );
}

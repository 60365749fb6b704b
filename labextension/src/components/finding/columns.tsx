/** Columns of tables of runs: what each shows of a row, and colours by value. */

import type { ReactElement, ReactNode } from 'react';

import { toNumber } from '../common/format';
import { formatAgo, formatDuration, formatNumber, formatPercent, formatTime, formatValue, StateBadge } from '../common';
import { nameText } from '../common/text';
import { isOver, experimentState, missedMetric, stateWord } from '../../state/states';
import type { ExperimentView, Float, FoundColumn, FoundTrial } from '../../state/wire';
import type { RunTable } from './request';

export type Run = ExperimentView | FoundTrial;

export interface RunColumn {
  /** The field, as filters have it. */
  name: string;
  /** Pixels. */
  width: number;
  right: boolean;
  /** The first click sorts descending. */
  descending: boolean;
  kind: string;
  /** Of a row; undefined: it has none. */
  value(row: Run): unknown;
}

type Native = { kind: string; width: number; trials?: (row: FoundTrial) => unknown; experiments?: (row: ExperimentView) => unknown };

const both = <V,>(of: (row: Run) => V): Pick<Native, 'trials' | 'experiments'> => ({ trials: of, experiments: of });

/** Fields that rows bring along. */
const NATIVE: Record<string, Native> = {
  id: { kind: 'number', width: 76, ...both(row => row.id) },
  experiment: { kind: 'number', width: 122, trials: row => row.experiment_id, experiments: row => row.id },
  name: { kind: 'text', width: 220, ...both(row => row.name) },
  owner: { kind: 'user', width: 110, ...both(row => row.owner) },
  label: { kind: 'labels', width: 150, ...both(row => row.labels) },
  state: { kind: 'state', width: 116, ...both(row => row.state) },
  progress: { kind: 'number', width: 90, ...both(row => row.progress) },
  created: { kind: 'time', width: 110, ...both(row => row.created_at) },
  started: { kind: 'time', width: 110, ...both(row => row.started_at) },
  ended: { kind: 'time', width: 110, ...both(row => row.ended_at) },
  best: { kind: 'number', width: 100, trials: row => row.best_validation, experiments: row => row.best?.value },
  steps: { kind: 'number', width: 90, trials: row => row.steps_completed },
  restarts: { kind: 'number', width: 84, trials: row => row.restarts },
  searcher: { kind: 'text', width: 130, experiments: row => row.searcher },
  searcher_metric: { kind: 'text', width: 140, experiments: row => row.metric },
  workspace: { kind: 'text', width: 130, experiments: row => row.workspace },
  project: { kind: 'text', width: 130, experiments: row => row.project },
  trials: { kind: 'number', width: 80, experiments: row => Object.values(row.trials).reduce((sum, count) => sum + count, 0) }
};

/** What a run has come to stands where a window of 1,280 pixels shows it. */
export const USUAL: Record<RunTable, readonly string[]> = {
  experiments: ['id', 'name', 'state', 'best', 'trials', 'progress', 'label', 'owner', 'created', 'searcher'],
  trials: ['id', 'experiment', 'name', 'state', 'best', 'steps', 'label', 'owner', 'created']
};
/** Columns for which a row is known: they cannot be hidden. */
export const ALWAYS = 'id';
const DESCENDING = new Set(['id', 'experiment', 'created', 'started', 'ended', 'progress', 'steps', 'trials', 'duration']);

/** Rows that say whether a column has numbers. */
const LOOKED_AT = 50;

function native(table: RunTable, name: string): Native | null {
  const found = Object.hasOwn(NATIVE, name) ? NATIVE[name]! : null;
  return found?.[table] ? found : null;
}

/** Which columns have to be asked for. */
export function extraOf(table: RunTable, names: readonly string[]): string[] {
  return names.filter(name => !native(table, name));
}

/** The columns of a table. `answered`: what `values` of its rows are; numbers of any kind stand to the right. */
export function columnsOf(table: RunTable, names: readonly string[], answered: readonly FoundColumn[], rows: readonly Run[] = []): RunColumn[] {
  return names.map(name => {
    const own = native(table, name);
    const at = answered.findIndex(column => column.name === name);
    const kind = own?.kind ?? answered[at]?.kind ?? 'any';
    const value = own ? (own[table] as (row: Run) => unknown) : (row: Run): unknown => (at < 0 ? undefined : row.values[at]);
    const numbers = kind === 'any' && rows.slice(0, LOOKED_AT).some(row => typeof value(row) === 'number');
    return {
      name, kind, value,
      width: own?.width ?? Math.min(240, Math.max(96, name.length * 8 + 48)),
      right: kind === 'number' || kind === 'duration' || numbers,
      descending: DESCENDING.has(name)
    };
  });
}

function isMissing(value: unknown): boolean {
  return value === null || value === undefined || (Array.isArray(value) && value.length === 0);
}

/** Columns in which no row has a value: it may be gone. */
export function emptyColumns(columns: readonly RunColumn[], rows: readonly Run[]): string[] {
  if (!rows.length) return [];
  const usual = new Set(Object.keys(NATIVE));
  return columns.filter(one => !usual.has(one.name) && rows.every(row => isMissing(one.value(row)))).map(one => one.name);
}

/** A cell as text. */
export function cellText(column: RunColumn, row: Run): string {
  const value = column.value(row);
  if (isMissing(value)) return '–';
  switch (column.kind) {
    case 'number':
      if (column.name === 'progress') return formatPercent(value as number);
      return formatNumber(value as Float);
    case 'time':
      return formatAgo(value as number);
    case 'duration':
      return formatDuration(value as number);
    case 'labels':
      return nameText((value as string[]).join(', '), 200);
    case 'state':
      return stateWord(String(value));
    case 'any':
      return nameText(formatValue(value));
    default:
      return nameText(String(value), 200);
  }
}

export function Cell({ column, row }: { column: RunColumn; row: Run }): ReactNode {
  const value = column.value(row);
  if (column.kind === 'state') return <State row={row} />;
  if (column.kind === 'time' && typeof value === 'number') {
    return <time dateTime={new Date(value * 1000).toISOString()} title={formatTime(value)}>{formatAgo(value)}</time>;
  }
  if (column.kind === 'labels' && Array.isArray(value) && value.length) {
    return (value as string[]).slice(0, 8).map((label, i) => <span key={i} className="det-run-label" title={nameText(label, 400)}><bdi>{nameText(label, 40)}</bdi></span>);
  }
  const text = cellText(column, row);
  return <bdi title={text.length > 14 ? text : undefined}>{text}</bdi>;
}

function State({ row }: { row: Run }): ReactElement {
  if ('best_validation' in row) {
    const word = row.end_reason && row.state === 'COMPLETED' && row.end_reason !== 'completed' ? row.end_reason.replaceAll('_', ' ') : undefined;
    return <StateBadge state={row.state} word={word} />;
  }
  return <StateBadge state={isOver(row.state) ? row.state : experimentState(row)} about={row.pending_reason} warning={missedMetric(row)} />;
}

/** From and to which values the colours of a column go. */
export function heatRange(column: RunColumn, rows: readonly Run[]): { low: number; high: number } | null {
  let low = Infinity;
  let high = -Infinity;
  for (const row of rows) {
    const value = numberOf(column, row);
    if (value === null) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  return low < high ? { low, high } : null;
}

function numberOf(column: RunColumn, row: Run): number | null {
  const value = column.value(row);
  const found = typeof value === 'number' || (column.kind === 'number' && typeof value === 'string') ? toNumber(value as Float) : null;
  return found !== null && Number.isFinite(found) ? found : null;
}

/** Most of the colour in a cell, in percent: text on it stays readable. */
const STRONGEST = 45;

/** The ground of a cell, by where its value lies. */
export function heatOf(column: RunColumn, row: Run, range: { low: number; high: number } | null | undefined): string | undefined {
  const value = range ? numberOf(column, row) : null;
  if (value === null) return undefined;
  const share = Math.round(((value - range!.low) / (range!.high - range!.low)) * STRONGEST);
  return `color-mix(in srgb, var(--det-heat) ${share}%, var(--det-ground))`;
}

/** Format numbers and times, in the same way as the notebook's view. */

import type { Float } from '../../state/wire';
import { nameText } from './text';
import { inZone, LOCAL, type Zone, zoneNow } from './zone';

const NONE = '–';

/** The number that a metric's value stands for, or null. */
export function toNumber(value: Float | null | undefined): number | null {
  if (value === null || value === undefined) return null;
  return typeof value === 'number' ? value : Number(value);
}

/** Significant digits of a value. */
const DIGITS = 4;
/** Decimals from here … */
const SMALL = 1e-3;
/** … up to here; numbers outside have an exponent. */
const LARGE = 1e6;

/**
 * The rule for every number on the screen: whole numbers below a million as they are, others with four significant
 * digits, as a decimal from 0.001 to a million and as `1.234e-5` outside. `zeros` keeps the zeros at the end, so that
 * a column of measured values lines up.
 */
export function significant(x: number, zeros: boolean, digits = DIGITS): string {
  if (Number.isNaN(x)) return 'NaN';
  if (!Number.isFinite(x)) return x > 0 ? '∞' : '−∞';
  if (hasExponent(x)) return exponential(x, digits);
  if (Number.isInteger(x)) return String(x);
  const size = Math.abs(x);
  if (size >= 10 ** digits) return String(Math.round(x));
  return zeros ? x.toPrecision(digits) : String(Number(x.toPrecision(digits)));
}

function hasExponent(x: number): boolean {
  const size = Math.abs(x);
  return size !== 0 && Number.isFinite(x) && (size < SMALL || size >= LARGE);
}

/** Below it numbers have fewer digits than others, and their shortest text says all. */
const NORMAL = 2 ** -1022;

function exponential(x: number, digits: number): string {
  const text = x.toExponential(digits - 1).replace(/\.?0+e/, 'e').replace('e+', 'e');
  const short = String(x);
  return Math.abs(x) < NORMAL && short.length < text.length ? short : text;
}

/** A double has no more. */
const MOST_DIGITS = 17;

/**
 * The labels of an axis, all in one notation; `aligned` gives all as many decimals as the finest of them needs. They have
 * as many digits as tell ticks apart that lie close together beside their size.
 */
export function tickTexts(values: readonly (number | null)[], aligned: boolean, digits = 6): string[] {
  const numbers = values.filter((value): value is number => value !== null && Number.isFinite(value)).sort((a, b) => a - b);
  const step = Math.min(...numbers.slice(1).map((value, i) => value - numbers[i]!).filter(between => between > 0));
  for (let enough = digits; ; enough += 1) {
    const texts = ticksWith(values, aligned, enough);
    const off = (text: string, i: number): number => Math.abs(Number(text) - values[i]!);
    if (enough >= MOST_DIGITS || !texts.some((text, i) => text !== '' && Number.isFinite(values[i]) && off(text, i) > step / 100)) return texts;
  }
}

function ticksWith(values: readonly (number | null)[], aligned: boolean, digits: number): string[] {
  const numbers = values.filter((value): value is number => value !== null);
  const exponents = numbers.some(hasExponent);
  const text = (x: number): string => (exponents && x !== 0 && Number.isFinite(x) ? exponential(x, digits) : significant(x, false, digits));
  const decimals = aligned && !exponents ? Math.max(0, ...numbers.map(x => text(x).split('.')[1]?.length ?? 0)) : 0;
  return values.map(value => (value === null ? '' : decimals && Number.isFinite(value) ? value.toFixed(decimals) : text(value)));
}

/** A metric: see `significant`. */
export function formatNumber(value: Float | null | undefined): string {
  const x = toNumber(value);
  return x === null ? NONE : significant(x, true);
}

/** A hyperparameter or any other value in a cell: short, one line. */
export function formatValue(value: unknown, most = 60): string {
  if (value === null || value === undefined) return NONE;
  if (typeof value === 'number') return significant(value, false);
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

/** Seconds as 42 s, 3:07 or 2:05:11. */
export function formatDuration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return NONE;
  const s = Math.max(Math.round(seconds), 0);
  if (s < 60) return `${s} s`;
  const pad = (n: number): string => String(n).padStart(2, '0');
  const hours = Math.floor(s / 3600);
  const minutes = Math.floor((s % 3600) / 60);
  return hours ? `${hours}:${pad(minutes)}:${pad(s % 60)}` : `${minutes}:${pad(s % 60)}`;
}

/** How long ago, in one unit: now, 42 s, 3 min, 5 h, 2 d. `now` and `time` are seconds since the epoch. */
export function formatAge(time: number | null | undefined, now: number = Date.now() / 1000): string {
  if (!time) return NONE;
  const s = Math.max(now - time, 0);
  if (s < 10) return 'now';
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86_400)} d`;
}

/** How long something has lasted in words: for a few seconds, for 3 min; `time` is when it began. */
export function formatLasting(time: number, now: number = Date.now() / 1000): string {
  const age = formatAge(time, now);
  return age === 'now' ? 'for a few seconds' : `for ${age}`;
}

/** How long ago in words: just now, 3 min ago. */
export function formatAgo(time: number | null | undefined, now: number = Date.now() / 1000): string {
  const age = formatAge(time, now);
  return age === NONE ? NONE : age === 'now' ? 'just now' : `${age} ago`;
}

/** A moment as date and time, to the second, in the zone that the user has chosen. */
export function formatTime(time: number | null | undefined, zone: Zone = zoneNow()): string {
  if (!time) return NONE;
  const d = new Date(time * 1000);
  if (!Number.isFinite(d.getTime())) return NONE;
  if (zone !== LOCAL) return inZone(time, zone);
  const pad = (n: number): string => String(n).padStart(2, '0');
  const day = `${d.getFullYear()}-${pad(d.getMonth() + 1)}-${pad(d.getDate())}`;
  return `${day} ${pad(d.getHours())}:${pad(d.getMinutes())}:${pad(d.getSeconds())}`;
}

export function formatBytes(count: number): string {
  let n = count;
  for (const unit of ['B', 'KiB', 'MiB']) {
    if (n < 1024) return unit === 'B' ? `${n} B` : `${n.toFixed(1)} ${unit}`;
    n /= 1024;
  }
  return `${n.toFixed(1)} GiB`;
}

export function formatPercent(fraction: number): string {
  return `${Math.floor(Math.min(Math.max(fraction, 0), 1) * 100)} %`;
}

/** `3 trials`, `1 trial`. */
export function plural(count: number, one: string, many = `${one}s`): string {
  return `${count} ${count === 1 ? one : many}`;
}

const UNITS: Readonly<Record<string, string>> = { batch: 'batches', epoch: 'epochs', iteration: 'iterations', record: 'records', round: 'rounds', sample: 'samples', step: 'steps' };

/** `12 epochs` where the time metric of a search is called `epoch`; other names, which may be anything, stay. */
export function unitsText(count: number, name: string | null): string {
  const unit = name || 'units';
  return `${count} ${nameText(count === 1 ? unit : Object.hasOwn(UNITS, unit) ? UNITS[unit]! : unit, 40)}`;
}

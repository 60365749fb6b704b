/** Layout of parallel coordinates: which axes there are, where a value lies on one, what brushes leave. */

import { significant, tickTexts } from '../common/format';
import { decades } from './axes';

export type Value = number | string | null;

/** `order`: the choices as the config lists them; `base`: of the powers that a log hyperparameter draws. */
export type Scale = { kind: 'linear' } | { kind: 'log'; base: number } | { kind: 'category'; order: readonly string[] };

/** One trial as the picture sees it. */
export interface Item {
  id: number;
  /** By axis name; what a trial lacks is null. */
  values: Record<string, Value>;
}

export interface Axis {
  name: string;
  kind: 'linear' | 'log' | 'category';
  /** Of a numeric axis. */
  low: number;
  high: number;
  /** Of a logarithmic axis: its labels stand at powers of it. */
  base: number;
  /** Whether all its values are whole numbers, and so its labels. */
  whole: boolean;
  /** Of a category axis, from the bottom up. */
  categories: string[];
}

/** Selected part of an axis, 0 (bottom) to 1 (top). */
export type Brush = readonly [number, number];

const MOST_CATEGORIES = 40;
/** Significant digits of a label, which has room for eight characters. */
const TICK_DIGITS = 3;
/** Logarithms of powers are not quite whole. */
const NEARLY = 1e-9;
/** A positive axis of which nothing is known is logarithmic if it spans more than this factor. */
const LOG_SPAN = 50;
const UNKNOWN: ReadonlyMap<string, Scale> = new Map();

/** Turn nested hyperparameters into `a.b` names with scalar values; lists become their JSON text. */
export function flatten(hparams: Record<string, unknown>, prefix = '', into: Record<string, Value> = {}): Record<string, Value> {
  for (const [key, value] of Object.entries(hparams)) {
    const name = prefix ? `${prefix}.${key}` : key;
    if (value !== null && typeof value === 'object' && !Array.isArray(value)) {
      flatten(value as Record<string, unknown>, name, into);
    } else if (typeof value === 'number' || typeof value === 'string' || value === null) {
      into[name] = value;
    } else {
      into[name] = typeof value === 'boolean' ? String(value) : JSON.stringify(value);
    }
  }
  return into;
}

/**
 * The axes of some items in the order of `names`; one whose values are all the same is left out (not of `keep`).
 * Those without a scale are chosen by their values.
 */
export function axesOf(
  items: readonly Item[], names: readonly string[], keep: readonly string[] = [], scales = UNKNOWN
): Axis[] {
  return names.flatMap(name => {
    const values = items.map(item => item.values[name] ?? null).filter(value => value !== null);
    const distinct = new Set(values.map(String));
    if (!values.length || (distinct.size < 2 && !keep.includes(name))) return [];
    return [axisOf(name, values, scales.get(name))];
  });
}

/** NaN and the infinities, also as the texts that they travel as: they have no place on an axis of numbers. */
function endless(value: number | string): boolean {
  return typeof value === 'number' ? !Number.isFinite(value) : /^(NaN|-?Infinity)$/.test(value);
}

function axisOf(name: string, values: (number | string)[], scale: Scale | undefined): Axis {
  const numbers = values.filter((value): value is number => typeof value === 'number' && Number.isFinite(value));
  const numeric = numbers.length > 0 && numbers.length === values.filter(value => !endless(value)).length;
  if (!numeric || scale?.kind === 'category') {
    const categories = ordered(new Set(values.map(String)), scale?.kind === 'category' ? scale.order : []);
    return { name, kind: 'category', low: 0, high: 1, base: 10, whole: false, categories };
  }
  let [low, high] = [Infinity, -Infinity];
  for (const value of numbers) {
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  const log = low > 0 && (scale ? scale.kind === 'log' : high / low > LOG_SPAN);
  const base = scale?.kind === 'log' ? scale.base : 10;
  return { name, kind: log ? 'log' : 'linear', low, high, base, whole: numbers.every(Number.isInteger), categories: [] };
}

/** Values as the config lists them, then the others by their names; what nobody has tried has no place. */
function ordered(seen: ReadonlySet<string>, order: readonly string[]): string[] {
  const listed = new Set(order.filter(text => seen.has(text)));
  const others = [...seen].filter(text => !listed.has(text)).sort((a, b) => (a < b ? -1 : 1));
  return [...listed, ...others].slice(0, MOST_CATEGORIES);
}

/** Where a value lies on an axis, 0 to 1 from the bottom, or null if it does not. */
export function place(axis: Axis, value: Value): number | null {
  if (value === null) return null;
  if (axis.kind === 'category') {
    const at = axis.categories.indexOf(String(value));
    if (at < 0) return null;
    return axis.categories.length === 1 ? 0.5 : at / (axis.categories.length - 1);
  }
  if (typeof value !== 'number' || !Number.isFinite(value)) return null;
  if (axis.high === axis.low) return 0.5;
  return axis.kind === 'log'
    ? decades(axis.low, value) / decades(axis.low, axis.high)
    : (value / 2 - axis.low / 2) / (axis.high / 2 - axis.low / 2 || 1); // a distance may be more than a number can be
}

/** The value at a place of a numeric axis: the inverse of `place`. */
export function valueAt(axis: Axis, at: number): number {
  return axis.kind === 'log' ? axis.low * 10 ** (at * decades(axis.low, axis.high)) : axis.low + at * (axis.high - axis.low);
}

/** Places of the labels of an axis, with their texts. */
export function ticks(axis: Axis, most = 6): { at: number; text: string }[] {
  if (axis.kind === 'category') {
    const stride = Math.ceil(axis.categories.length / 16);
    return axis.categories.flatMap((text, i) => (i % stride ? [] : [{ at: place(axis, text)!, text }]));
  }
  if (axis.high === axis.low) return [{ at: 0.5, text: significant(axis.low, false) }];
  const inner = (axis.kind === 'log' ? powers(axis, most) : round(axis, most))
    .filter(value => place(axis, value)! > 0.07 && place(axis, value)! < 0.93);
  const values = [axis.low, ...inner, axis.high];
  return tickTexts(values, false, TICK_DIGITS).map((text, i) => ({ at: place(axis, values[i]!)!, text }));
}

/** Powers of the axis's base (of ten, if that is no number people count in); between few of them their multiples. */
function powers(axis: Axis, most: number): number[] {
  const base = Number.isInteger(axis.base) && axis.base > 1 ? axis.base : 10;
  const exponent = (value: number): number => Math.log(value) / Math.log(base);
  const [from, to] = [Math.floor(exponent(axis.low) + NEARLY), Math.ceil(exponent(axis.high) - NEARLY)];
  const stride = Math.ceil((to - from) / (most + 1)) || 1;
  const multiples = to - from <= 2 && base === 10 ? [1, 2, 5] : [1];
  const values: number[] = [];
  for (let e = Math.ceil(from / stride) * stride; e <= to; e += stride) {
    values.push(...multiples.map(factor => Number((factor * base ** e).toPrecision(12))));
  }
  return values.filter(value => value >= axis.low && value <= axis.high);
}

function round(axis: Axis, most: number): number[] {
  const raw = (axis.high - axis.low) / most;
  const power = 10 ** Math.floor(Math.log10(raw));
  const found = [1, 2, 5, 10].map(factor => factor * power).find(candidate => candidate >= raw)!;
  const step = axis.whole ? Math.max(1, found) : found;
  const values: number[] = [];
  for (let i = Math.ceil(axis.low / step); i * step <= axis.high; i += 1) values.push(i * step);
  return values;
}

/** Whether an item lies within all brushes; one that lacks a brushed value does not. */
export function within(item: Item, axes: readonly Axis[], brushes: ReadonlyMap<string, Brush>): boolean {
  for (const axis of axes) {
    const brush = brushes.get(axis.name);
    if (!brush) continue;
    const at = place(axis, item.values[axis.name] ?? null);
    if (at === null || at < brush[0] - 1e-9 || at > brush[1] + 1e-9) return false;
  }
  return true;
}

/** A brush in words. */
export function brushText(axis: Axis, brush: Brush): string {
  if (axis.kind === 'category') {
    const inside = axis.categories.filter(name => {
      const at = place(axis, name)!;
      return at >= brush[0] && at <= brush[1];
    });
    return inside.join(', ') || 'nothing';
  }
  return `${significant(valueAt(axis, brush[0]), false)} to ${significant(valueAt(axis, brush[1]), false)}`;
}

/** A brush moved by `by` along its axis, kept within it. */
export function moved(brush: Brush, by: number): Brush {
  const size = brush[1] - brush[0];
  const low = Math.min(1 - size, Math.max(0, brush[0] + by));
  return [low, low + size];
}

/** Stops of the colour scale, worst to best; told apart also without colour vision, by lightness. */
const STOPS: readonly (readonly [number, number, number])[] = [
  [98, 86, 176], [58, 112, 156], [33, 145, 140], [94, 190, 98], [233, 196, 40]
];

/** Colour of a trial whose metric lies at `goodness`, 0 worst to 1 best; null is grey. */
export function colourOf(goodness: number | null): string {
  if (goodness === null) return 'rgb(154,165,177)';
  const at = Math.min(1, Math.max(0, goodness)) * (STOPS.length - 1);
  const low = STOPS[Math.floor(at)]!;
  const high = STOPS[Math.min(STOPS.length - 1, Math.floor(at) + 1)]!;
  const share = at - Math.floor(at);
  return `rgb(${low.map((c, i) => Math.round(c + share * (high[i]! - c))).join(',')})`;
}

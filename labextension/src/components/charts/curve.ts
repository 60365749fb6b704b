/** One trial's curve of one metric, and how reports fold into it. Mirrors detlab_magics/view/state.py. */

/** Points of one curve, oldest step first. A value that is not finite is NaN. */
export interface Curve {
  trial: number;
  steps: number[];
  values: number[];
  /** Seconds since the epoch, one for each point; NaN where it is not known. */
  times: number[];
  /** The run that reported last; null where a snapshot gave the points, which does not say. */
  run: number | null;
  /** Indices of points before which a gap is drawn: a later run of the trial resumed there. */
  gaps: number[];
  /** Infinite values by their steps: there `values` has NaN, since they have no place in a chart. */
  infinite: Map<number, number>;
  /** Grows when points that were there have changed; appending alone leaves it as it is. */
  version: number;
}

/** A scalar in JSON: non-finite floats are encoded as their names. */
export type WireNumber = number | string | null;

const NAMES: Record<string, number> = { NaN: NaN, Infinity: Infinity, '-Infinity': -Infinity };

/** The number of a JSON scalar, or undefined if it is not a number. */
export function decodeNumber(value: unknown): number | undefined {
  if (typeof value === 'number') return value;
  if (typeof value === 'boolean') return value ? 1 : 0;
  return typeof value === 'string' ? NAMES[value] : undefined;
}

/** A number that can be drawn, else NaN. */
export function finite(value: unknown): number {
  const number = decodeNumber(value);
  return number !== undefined && Number.isFinite(number) ? number : NaN;
}

export function emptyCurve(trial: number): Curve {
  return { trial, steps: [], values: [], times: [], run: null, gaps: [], infinite: new Map(), version: 0 };
}

/** A curve from a series of the snapshot. */
export function curveOf(
  trial: number, steps: readonly number[], values: readonly WireNumber[], times: readonly number[] = []
): Curve {
  const curve = {
    ...emptyCurve(trial),
    steps: [...steps],
    values: values.map(finite),
    times: steps.map((_, i) => times[i] ?? NaN)
  };
  steps.forEach((step, i) => noteInfinite(curve, step, values[i]));
  return curve;
}

/** Remember a value of a step if it is infinite. */
export function noteInfinite(curve: Curve, step: number, value: unknown): void {
  const number = decodeNumber(value);
  if (number === Infinity || number === -Infinity) curve.infinite.set(step, number);
  else curve.infinite.delete(step);
}

/** The value that was reported at a position: NaN only where that was reported. */
export function reportedAt(curve: Curve, at: number): number {
  const value = curve.values[at]!;
  return Number.isNaN(value) ? curve.infinite.get(curve.steps[at]!) ?? value : value;
}

/**
 * Add one report; true if something changed. A later run replaces the points of an earlier one from its first step
 * on; points of an older run are ignored.
 */
export function addPoint(curve: Curve, step: number, value: number, time: number, run: number): boolean {
  if (curve.run !== null && run < curve.run) return false;
  const last = curve.steps.length ? curve.steps[curve.steps.length - 1]! : -Infinity;
  const later = curve.run !== null && run > curve.run;
  if (later || (curve.run === null && step < last)) forgetFrom(curve, step);
  curve.run = run;
  const end = curve.steps.length - 1;
  if (end >= 0 && step <= curve.steps[end]!) {
    if (step < curve.steps[end]!) return false;
    if (Object.is(curve.values[end], value)) return false;
    curve.values[end] = value;
    curve.version += 1;
    return true;
  }
  curve.steps.push(step);
  curve.values.push(value);
  curve.times.push(time);
  return true;
}

/** Replace all points from position `from` on. */
export function replaceFrom(curve: Curve, from: number, steps: readonly number[], values: readonly WireNumber[]): void {
  if (from < curve.steps.length) curve.version += 1;
  curve.steps.length = curve.values.length = curve.times.length = from;
  steps.forEach((step, i) => {
    curve.steps.push(step);
    curve.values.push(finite(values[i]));
    curve.times.push(NaN);
  });
}

function forgetFrom(curve: Curve, step: number): void {
  let keep = curve.steps.length;
  while (keep > 0 && curve.steps[keep - 1]! >= step) keep -= 1;
  if (keep === curve.steps.length) return; // it goes on where it was, as after a pause: nothing is missing
  curve.version += 1;
  curve.steps.length = curve.values.length = curve.times.length = keep;
  curve.gaps = curve.gaps.filter(at => at < keep);
  if (keep) curve.gaps.push(keep);
}

/** Thin a curve that has grown over twice `limit`: the ends and each bucket's extremes stay exact. */
export function thin(curve: Curve, limit: number): void {
  const count = curve.steps.length;
  if (count <= 2 * limit) return;
  const keep = new Set([0, count - 1]);
  for (const at of curve.gaps) keep.add(at).add(at - 1);
  const buckets = Math.max(Math.floor((limit - 2) / 2), 1);
  for (let b = 0; b < buckets; b += 1) {
    const from = 1 + Math.floor((b * (count - 2)) / buckets);
    const to = 1 + Math.floor(((b + 1) * (count - 2)) / buckets);
    extremes(curve.values, from, to).forEach(i => keep.add(i));
  }
  const order = [...keep].sort((a, b) => a - b);
  const moved = new Map(order.map((from, to) => [from, to]));
  curve.gaps = curve.gaps.map(at => moved.get(at)!);
  curve.steps = order.map(i => curve.steps[i]!);
  curve.values = order.map(i => curve.values[i]!);
  curve.times = order.map(i => curve.times[i]!);
  curve.version += 1;
}

function extremes(values: number[], from: number, to: number): number[] {
  let low = -1;
  let high = -1;
  for (let i = from; i < to; i += 1) {
    const value = values[i]!;
    if (Number.isNaN(value)) continue;
    if (low < 0 || value < values[low]!) low = i;
    if (high < 0 || value > values[high]!) high = i;
  }
  return low < 0 ? (from < to ? [from] : []) : [low, high];
}

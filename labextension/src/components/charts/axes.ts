/** What a chart's axes show: ranges that hold still while data grows, smoothing, the best so far. */

import { formatTime } from '../common/format';

/** `time`: since the start of each; `wall`: the time of day. */
export type XAxis = 'steps' | 'epochs' | 'time' | 'wall';
export type Range = readonly [number, number];

/** What is drawn of the curves, and how. */
export interface PlotOptions {
  x: XAxis;
  log: boolean;
  /** A logarithmic x axis; omits what is not positive. */
  logX?: boolean;
  /** Weight of the past in the moving average, 0..0.99; 0 draws the raw curves alone. */
  smoothing: number;
  /** Draw the best value of all trials so far as a line of its own. */
  best: boolean;
  /** Leave out a few hopeless values that would flatten the rest. */
  focus: boolean;
}

/** One drawable line: x ascending; NaN breaks it. */
export interface Line {
  xs: number[];
  ys: number[];
}

/** Exponential moving average with `weight` on the past, corrected for its start; NaN stays NaN. */
export function smooth(values: readonly number[], weight: number): number[] {
  let mean = 0;
  let mass = 0;
  return values.map(value => {
    if (Number.isNaN(value)) return NaN;
    mean = weight * mean + (1 - weight) * value;
    mass = weight * mass + (1 - weight);
    return mean / mass;
  });
}

/** The best value of all curves up to each x: the search's own curve, as a staircase. */
export function incumbent(lines: readonly Line[], smallerIsBetter: boolean): Line {
  const points: [number, number][] = [];
  for (const line of lines) {
    line.xs.forEach((x, i) => {
      if (Number.isFinite(line.ys[i]!) && Number.isFinite(x)) points.push([x, line.ys[i]!]);
    });
  }
  points.sort((a, b) => a[0] - b[0]);
  const stairs: Line = { xs: [], ys: [] };
  let best = NaN;
  for (const [x, y] of points) {
    if (!(Number.isNaN(best) || (smallerIsBetter ? y < best : y > best))) continue;
    if (!Number.isNaN(best)) add(stairs, x, best);
    add(stairs, x, y);
    best = y;
  }
  const last = points[points.length - 1];
  if (last && stairs.xs.length && last[0] > stairs.xs[stairs.xs.length - 1]!) add(stairs, last[0], best);
  return stairs;
}

function add(line: Line, x: number, y: number): void {
  line.xs.push(x);
  line.ys.push(y);
}

/** Smallest and largest finite value of some lists, or null if there is none. `positive` skips values <= 0. */
export function extent(lists: Iterable<readonly number[]>, positive = false): Range | null {
  let low = Infinity;
  let high = -Infinity;
  for (const list of lists) {
    for (let i = 0; i < list.length; i += 1) {
      const value = list[i]!;
      if (!Number.isFinite(value) || (positive && value <= 0)) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  return low <= high ? [low, high] : null;
}

const SAMPLE = 4000;

/** The extent without the worst twentieth, if that would flatten the rest (more than four times the span). */
export function focused(lists: readonly (readonly number[])[], smallerIsBetter: boolean): Range | null {
  const whole = extent(lists);
  if (!whole) return null;
  const total = lists.reduce((sum, list) => sum + list.length, 0);
  const stride = Math.max(1, Math.floor(total / SAMPLE));
  const sample: number[] = [];
  let seen = 0;
  for (const list of lists) {
    for (const value of list) if (Number.isFinite(value) && seen++ % stride === 0) sample.push(value);
  }
  const sorted = Float64Array.from(sample).sort();
  const cut = Math.floor(sorted.length * 0.05);
  const core: Range = smallerIsBetter
    ? [whole[0], sorted[sorted.length - 1 - cut]!]
    : [sorted[cut]!, whole[1]];
  const span = core[1] - core[0];
  return cut > 0 && span > 0 && whole[1] - whole[0] > 4 * span ? core : whole;
}

/** Room around data, so that no line runs along the frame. On a logarithmic axis it is a factor. */
export function padded(range: Range, log: boolean, share = 0.06): Range {
  const [low, high] = range;
  if (log) {
    const factor = Math.max(10 ** (share * decades(low, high)), 1.05);
    return [Math.max(low / factor, Number.MIN_VALUE), Math.min(high * factor, Number.MAX_VALUE)];
  }
  const pad = high * share - low * share || Math.abs(high) * 0.1 || 1;
  return [Math.max(low - pad, -Number.MAX_VALUE), Math.min(high + pad, Number.MAX_VALUE)];
}

/**
 * The range to show for data of `want`: the one that is shown while it holds the data and the data fills over half
 * of it, so that a growing curve does not move the axes with each point; else a new one with `room` beyond the end.
 */
export function steady(shown: Range | null, want: Range, room: number): Range {
  const [low, high] = want;
  if (shown && shown[0] <= low && shown[1] >= high && high - low > 0.5 * (shown[1] - shown[0])) return shown;
  return [low, high + (high - low || 1) * room];
}

/** Round values within a range, at most `most` of them: of any size, and however close together. */
export function linearTicks(low: number, high: number, most: number): number[] {
  const raw = (high - low) / Math.max(1, most);
  if (!(raw > 0) || !Number.isFinite(raw)) return [low];
  const magnitude = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map(factor => factor * magnitude).find(one => one >= raw * (1 - 1e-9)) ?? raw;
  const first = Math.ceil(low / step - 1e-9);
  const count = Math.floor(high / step + 1e-9) - first + 1;
  if (!(step > 0) || !Number.isFinite(first) || count < 1) return [low];
  return Array.from({ length: Math.min(count, most + 1) }, (_, i) => {
    const value = (first + i) * step;
    const clean = Number(value.toPrecision(15)); // 0.3, not 0.30000000000000004
    return Math.abs(clean - value) < step / 100 ? clean : value;
  });
}

/** Powers of ten between two positive numbers; their quotient may be more than a number can be. */
export function decades(low: number, high: number): number {
  return Math.log10(high) - Math.log10(low);
}

/** Of an axis over so many powers of ten only these have ticks, and not each one of very many. */
const MANY_DECADES = 3;
const STRIDES = [1, 2, 5, 10, 20, 50, 100, 200, 500];
const DIGITS = [[1], [1, 2, 5], [1, 2, 3, 5], [1, 2, 3, 4, 5, 6, 7, 8, 9]];

/**
 * Round values within a range of a logarithmic axis: powers of ten, and where these are fewer than three also 2, 3 and 5
 * times these, or values at equal distances.
 */
export function logTicks(low: number, high: number, most: number): number[] {
  if (!(low > 0 && high > low)) return [low];
  const [first, last] = [Math.floor(Math.log10(low)), Math.floor(Math.log10(high))];
  const within = (digits: readonly number[], stride = 1): number[] => {
    const from = Math.ceil(first / stride) * stride;
    const powers = Array.from({ length: Math.floor((last - from) / stride) + 1 }, (_, i) => from + i * stride);
    const ticks = powers.flatMap(power => digits.map(digit => Number(`${digit}e${power}`)));
    return [...new Set(ticks)].filter(tick => tick >= low && tick <= high); // the smallest numbers are few
  };
  if (last - first >= MANY_DECADES) return within([1], STRIDES.find(stride => stride * Math.max(2, most) > last - first));
  return DIGITS.map(digits => within(digits)).find(found => found.length >= 3) ?? linearTicks(low, high, most);
}

/** The x of a point as text. */
export function xLabel(x: number, axis: XAxis): string {
  switch (axis) {
    case 'steps': return `step ${Math.round(x)}`;
    case 'epochs': return `epoch ${Number(x.toPrecision(4))}`;
    case 'time': return clock(x);
    case 'wall': return formatTime(x);
  }
}

/** What stands below the axis. */
export const X_TITLES: Record<XAxis, string> = { steps: 'steps', epochs: 'epochs', time: 'time since the start', wall: 'time' };

/** Labels of the ticks of a time of day: with the day where it changes. */
export function wallTexts(times: readonly (number | null)[]): string[] {
  let day = '';
  return times.map(time => {
    if (time === null) return '';
    const [date = '', hour = ''] = formatTime(time).split(' ');
    const text = date === day ? hour.slice(0, 5) : `${date.slice(5)} ${hour.slice(0, 5)}`;
    day = date;
    return text;
  });
}

/** Seconds as m:ss or h:mm:ss. */
export function clock(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  const tail = String(whole % 60).padStart(2, '0');
  const minutes = Math.floor(whole / 60);
  return minutes < 60 ? `${minutes}:${tail}` : `${Math.floor(minutes / 60)}:${String(minutes % 60).padStart(2, '0')}:${tail}`;
}

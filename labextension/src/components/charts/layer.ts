/** Polylines on a canvas of their own: all of them once, then only the segments that are new. */

import { Line, Range } from './axes';
import type { Pen } from './svg';

export interface Style {
  stroke: string;
  width: number;
  alpha: number;
  /** Draw a dot at points that have no neighbour (and at all of a short curve). */
  dots?: boolean;
}

export interface Drawable extends Line {
  /** Stays the same while the line only grows at its end. */
  key: string;
  style: Style;
  /** Indices before which no segment is drawn. */
  gaps: readonly number[];
  /** Filled around the line, such as a standard deviation; the line does not grow then. */
  band?: Band;
}

/** Lower and upper values at each x. */
export interface Band {
  low: readonly number[];
  high: readonly number[];
}

/** Where values lie on the canvas, in device pixels. */
export interface Frame {
  width: number;
  height: number;
  x: Range;
  y: Range;
  log: boolean;
  logX?: boolean;
  ratio: number;
}

/** Functions from values to device pixels. */
export function projection(frame: Frame): { x: (value: number) => number; y: (value: number) => number } {
  const f = frame.log ? Math.log10 : same;
  const g = frame.logX ? Math.log10 : same;
  const across = placer(g(frame.x[0]), g(frame.x[1]), frame.width);
  const up = placer(f(frame.y[0]), f(frame.y[1]), frame.height);
  return {
    x: value => (frame.logX && value <= 0 ? NaN : across(g(value))),
    y: value => (frame.log && value <= 0 ? NaN : frame.height - up(f(value)))
  };
}

/** The place of a value in a range, in pixels. Pixels per unit are no number where the range is one of the smallest, or of the largest. */
function placer(low: number, high: number, size: number): (value: number) => number {
  const factor = size / (high - low || 1);
  if (Number.isFinite(factor) && factor > 0) return value => (value - low) * factor;
  if (Number.isFinite(high - low)) return value => ((value - low) / (high - low)) * size;
  return value => ((value / 2 - low / 2) / (high / 2 - low / 2)) * size;
}

const same = (value: number): number => value;

function sameFrame(a: Frame | null, b: Frame): boolean {
  return (
    !!a && a.width === b.width && a.height === b.height && a.log === b.log && a.logX === b.logX && a.ratio === b.ratio &&
    a.x[0] === b.x[0] && a.x[1] === b.x[1] && a.y[0] === b.y[0] && a.y[1] === b.y[1]
  );
}

/** Draws lists of lines; a list that only grew since the last call costs only what is new. */
export class CurveLayer {
  private frame: Frame | null = null;
  private order = '';
  private drawn = new Map<string, number>();
  /** How many times everything was drawn; for tests and the bench. */
  fullDraws = 0;

  constructor(readonly canvas: HTMLCanvasElement) {}

  draw(lines: readonly Drawable[], frame: Frame): void {
    const order = lines.map(line => `${line.key} ${line.style.stroke} ${line.style.alpha} ${line.style.width}`).join('|');
    const grown = sameFrame(this.frame, frame) && order === this.order
      && lines.every(line => line.xs.length >= (this.drawn.get(line.key) ?? 0));
    const context = this.canvas.getContext('2d');
    if (!context) return;
    if (!grown) {
      this.fullDraws += 1;
      this.canvas.width = frame.width;
      this.canvas.height = frame.height;
      this.drawn.clear();
    }
    const at = projection(frame);
    context.lineJoin = 'bevel';
    if (!grown) for (const line of lines) if (line.band) fill(context, line, line.band, at);
    for (const line of lines) {
      const done = this.drawn.get(line.key) ?? 0;
      if (done < line.xs.length) stroke(context, line, Math.max(0, done - 1), at, frame.ratio);
      this.drawn.set(line.key, line.xs.length);
    }
    this.frame = frame;
    this.order = order;
  }

  clear(): void {
    this.canvas.width = Math.max(1, this.canvas.width);
    this.frame = null;
    this.drawn.clear();
  }
}

/** Draw all lines once. */
export function drawLines(pen: Pen, lines: readonly Drawable[], frame: Frame): void {
  const at = projection(frame);
  pen.lineJoin = 'bevel';
  for (const line of lines) if (line.band) fill(pen, line, line.band, at);
  for (const line of lines) stroke(pen, line, 0, at, frame.ratio);
}

/** Opacity of what is filled around a line. */
const BAND = 0.15;

function fill(context: Pen, line: Drawable, band: Band, at: ReturnType<typeof projection>): void {
  context.fillStyle = line.style.stroke;
  context.globalAlpha = BAND * line.style.alpha;
  context.beginPath();
  let open = false;
  const places = line.xs.map((_, i) => i);
  for (const [values, order] of [[band.high, places], [band.low, [...places].reverse()]] as const) {
    for (const i of order) {
      const [x, y] = [at.x(line.xs[i]!), at.y(values[i]!)];
      if (Number.isNaN(x) || Number.isNaN(y)) continue;
      if (open) context.lineTo(x, y);
      else context.moveTo(x, y);
      open = true;
    }
  }
  context.fill();
}

/** A curve of at most so many points shows each of them. */
const DOTTED = 12;

function stroke(
  context: Pen, line: Drawable, from: number,
  at: ReturnType<typeof projection>, ratio: number
): void {
  const { xs, ys, style } = line;
  const gaps = line.gaps.length ? new Set(line.gaps) : null;
  context.strokeStyle = context.fillStyle = style.stroke;
  context.globalAlpha = style.alpha;
  context.lineWidth = style.width * ratio;
  context.beginPath();
  let open = false;
  const dots: [number, number][] = [];
  const placed = (i: number): boolean => !Number.isNaN(at.y(ys[i]!)) && !Number.isNaN(at.x(xs[i]!));
  const joined = (i: number): boolean => i > 0 && i < xs.length && !gaps?.has(i) && placed(i - 1) && placed(i);
  for (let i = from; i < xs.length; i += 1) {
    const x = at.x(xs[i]!);
    const y = at.y(ys[i]!);
    if (Number.isNaN(y) || Number.isNaN(x)) {
      open = false;
      continue;
    }
    if (open && !gaps?.has(i)) context.lineTo(x, y);
    else context.moveTo(x, y);
    if (style.dots && (xs.length <= DOTTED || !(joined(i) || joined(i + 1)))) dots.push([x, y]);
    open = true;
  }
  context.stroke();
  for (const [x, y] of dots) {
    context.beginPath();
    context.arc(x, y, 2 * ratio, 0, 2 * Math.PI);
    context.fill();
  }
}

/** The point of a line nearest to a place on the canvas, with its distance in device pixels. */
export interface Near {
  line: number;
  point: number;
  distance: number;
}

/** Find the line whose drawn course passes nearest to (px, py), or null if none does within `reach` pixels. */
export function nearest(lines: readonly Drawable[], frame: Frame, px: number, py: number, reach: number): Near | null {
  const at = projection(frame);
  const share = px / (frame.width || 1);
  const [x0, x1] = frame.x;
  const wanted = frame.logX ? x0 * (x1 / x0) ** share : x0 + share * (x1 - x0);
  let found: Near | null = null;
  lines.forEach((line, index) => {
    const i = lowerBound(line.xs, wanted);
    for (const point of [i - 1, i]) {
      const distance = distanceTo(line, point, at, px, py);
      if (distance <= reach && (!found || distance < found.distance)) found = { line: index, point, distance };
    }
    const between = segmentDistance(line, i, at, px, py);
    const closer = i > 0 && Math.abs(at.x(line.xs[i - 1]!) - px) < Math.abs(at.x(line.xs[i] ?? Infinity) - px) ? i - 1 : i;
    if (between <= reach && (!found || between < found.distance)) found = { line: index, point: closer, distance: between };
  });
  return found;
}

function distanceTo(line: Line, i: number, at: ReturnType<typeof projection>, px: number, py: number): number {
  if (i < 0 || i >= line.xs.length) return Infinity;
  const distance = Math.hypot(at.x(line.xs[i]!) - px, at.y(line.ys[i]!) - py);
  return Number.isNaN(distance) ? Infinity : distance;
}

function segmentDistance(line: Line, i: number, at: ReturnType<typeof projection>, px: number, py: number): number {
  if (i <= 0 || i >= line.xs.length) return Infinity;
  const [x0, y0, x1, y1] = [at.x(line.xs[i - 1]!), at.y(line.ys[i - 1]!), at.x(line.xs[i]!), at.y(line.ys[i]!)];
  const length = (x1 - x0) ** 2 + (y1 - y0) ** 2;
  const share = length ? Math.min(1, Math.max(0, ((px - x0) * (x1 - x0) + (py - y0) * (y1 - y0)) / length)) : 0;
  const distance = Math.hypot(x0 + share * (x1 - x0) - px, y0 + share * (y1 - y0) - py);
  return Number.isNaN(distance) ? Infinity : distance;
}

/** Index of the first element that is not less than `value`, in an ascending list. */
export function lowerBound(list: readonly number[], value: number): number {
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle]! < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Learning curves on a canvas: one line per trial, the best on top, stopped ones grey. */

import uPlot from 'uplot';

import { Curve, View } from './model';

export const COLORS = ['#4c78a8', '#54a24b', '#b279a2', '#2a9d8f', '#9d755d', '#c9a227', '#6a5acd', '#d16ba5'];
export const BEST = '#e8590c';
export const GREY = '#9aa5b1';
const HEIGHT = 300;

export interface ChartOptions {
  log: boolean;
  smooth: boolean;
}

type Column = (number | null | undefined)[];

export class Chart {
  private plot: uPlot | null = null;
  private shape = '';
  private ids: number[] = [];

  constructor(
    private host: HTMLElement,
    private onHover: (trial: number | null, step: number | null, value: number | null) => void
  ) {}

  /** Draw the view; the plot is built anew only when its set of lines, its scale or its colours changed. */
  draw(view: View, options: ChartOptions): void {
    const best = view.experiment?.best?.trial ?? null;
    const ids = [...view.curves.keys()].filter(id => view.trials.has(id));
    ids.sort((a, b) => rank(view, a, best) - rank(view, b, best) || a - b);
    const curves = ids.map(id => view.curves.get(id)!);
    // Smoothed curves lie over the raw ones, which stay visible below them.
    const smooth = options.smooth ? curves.map(c => ({ ...c, values: smoothed(c.values) })) : [];
    const data = align([...curves, ...smooth].map(c => (options.log ? positive(c) : c)));
    const ink = cssColor(this.host, '--jp-ui-font-color2', '#7b8794');
    const rule = cssColor(this.host, '--jp-border-color2', 'rgba(123,135,148,.3)');
    const shape = JSON.stringify([ids.map(id => [id, view.trials.get(id)!.grey]), best, options, ink, rule]);
    if (this.plot && shape === this.shape) {
      this.plot.setData(data as uPlot.AlignedData);
      return;
    }
    this.plot?.destroy();
    this.shape = shape;
    this.ids = options.smooth ? [...ids, ...ids] : ids;
    this.plot = new uPlot(this.options(view, ids, best, options, ink, rule), data as uPlot.AlignedData, this.host);
  }

  resize(): void {
    const width = this.host.clientWidth;
    if (this.plot && width > 0 && width !== this.plot.width) {
      this.plot.setSize({ width, height: HEIGHT });
    }
  }

  destroy(): void {
    this.plot?.destroy();
    this.plot = null;
  }

  private options(
    view: View, ids: number[], best: number | null, options: ChartOptions, ink: string, rule: string
  ): uPlot.Options {
    const axis = { stroke: ink, font: '11px system-ui, sans-serif', grid: { stroke: rule, width: 1 }, ticks: { stroke: rule } };
    return {
      width: Math.max(this.host.clientWidth, 120),
      height: HEIGHT,
      legend: { show: false },
      cursor: {
        focus: { prox: 24 },
        hover: { prox: 24, skip: [undefined, null] },
        points: { one: true, size: 7 },
        drag: { x: true, y: false }
      },
      focus: { alpha: 0.25 },
      scales: { x: { time: false }, y: options.log ? { distr: 3 } : { range: () => focused(view) } },
      axes: [
        { ...axis, label: 'steps', labelFont: '11px system-ui, sans-serif', labelSize: 18, size: 32 },
        { ...axis, size: 58, values: (_u, splits) => splits.map(tick) }
      ],
      series: [
        {},
        ...ids.map(id => line(id, view.trials.get(id)!, id === best, options.smooth)),
        ...(options.smooth ? ids.map(id => line(id, view.trials.get(id)!, id === best, false)) : [])
      ],
      hooks: {
        setSeries: [(u, i) => this.hover(u, i)],
        setCursor: [u => { if (u.cursor.left !== undefined && u.cursor.left < 0) this.onHover(null, null, null); }]
      }
    };
  }

  private hover(u: uPlot, series: number | null): void {
    const at = series ? u.cursor.idxs?.[series] : undefined;
    const id = series ? this.ids[series - 1] : undefined;
    if (!series || id === undefined || at === null || at === undefined) {
      this.onHover(null, null, null);
      return;
    }
    const value = (u.data[series] as Column)[at];
    this.onHover(id, u.data[0][at] ?? null, typeof value === 'number' ? value : null);
  }
}

function line(id: number, trial: { index: number; grey: boolean }, best: boolean, below: boolean): uPlot.Series {
  const stroke = best ? BEST : trial.grey ? GREY : COLORS[trial.index % COLORS.length]!;
  const label = `trial ${id}`;
  if (below) return { label, stroke, width: 1, alpha: 0.22, points: { show: false } };
  const alpha = trial.grey && !best ? 0.55 : 1;
  return { label, stroke, width: best ? 2.6 : 1.4, alpha, points: { size: 4, width: 1, stroke, fill: stroke } };
}

/** Paint order: grey first, then running, the best last. */
function rank(view: View, id: number, best: number | null): number {
  const trial = view.trials.get(id)!;
  return id === best ? 3 : trial.running ? 2 : trial.grey ? 0 : 1;
}

/** The metric axis: all values, or without a few hopeless ones that would flatten the rest (as in view/axis.py). */
function focused(view: View): [number, number] {
  const values = [...view.curves.values()].flatMap(c => c.values.filter(v => v !== null)).sort((a, b) => a - b);
  if (!values.length) return [0, 1];
  let low = values[0]!;
  let high = values[values.length - 1]!;
  const cut = Math.floor(values.length * 0.05);
  const core = view.experiment?.smallerIsBetter
    ? [low, values[values.length - 1 - cut]!] as const
    : [values[cut]!, high] as const;
  const span = core[1] - core[0];
  if (cut && span > 0 && high - low > 4 * span) [low, high] = core;
  const pad = (high - low) * 0.08 || Math.abs(high) * 0.1 || 1;
  return [low - pad, high + pad];
}

/** How many values the focused axis leaves out. */
export function countOutside(view: View): number {
  const [low, high] = focused(view);
  const curves = [...view.curves.values()];
  return curves.reduce((n, c) => n + c.values.filter(v => v !== null && (v < low || v > high)).length, 0);
}

/** What a logarithmic axis can show of a curve. */
function positive(curve: Curve): Curve {
  return { ...curve, values: curve.values.map(v => (v !== null && v > 0 ? v : null)) };
}

/** Exponential moving average, weight 0.6 on the past, corrected for its start. */
function smoothed(values: (number | null)[]): (number | null)[] {
  let mean = 0;
  let weight = 0;
  return values.map(v => {
    if (v === null) return null;
    mean = 0.6 * mean + 0.4 * v;
    weight = 0.6 * weight + 0.4;
    return mean / weight;
  });
}

/** Align curves on the union of their steps: undefined = no point there, null = a gap to be drawn. */
function align(curves: Curve[]): (number[] | Column)[] {
  const xs = new Set<number>();
  for (const c of curves) {
    c.steps.forEach(s => xs.add(s));
    c.gaps.forEach(g => xs.add(g + 0.5));
  }
  const x = [...xs].sort((a, b) => a - b);
  const at = new Map(x.map((s, i) => [s, i]));
  const columns = curves.map(c => {
    const column: Column = new Array(x.length).fill(undefined);
    c.steps.forEach((s, i) => { column[at.get(s)!] = c.values[i] ?? null; });
    c.gaps.forEach(g => { column[at.get(g + 0.5)!] ??= null; });
    return column;
  });
  return x.length ? [x, ...columns] : [[0, 1], ...curves.map(() => [null, null])];
}

export function tick(value: number | null): string {
  return value === null ? '' : Math.abs(value) >= 1e5 || (value !== 0 && Math.abs(value) < 1e-3) ? value.toExponential(1) : String(Number(value.toPrecision(6)));
}

export function cssColor(el: HTMLElement, name: string, fallback: string): string {
  return getComputedStyle(el).getPropertyValue(name).trim() || fallback;
}

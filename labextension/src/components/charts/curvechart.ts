/**
 * Learning curves: uPlot draws the axes and answers the mouse, a layer of our own draws the lines.
 *
 * Each trial keeps its own x values (times differ between trials, and aligning them would make a table of all times by
 * all trials), and a report that comes in costs one segment, not one hundred curves.
 */

import uPlot from 'uplot';

import { tickTexts } from '../common/format';
import { PlotOptions, Range, X_TITLES, clock, decades, extent, focused, incumbent, linearTicks, logTicks, padded, steady, wallTexts } from './axes';
import { COLORS, cssColor } from './colours';
import { Curve } from './curve';
import { Band, CurveLayer, Drawable, Frame, Style, drawLines, nearest } from './layer';
import { legendElements, LegendItem, lineElement, PAPER, Picture, pictureOf, short, SvgPen, textElement } from './svg';

/** One trial's curve and how it is told apart. */
export interface Entry {
  curve: Curve;
  index: number;
  /** Stopped early, canceled or failed. */
  grey: boolean;
  /** Failed, which has a colour of its own. */
  failed?: boolean;
  best: boolean;
  /** A colour of its own, where there are few; `grey` and `best` then show in the line alone. */
  colour?: string;
  /** Filled around the curve, which does not grow then. */
  band?: Band;
}

export interface ChartData {
  entries: readonly Entry[];
  options: PlotOptions;
  /** Seconds since the epoch at which the time axis begins. */
  origin: number;
  smallerIsBetter: boolean;
  /** More will come: room is left at the right. */
  live: boolean;
  /** Dotted vertical lines at these x values, such as where another attempt took over. */
  marks?: readonly number[];
}

interface Ticks {
  at: readonly (number | null)[];
  texts: readonly string[];
}

export interface Hover {
  trial: number;
  x: number;
  y: number;
}

const ROOM = 0.12;
/** Distances of labels on the axis of steps, of which there is no half. */
const WHOLE = Array.from({ length: 15 }, (_, power) => [1, 2, 5].map(factor => factor * 10 ** power)).flat();
const REACH = 26;
/** Pixels of the y axis: at least, so that charts beside each other begin alike, and for ticks and gaps beside its labels. */
const LEAST_AXIS = 58;
const BESIDE_LABELS = 18;
/** Fewer pixels than this dragged in a direction do not zoom in it. */
const DRAGGED = 24;
/** With more points than this, ordinary lines are hairlines: ten times as quick without a GPU, and clearer when dense. */
const MANY_POINTS = 12_000;

export class CurveChart {
  private plot: uPlot | null = null;
  private shape = '';
  private lines: Drawable[] = [];
  private traces = new Map<number, Trace>();
  private shownX: Range | null = null;
  private shownY: Range | null = null;
  private zoom: { x: Range; y: Range } | null = null;
  private base: CurveLayer;
  private top: CurveLayer;
  private data: ChartData | null = null;
  private lit: number | null = null;
  /** Where the axes have labels, and which. */
  private ticks: Record<'x' | 'y', Ticks> = { x: { at: [], texts: [] }, y: { at: [], texts: [] } };
  private cut: { total: number; curves: number; range: Range; whole: boolean } | null = null;

  constructor(
    private host: HTMLElement,
    private onHover: (hover: Hover | null) => void,
    private onPick: (trial: number) => void
  ) {
    this.base = new CurveLayer(layerCanvas());
    this.top = new CurveLayer(layerCanvas());
  }

  /** Draw the data. What only grew since the last call costs only what is new. */
  update(data: ChartData): void {
    const axis = data.options.x;
    const old = this.data?.options;
    if (old && (old.x !== axis || old.log !== data.options.log || old.logX !== data.options.logX)) {
      // Ranges of another axis mean nothing on this one; a logarithmic axis that begins at zero would never end.
      this.zoom = this.shownX = this.shownY = this.cut = null;
    }
    this.data = data;
    this.lines = this.linesOf(data);
    const wanted = this.ranges(data);
    const [x, y] = this.zoom ? [this.zoom.x, this.zoom.y] : [wanted.x, wanted.y];
    // A browser may refuse a canvas (too many, or none at all): the table still tells everything.
    if (!this.base.canvas.getContext('2d')) return;
    this.ensurePlot(data, x, y);
    this.setRanges(x, y);
    this.paint();
  }

  /** Make one trial stand out, or none. */
  highlight(trial: number | null): void {
    if (trial === this.lit) return;
    this.lit = trial;
    this.paintTop();
  }

  /** Colours of the page changed. */
  retheme(): void {
    this.shape = '';
    this.base.clear();
    if (this.data) this.update(this.data);
    // While JupyterLab changes its theme, the page has no layout: what was measured then may be wrong.
    window.requestAnimationFrame(() => this.resize());
  }

  resize(): void {
    const width = this.host.clientWidth;
    const height = this.host.clientHeight;
    if (!this.plot || width < 40 || (width === this.plot.width && height === this.plot.height)) return;
    this.plot.setSize({ width, height });
    this.paint();
  }

  resetZoom(): void {
    if (!this.zoom) return;
    this.zoom = null;
    if (this.data) this.update(this.data);
  }

  get zoomed(): boolean {
    return this.zoom !== null;
  }

  /** How many values the focused axis leaves out. */
  get outliers(): number {
    const data = this.data;
    if (!data || !this.cut || this.cut.whole || data.options.log || !data.options.focus || this.zoom) return 0;
    const [low, high] = this.cut.range;
    let count = 0;
    for (const { curve } of data.entries) {
      for (const value of curve.values) if (data.smallerIsBetter ? value > high : value < low) count += 1;
    }
    return count;
  }

  get fullDraws(): number {
    return this.base.fullDraws;
  }

  destroy(): void {
    this.plot?.destroy();
    this.plot = null;
  }

  private linesOf(data: ChartData): Drawable[] {
    const smoothing = data.options.smoothing;
    const points = data.entries.reduce((sum, entry) => sum + entry.curve.values.length, 0);
    const colours = coloursOf(this.host);
    const styles = data.entries.map(entry => styleOf(entry, colours, points > MANY_POINTS));
    const raw: Drawable[] = [];
    const over: Drawable[] = [];
    const live = new Set<number>();
    data.entries.forEach((entry, i) => {
      const id = entry.curve.trial;
      live.add(id);
      let trace = this.traces.get(id);
      if (!trace?.fits(entry.curve, data)) this.traces.set(id, (trace = new Trace(entry.curve, data)));
      trace.grow();
      const style = styles[i]!;
      const below = smoothing > 0 ? { ...style, width: 1, alpha: style.alpha * 0.25, dots: false } : style;
      raw.push({ key: `${trace.key} raw`, xs: trace.xs, ys: entry.curve.values, style: below, gaps: entry.curve.gaps, band: entry.band });
      if (smoothing > 0) {
        over.push({ key: `${trace.key} smooth ${smoothing}`, xs: trace.xs, ys: trace.ys, style, gaps: entry.curve.gaps });
      }
    });
    for (const id of this.traces.keys()) if (!live.has(id)) this.traces.delete(id);
    const lines = smoothing > 0 ? [...raw, ...over] : raw;
    return data.options.best ? [...lines, this.bestLine(raw, data)] : lines;
  }

  private bestLine(lines: readonly Drawable[], data: ChartData): Drawable {
    const stairs = incumbent(lines, data.smallerIsBetter);
    const style: Style = { stroke: cssColor(this.host, '--det-chart-best', '#e8590c'), width: 2.2, alpha: 0.9 };
    return { ...stairs, key: `best ${stairs.xs.length} ${stairs.ys[stairs.ys.length - 1]}`, style, gaps: [] };
  }

  private ranges(data: ChartData): { x: Range; y: Range } {
    const traces = [...this.traces.values()];
    const { logX } = data.options;
    const xs = (logX ? extent(traces.map(trace => trace.xs), true) : extent(traces.map(trace => trace.ends))) ?? [logX ? 1 : 0, logX ? 10 : 1];
    const values = data.entries.map(entry => entry.curve.values);
    const { log, focus } = data.options;
    const all = extent(traces.map(trace => trace.range), log) ?? (log ? [0.1, 1] : [0, 1]);
    const whole: Range = log ? extent(values, true) ?? [0.1, 1] : all;
    const ys = !log && focus ? this.focus(data, whole) : whole;
    const [low, high] = xs[0] !== xs[1] ? xs : logX ? [xs[0] / 2, xs[1] * 2] : [xs[0] - 0.5, xs[1] + 0.5];
    this.shownX = data.live ? steady(this.shownX, [low, high], ROOM) : [low, high + (high - low) * 0.01];
    const inside = this.shownY && this.shownY[0] <= ys[0] && this.shownY[1] >= ys[1];
    const span = (r: Range): number => (log ? decades(...r) : r[1] - r[0]);
    if (!inside || span(ys) < 0.5 * span(this.shownY!)) this.shownY = padded(ys, log);
    return { x: besides(this.shownX, Boolean(logX)), y: this.shownY! };
  }

  /** The focused range; computed again only when the curves have grown by 2 %. */
  private focus(data: ChartData, whole: Range): Range {
    const values = data.entries.map(entry => entry.curve.values);
    const total = values.reduce((sum, list) => sum + list.length, 0);
    const old = this.cut;
    if (!old || old.curves !== values.length || total < old.total || total > 1.02 * old.total) {
      const range = focused(values, data.smallerIsBetter) ?? whole;
      this.cut = { total, curves: values.length, range, whole: range[0] === whole[0] && range[1] === whole[1] };
    }
    const { range, whole: uncut } = this.cut!;
    if (uncut) return whole;
    return data.smallerIsBetter ? [whole[0], range[1]] : [range[0], whole[1]];
  }

  private setRanges(x: Range, y: Range): void {
    const plot = this.plot!;
    const same = (key: string, range: Range): boolean =>
      plot.scales[key]!.min === range[0] && plot.scales[key]!.max === range[1];
    if (same('x', x) && same('y', y)) return;
    plot.batch(() => {
      plot.setScale('x', { min: x[0], max: x[1] });
      plot.setScale('y', { min: y[0], max: y[1] });
    });
  }

  private ensurePlot(data: ChartData, x: Range, y: Range): void {
    const ink = cssColor(this.host, '--det-soft', '#59636e');
    const rule = cssColor(this.host, '--det-rule', 'rgba(123,135,148,.3)');
    const shape = [data.options.log, data.options.logX, data.options.x, ink, rule].join(' ');
    if (this.plot && shape === this.shape) return;
    this.plot?.destroy();
    this.shape = shape;
    this.plot = new uPlot(this.options(data, x, y, ink, rule), [[0, 1], [null, null]], this.host);
    const over = this.plot.over;
    over.prepend(this.base.canvas, this.top.canvas);
    over.addEventListener('mousemove', event => this.moved(event));
    over.addEventListener('mouseleave', () => this.hover(null));
    over.addEventListener('click', () => { if (this.lit !== null) this.onPick(this.lit); });
  }

  private options(data: ChartData, x: Range, y: Range, ink: string, rule: string): uPlot.Options {
    const font = '11px system-ui, sans-serif';
    const axis = { stroke: ink, font, labelFont: font, grid: { stroke: rule, width: 1 }, ticks: { stroke: rule, width: 1 } };
    const { x: kind, logX } = data.options;
    return {
      width: Math.max(this.host.clientWidth, 120),
      height: Math.max(this.host.clientHeight, 120),
      legend: { show: false },
      padding: [10, 12, 0, 0],
      cursor: {
        points: { show: false },
        drag: { x: true, y: true, uni: DRAGGED, setScale: false },
        bind: { dblclick: () => () => { this.resetZoom(); return null; } }
      },
      scales: {
        x: { time: false, ...(logX ? { distr: 3 as const } : {}), auto: false, min: x[0], max: x[1] },
        y: { ...(data.options.log ? { distr: 3 as const } : {}), auto: false, min: y[0], max: y[1] }
      },
      axes: [
        { ...axis, ...(logX ? LOG_TICKS : {}), label: X_TITLES[kind], labelSize: 18, size: 32, ...(kind === 'steps' && !logX ? { incrs: WHOLE } : {}),
          ...(kind === 'wall' ? { space: 90 } : {}), values: (_u, splits) => this.labelled('x', splits, xTexts(splits, data.options)) },
        { ...axis, ...(data.options.log ? LOG_TICKS : OWN_TICKS), size: (plot, texts) => wideEnough(plot, font, texts), values: (_u, splits) => this.labelled('y', splits, tickTexts(splits, !data.options.log)) }
      ],
      series: [{}, { show: false, scale: 'y' }],
      hooks: { setSelect: [plot => this.selected(plot)], draw: [plot => this.drawMarks(plot, ink)] }
    };
  }

  private labelled(axis: 'x' | 'y', at: readonly (number | null)[], texts: string[]): string[] {
    this.ticks[axis] = { at, texts };
    return texts;
  }

  /** What is shown now, as a picture with its title and legend; null if nothing is. */
  picture(title: string, legend: readonly LegendItem[]): Picture | null {
    const { plot, data } = this;
    if (!plot || !data) return null;
    const ratio = devicePixelRatio || 1;
    const [left, right, head] = [plot.bbox.left / ratio, (plot.bbox.left + plot.bbox.width) / ratio, 30];
    const [width, height] = [right - left, plot.bbox.height / ratio];
    const top = head + plot.bbox.top / ratio;
    const elements = [textElement(left, 20, title, { size: 13, fill: PAPER.ink, bold: true })];
    const along = (axis: 'x' | 'y'): [number, string][] =>
      this.ticks[axis].at.flatMap((value, i) => (value === null ? [] : [[plot.valToPos(value, axis), this.ticks[axis].texts[i] ?? ''] as [number, string]]));
    for (const [x, text] of along('x')) elements.push(lineElement(left + x, top, left + x, top + height), textElement(left + x, top + height + 16, text, { anchor: 'middle' }));
    for (const [y, text] of along('y')) elements.push(lineElement(left, top + y, right, top + y), textElement(left - 8, top + y + 4, text, { anchor: 'end' }));
    elements.push(textElement(left + width / 2, top + height + 34, X_TITLES[data.options.x], { anchor: 'middle' }));
    const pen = new SvgPen();
    drawLines(pen, this.lines, { ...this.frame(), width, height, ratio: 1 });
    const { min, max } = plot.scales.x!;
    for (const mark of data.marks ?? []) {
      if (mark >= min! && mark <= max!) pen.elements.push(lineElement(plot.valToPos(mark, 'x'), 0, plot.valToPos(mark, 'x'), height, true));
    }
    const [w, h] = [short(width), short(height)];
    elements.push(`<svg x="${short(left)}" y="${short(top)}" width="${w}" height="${h}" viewBox="0 0 ${w} ${h}" overflow="hidden">${pen.elements.join('')}</svg>`);
    const named = legendElements(legend, left, top + height + 42, width);
    return pictureOf(right + 16, top + height + 48 + named.height, [...elements, ...named.elements]);
  }

  /** The colour in which an entry is drawn. */
  colourOf(trial: number): string {
    const line = this.lines.find(one => one.key.startsWith(`${trial}:`));
    return line ? line.style.stroke : PAPER.soft;
  }

  private drawMarks(plot: uPlot, ink: string): void {
    const { ctx, bbox } = plot;
    const { min, max } = plot.scales.x!;
    ctx.save();
    ctx.strokeStyle = ink;
    ctx.lineWidth = devicePixelRatio || 1;
    ctx.setLineDash([2, 3].map(length => length * (devicePixelRatio || 1)));
    for (const mark of this.data?.marks ?? []) {
      if (mark < min! || mark > max!) continue;
      const x = Math.round(plot.valToPos(mark, 'x', true));
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  }

  private selected(plot: uPlot): void {
    const { left, top, width, height } = plot.select;
    if (width < DRAGGED / 2 && height < DRAGGED) return;
    const [x, y] = [plot.scales.x!, plot.scales.y!];
    this.zoom = {
      x: width < DRAGGED / 2 ? [x.min!, x.max!] : [plot.posToVal(left, 'x'), plot.posToVal(left + width, 'x')],
      y: height < DRAGGED || height >= plot.over.clientHeight - 1
        ? [y.min!, y.max!] : [plot.posToVal(top + height, 'y'), plot.posToVal(top, 'y')]
    };
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    if (this.data) this.update(this.data);
  }

  private frame(): Frame {
    const plot = this.plot!;
    return {
      width: Math.round(plot.bbox.width), height: Math.round(plot.bbox.height), ratio: devicePixelRatio || 1,
      x: [plot.scales.x!.min!, plot.scales.x!.max!], y: [plot.scales.y!.min!, plot.scales.y!.max!],
      log: Boolean(this.data?.options.log), logX: Boolean(this.data?.options.logX)
    };
  }

  private paint(): void {
    this.base.draw(this.lines, this.frame());
    this.paintTop();
  }

  private paintTop(): void {
    const lit = this.lit === null ? [] : this.lines.filter(line => line.key.startsWith(`${this.lit}:`));
    if (!this.plot) return;
    this.base.canvas.style.opacity = lit.length ? '0.25' : '1';
    const bold = lit.map(line => ({ ...line, key: `lit ${line.key}`, style: { ...line.style, width: line.style.width + 1, alpha: Math.max(line.style.alpha, 0.5) } }));
    this.top.clear();
    if (bold.length) this.top.draw(bold, this.frame());
  }

  private moved(event: MouseEvent): void {
    const box = this.plot!.over.getBoundingClientRect();
    const ratio = devicePixelRatio || 1;
    const trials = this.lines.filter(line => !line.key.startsWith('best'));
    const near = nearest(trials, this.frame(), (event.clientX - box.left) * ratio, (event.clientY - box.top) * ratio, REACH * ratio);
    const line = near ? trials[near.line]! : null;
    this.hover(line && near ? { trial: Number(line.key.split(':')[0]), x: line.xs[near.point]!, y: line.ys[near.point]! } : null);
  }

  private hover(hover: Hover | null): void {
    this.highlight(hover?.trial ?? null);
    if (this.plot) this.plot.over.style.cursor = hover ? 'pointer' : 'crosshair';
    this.onHover(hover);
  }
}

/** Pixels from tick to tick at least. */
const BETWEEN_TICKS = 30;
const BESIDE_TICKS = 64;
/** How many ticks an axis has room for; the first one is the lower. */
function room(plot: uPlot, axis: number): number {
  const ratio = devicePixelRatio || 1;
  if (axis === 0) return Math.max(2, Math.floor((plot.bbox.width / ratio || plot.width - LEAST_AXIS) / BESIDE_TICKS));
  return Math.max(2, Math.floor((plot.bbox.height / ratio || plot.height - 60) / BETWEEN_TICKS));
}

/** uPlot has no ticks for values that are very large, or lie close together: it is given one distance that always fits, and ours. */
const OWN_TICKS: Pick<uPlot.Axis, 'incrs' | 'splits'> = {
  incrs: (_u, _axis, low, high) => [Math.max(5, Math.min(high - low, Number.MAX_VALUE))],
  splits: (plot, axis, low, high) => linearTicks(low, high, room(plot, axis))
};

/** Nor does it label more than powers of ten, of which there may be none. */
const LOG_TICKS: Pick<uPlot.Axis, 'filter' | 'incrs' | 'splits'> = {
  ...OWN_TICKS,
  filter: (_u, splits) => splits,
  splits: (plot, axis, low, high) => logTicks(low, high, room(plot, axis))
};

/** Room for the dot of the first point, which the edge would cut in half. */
function besides([low, high]: Range, log: boolean): Range {
  return [log ? low / 10 ** (0.01 * decades(low, high)) : low - (high - low) * 0.01, high];
}

/** The width of an axis with these labels: a label that is cut is another number. */
function wideEnough({ ctx }: uPlot, font: string, texts: readonly string[] | null): number {
  ctx.save();
  ctx.font = font;
  const widest = Math.max(0, ...(texts ?? []).map(text => ctx.measureText(text).width));
  ctx.restore();
  return Math.max(LEAST_AXIS, Math.ceil(widest) + BESIDE_LABELS);
}

function xTexts(splits: readonly (number | null)[], { x, logX }: PlotOptions): string[] {
  if (x === 'time') return splits.map(v => (v === null ? '' : clock(v)));
  return x === 'wall' ? wallTexts(splits) : tickTexts(splits, !logX);
}

/** A curve as the chart draws it: x values of its axis and smoothed values, grown with it. */
class Trace {
  readonly key: string;
  xs: number[] = [];
  ys: number[] = [];
  /** First and last x. */
  ends: number[] = [];
  /** Smallest and largest value. */
  range: number[] = [];
  private mean = 0;
  private mass = 0;
  private done = 0;
  private readonly version: number;
  private readonly smoothing: number;
  private readonly time: boolean;
  private readonly origin: number;

  constructor(private curve: Curve, data: ChartData) {
    this.version = curve.version;
    this.smoothing = data.options.smoothing;
    this.time = data.options.x !== 'steps';
    this.origin = data.origin;
    this.key = `${curve.trial}:${curve.version} ${this.time ? `time ${data.origin}` : 'steps'}`;
    if (!this.time) this.xs = curve.steps;
  }

  fits(curve: Curve, data: ChartData): boolean {
    return curve === this.curve && curve.version === this.version && data.options.smoothing === this.smoothing
      && (data.options.x !== 'steps') === this.time && (!this.time || data.origin === this.origin)
      && (this.time || this.xs === curve.steps);
  }

  grow(): void {
    const { values, times } = this.curve;
    let [low, high] = [this.range[0] ?? Infinity, this.range[1] ?? -Infinity];
    for (let i = this.done; i < values.length; i += 1) {
      const value = values[i]!;
      if (this.time) this.xs.push(times[i]! - this.origin);
      if (value < low) low = value;
      if (value > high) high = value;
      if (this.smoothing > 0) this.ys.push(this.smoothed(value));
    }
    this.done = values.length;
    this.range = low <= high ? [low, high] : [];
    this.ends = this.xs.length ? [this.xs[0]!, this.xs[this.xs.length - 1]!] : [];
  }

  private smoothed(value: number): number {
    if (Number.isNaN(value)) return NaN;
    this.mean = this.smoothing * this.mean + (1 - this.smoothing) * value;
    this.mass = this.smoothing * this.mass + (1 - this.smoothing);
    return this.mean / this.mass;
  }
}

interface Colours {
  best: string;
  grey: string;
  failed: string;
}

/** Asked once for each drawing: the browser has to compute styles for it. */
function coloursOf(host: HTMLElement): Colours {
  return {
    best: cssColor(host, '--det-chart-best', '#e8590c'), grey: cssColor(host, '--det-chart-grey', '#9aa5b1'),
    failed: cssColor(host, '--det-chart-failed', '#b5656f')
  };
}

function styleOf(entry: Entry, colours: Colours, dense: boolean): Style {
  const thin = dense ? 1 / (devicePixelRatio || 1) : 0;
  if (entry.colour) return { stroke: entry.colour, width: entry.best ? 2.6 : thin || 1.6, alpha: entry.grey ? 0.6 : 1, dots: true };
  if (entry.best) return { stroke: colours.best, width: 2.2, alpha: 1, dots: true };
  if (entry.grey) return { stroke: entry.failed ? colours.failed : colours.grey, width: thin || 1.2, alpha: 0.55, dots: true };
  return { stroke: COLORS[entry.index % COLORS.length]!, width: thin || 1.4, alpha: 1, dots: true };
}

function layerCanvas(): HTMLCanvasElement {
  const canvas = document.createElement('canvas');
  canvas.className = 'det-curve-layer';
  return canvas;
}

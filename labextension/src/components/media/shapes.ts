/** The JSON of media: read with care, since a training wrote it. What has not the shape that is said is null. */

import type { Figure } from '../charts/PlotlyFigure';

export type Cell = string | number | boolean | null;

export interface TableData {
  columns: string[];
  rows: Cell[][];
  /** Rows that were left out. */
  leftOut: number;
}

export interface ConfusionData {
  labels: string[];
  counts: number[][];
}

const MOST_COLUMNS = 200;
const MOST_ROWS = 10_000;
const MOST_CLASSES = 200;
const MOST_TRACES = 100;
const MOST_POINTS = 100_000;
const MOST_DEPTH = 12;

type Dict = Record<string, unknown>;

const isDict = (value: unknown): value is Dict => typeof value === 'object' && value !== null && !Array.isArray(value);
const isNumber = (value: unknown): value is number => typeof value === 'number' && Number.isFinite(value);
const isCell = (value: unknown): value is Cell => value === null || ['string', 'number', 'boolean'].includes(typeof value);

export function tableOf(value: unknown): TableData | null {
  if (!isDict(value) || !Array.isArray(value.columns) || !Array.isArray(value.rows)) return null;
  const columns = value.columns.slice(0, MOST_COLUMNS).map(String);
  const rows = value.rows.slice(0, MOST_ROWS);
  if (!rows.every((row): row is Cell[] => Array.isArray(row) && row.every(isCell))) return null;
  const cut = value.rows.length - rows.length;
  return { columns, rows: rows.map(row => row.slice(0, columns.length)), leftOut: (isNumber(value.left_out) ? value.left_out : 0) + cut };
}

export function confusionOf(value: unknown): ConfusionData | null {
  if (!isDict(value) || !Array.isArray(value.labels) || !Array.isArray(value.counts)) return null;
  const size = value.labels.length;
  const square = value.counts.length === size && value.counts.every((row): row is number[] => Array.isArray(row) && row.length === size && row.every(isNumber));
  return square && size > 0 && size <= MOST_CLASSES ? { labels: value.labels.map(String), counts: value.counts as number[][] } : null;
}

export interface PointsData {
  points: [number, number, number][];
  colours: [number, number, number][];
  leftOut: number;
}

const isTriple = (value: unknown): value is [number, number, number] => Array.isArray(value) && value.length === 3 && value.every(isNumber);

export function pointsOf(value: unknown): PointsData | null {
  if (!isDict(value) || !Array.isArray(value.points) || !value.points.length || value.points.length > MOST_POINTS || !value.points.every(isTriple)) return null;
  const colours = Array.isArray(value.colours) && value.colours.length === value.points.length && value.colours.every(isTriple) ? value.colours : [];
  return { points: value.points, colours, leftOut: isNumber(value.left_out) ? value.left_out : 0 };
}

/** Bars of a histogram whose bins are not equally wide: the area of a bar must say what its height does. */
const EQUAL_BINS = 60;

/** Counts in bins of equal width, each bin's share going to those that it meets; the bins themselves if they are equal. */
export function evenly(edges: number[], counts: number[]): { edges: number[]; counts: number[] } {
  const widths = counts.map((_, i) => edges[i + 1]! - edges[i]!);
  const filled = counts.flatMap((count, i) => (count !== 0 ? [i] : []));
  if (Math.max(...widths) <= 1.01 * Math.min(...widths) || !filled.length) return { edges, counts };
  const low = edges[filled[0]!]!;
  const high = edges[filled.at(-1)! + 1]!;
  const step = high / EQUAL_BINS - low / EQUAL_BINS;
  const at = (place: number): number => (place === EQUAL_BINS ? high : low + place * step);
  const even = new Array<number>(EQUAL_BINS).fill(0);
  for (const i of filled) {
    const first = Math.max(0, Math.min(EQUAL_BINS - 1, Math.floor((edges[i]! - low) / step)));
    for (let place = first; place < EQUAL_BINS && at(place) < edges[i + 1]!; place++) {
      const shared = Math.min(edges[i + 1]!, at(place + 1)) - Math.max(edges[i]!, at(place));
      if (shared > 0) even[place] = even[place]! + counts[i]! * (shared / widths[i]!);
    }
  }
  return { edges: Array.from({ length: EQUAL_BINS + 1 }, (_, place) => at(place)), counts: even };
}

/** How values are spread, as bars. */
export function histogramFigure(value: unknown): Figure | null {
  if (!isDict(value) || !Array.isArray(value.edges) || !Array.isArray(value.counts)) return null;
  if (!value.edges.every(isNumber) || !value.counts.every(isNumber) || value.edges.length !== value.counts.length + 1) return null;
  if (!value.counts.length || value.counts.length > 1000) return null;
  const { edges, counts } = evenly(value.edges, value.counts);
  const middle = counts.map((_, i) => (edges[i]! + edges[i + 1]!) / 2);
  const widths = counts.map((_, i) => edges[i + 1]! - edges[i]!);
  const notes = isNumber(value.not_finite) && value.not_finite > 0 ? [`${value.not_finite} values that are not finite are left out`] : [];
  if (counts !== value.counts) notes.push('its bins were not equally wide: spread over equal ones');
  return {
    data: [{ type: 'bar', x: middle, y: counts, width: widths, hovertemplate: '%{y:.4~g} at %{x}<extra></extra>' }],
    layout: { bargap: 0, title: { text: '', subtitle: { text: notes.join('; ') } }, yaxis: { title: { text: 'count' } }, height: 340 }
  };
}

/** ROC and precision over recall, a line for each class. */
export function curvesFigure(value: unknown): Figure | null {
  if (!isDict(value) || !Array.isArray(value.series) || value.series.length > MOST_TRACES) return null;
  const roc = value.curve === 'roc';
  const data: Dict[] = [];
  for (const one of value.series) {
    if (!isDict(one) || !Array.isArray(one.points) || one.points.length > 5000) return null;
    const points = one.points;
    if (!points.every((point): point is [number, number] => Array.isArray(point) && point.length === 2 && point.every(isNumber))) return null;
    const area = isNumber(one.area) ? ` (${one.area.toFixed(3)})` : '';
    data.push({
      type: 'scatter', mode: 'lines', name: `${escaped(String(one.name))}${area}`, x: points.map(point => point[0]), y: points.map(point => point[1]),
      line: { shape: roc ? 'linear' : 'hv' }
    });
  }
  if (roc) data.push({ type: 'scatter', mode: 'lines', name: 'chance', x: [0, 1], y: [0, 1], line: { dash: 'dot', width: 1 }, hoverinfo: 'skip' });
  const [x, y] = roc ? ['false positive rate', 'true positive rate'] : ['recall', 'precision'];
  return {
    data,
    layout: { xaxis: { title: { text: x }, range: [0, 1] }, yaxis: { title: { text: y }, range: [0, 1.02] }, showlegend: true, height: 380 }
  };
}

/** Traces of plotly that are drawn here: those of two axes. */
const TRACES = new Set(['scatter', 'bar', 'box', 'histogram', 'histogram2d', 'histogram2dcontour', 'heatmap', 'contour', 'violin', 'pie', 'image', 'scatterternary']);
/** Parts of a figure that load, link, or have buttons: none of them is passed on. */
const DROPPED = new Set(['images', 'source', 'updatemenus', 'sliders', 'template', 'mapbox', 'map', 'geo', 'scene', 'frames', 'config', 'width']);

/**
 * A figure that a training has made, as far as it is drawn: known traces, no picture from elsewhere, no link. Texts are
 * plain, but for the breaks and emphasis that plotly knows.
 */
export function plotlyFigure(value: unknown): Figure | null {
  if (!isDict(value) || !Array.isArray(value.data) || !isDict(value.layout ?? {})) return null;
  const data = value.data.slice(0, MOST_TRACES).filter((trace): trace is Dict => isDict(trace) && TRACES.has(String(trace.type ?? 'scatter')) && trace.type !== 'image');
  if (!data.length) return null;
  const layout = cleaned(value.layout ?? {}, 0) as Dict;
  if (layout.height !== undefined) layout.height = isNumber(layout.height) ? Math.min(900, Math.max(240, layout.height)) : 420;
  return { data: data.map(trace => cleaned(trace, 0) as Dict), layout };
}

function cleaned(value: unknown, depth: number): unknown {
  if (depth > MOST_DEPTH) return null;
  if (typeof value === 'string') return escaped(value);
  if (Array.isArray(value)) return value.map(one => cleaned(one, depth + 1));
  if (!isDict(value)) return value;
  return Object.fromEntries(Object.entries(value).filter(([key]) => !DROPPED.has(key) && key !== '__proto__').map(([key, one]) => [key, cleaned(one, depth + 1)]));
}

const ALLOWED = /&lt;(\/?(?:b|i|sub|sup|em|extra)|br\s*\/?)&gt;/gi;

/** Text without tags, but for those that plotly draws as breaks and emphasis. */
function escaped(text: string): string {
  return text.includes('<') ? text.replace(/</g, '&lt;').replace(/>/g, '&gt;').replace(ALLOWED, '<$1>') : text;
}

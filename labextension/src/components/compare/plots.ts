/** Figures of runs for plotly: what users have named is escaped, since plotly renders markup, formulas and templates. */

import type { RunComparison } from '../../state/wire';
import type { Figure } from '../charts/PlotlyFigure';
import type { Value } from '../charts/parallel';
import { formatValue, toNumber } from '../common/format';
import { visible } from '../common/text';
import type { CompareOptions } from './link';
import { keyOfMetric, ownColour, Side } from './model';

/** A hyperparameter or a metric, as an axis. */
export interface PlotField {
  /** `hp.NAME` or `metric.GROUP.NAME`. */
  key: string;
  label: string;
  /** Of each run. */
  values: readonly Value[];
  numeric: boolean;
}

const SCALE = [[0, '#6256b0'], [0.25, '#3a709c'], [0.5, '#21918c'], [0.75, '#5ebe62'], [1, '#e9c428']];
const MOST_FIELDS = 1000;

/** Text as plotly may show it: no markup, no formula, no template. */
export function safe(text: string, most = 60): string {
  const line = visible(text.replace(/\s+/g, ' '));
  const short = line.length > most ? `${line.slice(0, most - 1)}…` : line;
  const entities: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#x27;', '$': '&#36;' };
  return short.replace(/[&<>"'$]/g, character => entities[character]!).replaceAll('%{', '&#37;{');
}

/** The fields: hyperparameters that differ, then metrics at the best validation, then the other hyperparameters. */
export function fieldsOf(data: RunComparison, sides: readonly Side[]): PlotField[] {
  const settings = (same: boolean): PlotField[] => data.hyperparameters.filter(row => row.same === same).map(row =>
    field(`hp.${row.name}`, row.name, sides.map(side => side.hparams[row.name] ?? null)));
  const metrics = data.metrics.map(row => field(`metric.${keyOfMetric(row)}`, keyOfMetric(row), row.values.map(one => finiteOrNull(toNumber(one?.best ?? one?.last)))));
  return [...settings(false), ...metrics, ...settings(true)].slice(0, MOST_FIELDS);
}

function finiteOrNull(value: number | null): number | null {
  return value !== null && Number.isFinite(value) ? value : null;
}

function field(key: string, label: string, values: readonly Value[]): PlotField {
  return { key, label, values, numeric: values.some(value => typeof value === 'number') && values.every(value => value === null || typeof value === 'number') };
}

/** The fields that are drawn: those of the options, else the first that fit. */
export function chosenFields(fields: readonly PlotField[], { plot, px, py, pz }: CompareOptions): { x?: PlotField; y?: PlotField; z?: PlotField } {
  const named = (key: string): PlotField | undefined => fields.find(one => one.key === key);
  const settings = fields.filter(one => one.key.startsWith('hp.'));
  const metrics = fields.filter(one => one.key.startsWith('metric.'));
  // One that all have and that differs: of one that few have, most runs are missing in the figure.
  const usual = settings.find(one => one.values.every(value => value !== null) && new Set(one.values).size > 1) ?? settings[0];
  const x = named(px) ?? (plot === 'histogram' ? metrics[0] ?? usual : usual ?? metrics[0]);
  const y = named(py) ?? (plot === 'heatmap' ? settings.find(one => one !== x) ?? metrics.find(one => one !== x) : metrics.find(one => one !== x) ?? settings.find(one => one !== x));
  return { x, y, z: named(pz) ?? (plot === 'heatmap' ? metrics[0] : undefined) };
}

export function figureOf(data: RunComparison, sides: readonly Side[], options: CompareOptions): Figure {
  const { x, y, z } = chosenFields(fieldsOf(data, sides), options);
  switch (options.plot) {
    case 'histogram': return x ? histogram(x) : nothing('There is no field to draw.');
    case 'heatmap': return x && y && z ? heatmap(x, y, z) : nothing('A heat map needs two fields and a metric.');
    case 'scatter': return x && y ? scatter(x, y, z, sides) : nothing('A scatter needs two fields.');
  }
}

function nothing(reason: string): Figure {
  return { data: [], layout: { annotations: [{ text: safe(reason, 200) }] } };
}

function axis(one: PlotField): Record<string, unknown> {
  return { title: { text: safe(one.label) }, ...(one.numeric ? {} : { type: 'category' }) };
}

function shown(one: PlotField, value: Value): Value {
  return value === null || one.numeric ? value : safe(String(value), 40);
}

function scatter(x: PlotField, y: PlotField, z: PlotField | undefined, sides: readonly Side[]): Figure {
  const places = sides.map((_, i) => i).filter(i => x.values[i] !== null && y.values[i] !== null);
  if (!places.length) return nothing('No run has both values.');
  const words = z && !z.numeric ? [...new Set(z.values.map(String))] : [];
  const colour = !z ? places.map(ownColour) : z.numeric ? places.map(i => z.values[i]) : places.map(i => ownColour(words.indexOf(String(z.values[i]))));
  const valueOf = (one: PlotField, i: number): string => `${safe(one.label)} ${safe(formatValue(one.values[i]))}`;
  const hover = places.map(i => [safe(sides[i]!.name), valueOf(x, i), valueOf(y, i), ...(z ? [valueOf(z, i)] : [])].join('<br>'));
  const marker = { size: 10, color: colour, ...(z?.numeric ? { colorscale: SCALE, showscale: true, colorbar: { title: { text: safe(z.label, 30) } } } : {}) };
  return {
    data: [{ type: 'scatter', mode: 'markers', x: places.map(i => shown(x, x.values[i]!)), y: places.map(i => shown(y, y.values[i]!)), text: hover, hoverinfo: 'text', marker }],
    layout: { title: { text: `${safe(y.label)} by ${safe(x.label)}` }, xaxis: axis(x), yaxis: axis(y), showlegend: false }
  };
}

/** The mean of `z` at each pair of values. */
function heatmap(x: PlotField, y: PlotField, z: PlotField): Figure {
  const across = valuesOf(x);
  const up = valuesOf(y);
  const cells = up.map(row => across.map(column => {
    const found = z.values.filter((value, i): value is number => typeof value === 'number' && x.values[i] === column && y.values[i] === row);
    return found.length ? found.reduce((sum, value) => sum + value, 0) / found.length : null;
  }));
  if (!cells.some(row => row.some(value => value !== null))) return nothing('No run has all three values.');
  const words = (values: readonly Value[]): string[] => values.map(value => safe(formatValue(value), 40));
  return {
    data: [{ type: 'heatmap', x: words(across), y: words(up), z: cells, colorscale: SCALE, hoverongaps: false, colorbar: { title: { text: safe(z.label, 30) } } }],
    layout: {
      title: { text: `${safe(z.label)} by ${safe(x.label)} and ${safe(y.label)}` },
      xaxis: { title: { text: safe(x.label) }, type: 'category' }, yaxis: { title: { text: safe(y.label) }, type: 'category' }
    }
  };
}

function valuesOf(one: PlotField): Value[] {
  const values = [...new Set(one.values.filter(value => value !== null))];
  return one.numeric ? values.sort((a, b) => Number(a) - Number(b)) : values.sort();
}

function histogram(x: PlotField): Figure {
  const values = x.values.filter(value => value !== null).map(value => shown(x, value));
  if (!values.length) return nothing('No run has a value.');
  return {
    data: [{ type: 'histogram', x: values, marker: { color: ownColour(0), line: { width: 1, color: 'rgba(127,127,127,.4)' } } }],
    layout: { title: { text: `Runs by ${safe(x.label)}` }, xaxis: axis(x), yaxis: { title: { text: 'runs' } }, bargap: 0.05 }
  };
}

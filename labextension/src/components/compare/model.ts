/** What is drawn of a comparison: lines of curves or of their means, with names and colours. */

import type { Place } from '../../state/context';
import { isOver } from '../../state/states';
import type { ComparedRun, RunComparison, RunMetric, SeriesView } from '../../state/wire';
import { COLORS } from '../charts/colours';
import { Curve, emptyCurve, finite } from '../charts/curve';
import type { Band } from '../charts/layer';
import { flatten, Value } from '../charts/parallel';
import { formatValue, significant, toNumber } from '../common/format';
import { nameText } from '../common/text';
import { isOfMachine } from '../view/metrics';
import type { XAxis } from '../charts/axes';
import type { CompareOptions, Statistic } from './link';

/** A run with its hyperparameters flattened once. */
export interface Side {
  key: string;
  run: ComparedRun;
  name: string;
  hparams: Record<string, Value>;
}

/** One line of a chart. */
export interface ComparedLine {
  /** Stands for a trial's id in the charts. */
  id: number;
  /** Of its runs. */
  keys: readonly string[];
  name: string;
  colour: string;
  curve: Curve;
  band?: Band;
}

export function keyOfRun(run: Pick<ComparedRun, 'kind' | 'id' | 'run_id'>): string {
  return run.kind === 'run' ? `r${run.run_id}` : `${run.kind === 'trial' ? 't' : 'e'}${run.id}`;
}

export function sidesOf(runs: readonly ComparedRun[]): Side[] {
  return runs.map(run => ({ key: keyOfRun(run), run, name: run.kind === 'run' ? `run ${nameText(run.run_id.slice(0, 8))}` : `${run.kind} ${run.id}`, hparams: flatten(run.hparams) }));
}

export function placeOfSide({ run }: Side): Place {
  return run.kind === 'run' ? { kind: 'run', id: run.run_id } : { kind: run.kind, id: run.id };
}

/** Whether nothing more comes of a run. */
export function hasEnded(run: Pick<ComparedRun, 'kind' | 'state'>): boolean {
  return run.kind === 'run' ? run.state !== 'RUNNING' && run.state !== 'SCHEDULED' : isOver(run.state);
}

/** Whose a curve is: of a trial, or of a run from anywhere. */
export function keyOfSeries(series: { trial_id: number; run_id?: string }): string {
  return series.run_id ? `r${series.run_id}` : `t${series.trial_id}`;
}

/** The keys of the curves that a side has. */
function curvesOf({ run }: Side): string[] {
  return run.kind === 'run' ? [keyOfRun(run)] : run.trial_ids.map(trial => keyOfSeries({ trial_id: trial }));
}

/** `group.name`, as filters have it: no group has a dot. */
export function keyOfMetric(metric: { group: string; name: string }): string {
  return `${metric.group}.${metric.name}`;
}

export function metricOf(key: string): { group: string; name: string } {
  const dot = key.indexOf('.');
  return { group: key.slice(0, dot), name: key.slice(dot + 1) };
}

/** Charts that are drawn where none are chosen. */
const FIRST = 4;

/** The metrics to draw: those that are chosen, else those of the searches and the next ones; of the machine, all. */
export function shownMetrics(data: RunComparison, chosen: readonly string[], machine: boolean): RunMetric[] {
  const fitting = data.metrics.filter(row => isOfMachine(row.group) === machine);
  const named = fitting.filter(row => chosen.includes(keyOfMetric(row)));
  if (named.length || machine) return named.length ? named : fitting.slice(0, 3 * FIRST);
  return fitting.slice(0, FIRST);
}

/** Names of hyperparameters, those that differ first. */
export function hyperparametersOf(data: RunComparison): { name: string; same: boolean }[] {
  return [...data.hyperparameters].sort((a, b) => Number(a.same) - Number(b.same)).map(({ name, same }) => ({ name, same }));
}

// --- colours

/** Worst to best of the other figures, without their brightest end: a line has to be seen on white. */
const SCALE: readonly (readonly [number, number, number])[] = [[98, 86, 176], [58, 112, 156], [33, 145, 140], [94, 170, 98], [201, 162, 39]];

export function ownColour(index: number): string {
  return index < COLORS.length ? COLORS[index]! : `hsl(${Math.round((index * 137.508) % 360)} 48% 50%)`;
}

function onScale(share: number): string {
  const at = Math.min(Math.max(share, 0), 1) * (SCALE.length - 1);
  const [from, to] = [SCALE[Math.floor(at)]!, SCALE[Math.ceil(at)]!];
  return `rgb(${from.map((value, i) => Math.round(value + (to[i]! - value) * (at - Math.floor(at)))).join(', ')})`;
}

/** The colour of each run: its own, or that of its value of a hyperparameter; numbers have a scale. */
export function coloursOf(sides: readonly Side[], hyperparameter: string): Map<string, string> {
  if (!hyperparameter) return new Map(sides.map((side, i) => [side.key, ownColour(i)]));
  const values = sides.map(side => side.hparams[hyperparameter] ?? null);
  const numbers = values.filter((value): value is number => typeof value === 'number' && Number.isFinite(value));
  const numeric = numbers.length > 0 && values.every(value => value === null || typeof value === 'number');
  const [low, high] = [Math.min(...numbers), Math.max(...numbers)];
  const log = numeric && low > 0 && high / low > 50;
  const place = (value: number): number => (log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low || 1));
  const words = [...new Set(values.map(String))];
  return new Map(sides.map((side, i) => {
    const value = values[i]!;
    const colour = value === null ? 'var(--det-chart-grey)' : numeric ? onScale(place(value as number)) : ownColour(words.indexOf(String(value)));
    return [side.key, value === null ? '#9aa5b1' : colour];
  }));
}

// --- lines

/** The lines of a metric. */
export function linesOf(
  sides: readonly Side[], series: readonly (SeriesView & { run_id?: string })[], epochs: ReadonlyMap<string, SeriesView>, options: CompareOptions
): ComparedLine[] {
  const byKey = new Map(series.map(one => [keyOfSeries(one), one]));
  const colours = coloursOf(sides, options.colour);
  return groupsOf(sides, options.group).flatMap(({ name, members }, id) => {
    const curves = members.flatMap(side => curvesOf(side).flatMap(key => {
      const one = byKey.get(key);
      return one ? [curveOn(one, side.run, options.x, epochs.get(key))] : [];
    }));
    if (!curves.length) return [];
    const colour = colours.get(members[0]!.key)!;
    const keys = members.map(side => side.key);
    if (curves.length === 1) return [{ id, keys, name, colour, curve: { ...curves[0]!, trial: id } }];
    return [{ id, keys, name: `${name} (mean of ${curves.length})`, colour, ...meanOf(curves, options.x, id) }];
  });
}

interface Group {
  name: string;
  members: Side[];
}

/** Runs taken together: each by itself, by their experiment, or by their value of a hyperparameter. */
export function groupsOf(sides: readonly Side[], by: string): Group[] {
  const groups = new Map<string, Group>();
  for (const side of sides) {
    const hyperparameter = by.startsWith('hp.') ? by.slice(3) : null;
    const value = hyperparameter === null ? '' : formatValue(side.hparams[hyperparameter] ?? null);
    const name = hyperparameter !== null ? `${nameText(hyperparameter, 40)} ${nameText(value, 40)}` : by === 'experiment' && side.run.experiment_id ? `experiment ${side.run.experiment_id}` : side.name;
    const key = hyperparameter !== null ? JSON.stringify(side.hparams[hyperparameter] ?? null) : name;
    const group = groups.get(key) ?? { name, members: [] };
    group.members.push(side);
    groups.set(key, group);
  }
  return [...groups.values()];
}

/** A curve whose `times` are what the axis shows, unless that is steps. */
function curveOn(one: SeriesView, run: ComparedRun, x: XAxis, epochs: SeriesView | undefined): Curve {
  const began = run.started_at ?? one.times[0] ?? 0;
  const start = Math.min(began, one.times[0] ?? began);
  const places: Record<XAxis, () => number[]> = {
    steps: () => one.times,
    wall: () => one.times,
    time: () => one.times.map(time => time - start),
    epochs: () => (epochs ? one.steps.map(step => interpolated(epochs.steps, epochs.values.map(finite), step)) : one.steps.map(() => NaN))
  };
  return { ...emptyCurve(one.trial_id), steps: one.steps, values: one.values.map(finite), times: places[x](), version: (made += 1) };
}

/** The value of a course at a place between its points; NaN outside of it. */
export function interpolated(xs: readonly number[], ys: readonly number[], x: number): number {
  let [low, high] = [0, xs.length - 1];
  if (high < 0 || x < xs[0]! || x > xs[high]!) return NaN;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle]! <= x) low = middle;
    else high = middle;
  }
  const span = xs[high]! - xs[low]!;
  const share = span ? (x - xs[low]!) / span : 0;
  return share === 0 ? ys[low]! : share === 1 ? ys[high]! : ys[low]! + share * (ys[high]! - ys[low]!);
}

/** Each line that is made is another one, and drawn whole. */
let made = 0;

/** Points of a mean. */
const MEAN_POINTS = 300;

/** Mean and standard deviation of curves, where two of them at least have a value. */
export function meanOf(curves: readonly Curve[], x: XAxis, id: number): { curve: Curve; band: Band } {
  const axis = (curve: Curve): number[] => (x === 'steps' ? curve.steps : curve.times);
  const all = [...new Set(curves.flatMap(axis).filter(Number.isFinite))].sort((a, b) => a - b);
  const stride = Math.max(1, all.length / MEAN_POINTS);
  const chosen = Array.from({ length: Math.min(all.length, MEAN_POINTS) }, (_, i) => all[Math.floor(i * stride)]!);
  if (all.length && chosen[chosen.length - 1] !== all[all.length - 1]) chosen.push(all[all.length - 1]!);
  const mean: number[] = [];
  const kept: number[] = [];
  const band = { low: [] as number[], high: [] as number[] };
  for (const place of chosen) {
    const values = curves.map(curve => interpolated(axis(curve), curve.values, place)).filter(Number.isFinite);
    if (values.length < 2) continue;
    const middle = values.reduce((sum, value) => sum + value, 0) / values.length;
    const deviation = Math.sqrt(values.reduce((sum, value) => sum + (value - middle) ** 2, 0) / (values.length - 1));
    kept.push(place);
    mean.push(middle);
    band.low.push(middle - deviation);
    band.high.push(middle + deviation);
  }
  return { curve: { ...emptyCurve(id), steps: kept, values: mean, times: kept, version: (made += 1) }, band };
}

// --- values

/** A value of a metric for a table: `0.3 ± 0.07`. */
export function statisticText(row: RunMetric, at: number, statistic: Statistic, format: (value: number) => string): string {
  const summary = row.values[at];
  const value = toNumber(summary?.[statistic]);
  if (value === null) return '–';
  const deviation = statistic === 'best' ? toNumber(summary?.deviation) : null;
  return `${format(value)}${deviation === null ? '' : ` ± ${significant(deviation, false, 2)}`}`;
}

/** The places of the best values of a row; none where it is not known what is better, or all are the same. */
export function bestPlaces(row: RunMetric, statistic: Statistic): Set<number> {
  if (row.smaller_is_better === null) return new Set();
  const values = row.values.map(one => toNumber(one?.[statistic]));
  const known = values.filter((value): value is number => value !== null && Number.isFinite(value));
  const best = row.smaller_is_better ? Math.min(...known) : Math.max(...known);
  if (known.length < 2 || known.every(value => value === best)) return new Set();
  return new Set(values.flatMap((value, i) => (value === best ? [i] : [])));
}

/** Points of a search with `seeds: k`: trials that differ by their seed only count together, as in detlab.viz.seeds. */

import type { ExperimentView, TrialView } from '../../../state/wire';
import type { Value } from '../../charts/parallel';
import { formatNumber, significant, toNumber } from '../../common/format';

/** One row: a trial with its hyperparameters flattened once. */
export interface TrialRow {
  trial: TrialView;
  hparams: Record<string, Value>;
  /** In a search with seeds: its point. */
  point?: SeededPoint;
}

export interface SeededPoint {
  rows: readonly TrialRow[];
  mean: number | null;
  /** Standard deviation of the sample; null of a single value. */
  deviation: number | null;
  /** How many values there are. */
  count: number;
}

/** With how many seeds each point is trained. */
export function seedsOf(e: ExperimentView): number {
  return Number((e.config?.['searcher'] as Record<string, unknown> | undefined)?.['seeds'] ?? 1) || 1;
}

/** Trials with the same hyperparameters, in the order of the first of each. */
export function pointsOf(rows: readonly TrialRow[]): SeededPoint[] {
  const found = new Map<string, TrialRow[]>();
  for (const row of [...rows].sort((a, b) => a.trial.index - b.trial.index)) {
    // One without hyperparameters yet is no seed of another.
    const key = row.trial.point_due ? `${row.trial.id}` : JSON.stringify(Object.entries(row.hparams).sort(([a], [b]) => (a < b ? -1 : 1)));
    found.set(key, [...(found.get(key) ?? []), row]);
  }
  return [...found.values()].map(pointOf);
}

function pointOf(rows: readonly TrialRow[]): SeededPoint {
  const values = rows.map(row => toNumber(row.trial.best_validation)).filter(value => value !== null);
  const mean = values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null;
  const squares = values.reduce((sum, value) => sum + (value - mean!) ** 2, 0);
  return { rows, mean, deviation: values.length > 1 ? Math.sqrt(squares / (values.length - 1)) : null, count: values.length };
}

/** The rows, each with its point if the search has seeds. */
export function withPoints(rows: readonly TrialRow[], seeds: number): readonly TrialRow[] {
  if (seeds < 2) return rows;
  const points = new Map(pointsOf(rows).flatMap(point => point.rows.map(row => [row.trial.id, point] as const)));
  return rows.map(row => ({ ...row, point: points.get(row.trial.id) }));
}

/** The point with the best mean of two values or more: one says nothing of other seeds. */
export function bestPoint(points: readonly SeededPoint[], smallerIsBetter: boolean): SeededPoint | null {
  const known = points.filter(point => point.count > 1);
  const sign = smallerIsBetter ? 1 : -1;
  return known.reduce<SeededPoint | null>((best, one) => (!best || sign * (one.mean! - best.mean!) < 0 ? one : best), null);
}

/** `best point 0.3 ± 0.071 (trials 3, 4)`; null if no point has two values. */
export function bestPointText(rows: readonly TrialRow[], smallerIsBetter: boolean): string | null {
  const best = bestPoint([...new Set(rows.flatMap(row => row.point ?? []))], smallerIsBetter);
  if (!best) return null;
  const ids = best.rows.filter(row => toNumber(row.trial.best_validation) !== null).map(row => row.trial.id);
  return `best point ${spreadText(best)} (trials ${ids.join(', ')})`;
}

/** `0.3 ± 0.071`. */
export function spreadText({ mean, deviation }: SeededPoint): string {
  if (mean === null) return '–';
  return `${formatNumber(mean)}${deviation === null ? '' : ` ± ${significant(deviation, false, 2)}`}`;
}

/** Metrics as columns of the trials table: the last value of each, and which trials are on the Pareto front. */

import { useMemo } from 'react';

import { everyPart } from '../../../state/api';
import { useApp } from '../../../state/context';
import { isOver } from '../../../state/states';
import type { CurvesView, ExperimentView, TrialView } from '../../../state/wire';
import { useLoaded } from '../../common';
import { formatNumber, toNumber } from '../../common/format';
import { nameText } from '../../common/text';
import type { TrialColumn, TrialRow } from './trialtable';

/** Looks while the number of steps grows by a factor of e. */
const MOMENTS = 10;
/** Trials whose values are asked for, the best and the newest. */
const MOST_TRIALS = 1000;
/** Metrics offered as columns. */
const MOST_NAMES = 200;

/** Trial -> metric -> its last value. */
export type LastValues = ReadonlyMap<number, ReadonlyMap<string, number>>;

interface Objective { name: string; smaller: boolean }
interface Bound { name: string; min: number; max: number }

function searcherOf(e: ExperimentView): Record<string, unknown> {
  const found = (e.config as Record<string, unknown> | null)?.['searcher'];
  return typeof found === 'object' && found !== null ? (found as Record<string, unknown>) : {};
}

/** The objectives of a search by several metrics; none of a search by one. */
export function objectivesOf(e: ExperimentView): Objective[] {
  const listed = searcherOf(e)['metrics'];
  const found = (Array.isArray(listed) ? listed : []).flatMap(one => (
    typeof one === 'object' && one !== null && typeof one.name === 'string'
      ? [{ name: one.name as string, smaller: one.smaller_is_better !== false }] : []
  ));
  return found.length > 1 ? found : [];
}

function boundsOf(e: ExperimentView): Bound[] {
  const given = searcherOf(e)['constraints'];
  return typeof given === 'object' && given !== null
    ? Object.entries(given as Record<string, { min?: number | null; max?: number | null }>)
      .map(([name, { min, max }]) => ({ name, min: min ?? -Infinity, max: max ?? Infinity }))
    : [];
}

/** The trials that keep the constraints and that none of those beats in all objectives, by their last values. */
export function frontOf(e: ExperimentView, values: LastValues): ReadonlySet<number> {
  const objectives = objectivesOf(e);
  const bounds = boundsOf(e);
  if (!objectives.length) return new Set();
  const points = [...values].flatMap(([trial, found]) => {
    const costs = objectives.map(one => (found.get(one.name) ?? NaN) * (one.smaller ? 1 : -1));
    const kept = bounds.every(({ name, min, max }) => (found.get(name) ?? NaN) >= min && (found.get(name) ?? NaN) <= max);
    return kept && costs.every(Number.isFinite) ? [{ trial, costs }] : [];
  });
  const beats = (a: number[], b: number[]): boolean => a.every((v, i) => v <= b[i]!) && a.some((v, i) => v < b[i]!);
  return new Set(points.filter(one => !points.some(other => beats(other.costs, one.costs))).map(one => one.trial));
}

/** The front; of a search with seeds by the means of each point, all of whose trials are on it. */
export function seededFront(e: ExperimentView, values: LastValues, rows: readonly TrialRow[]): ReadonlySet<number> {
  const points = [...new Set(rows.flatMap(row => row.point ?? []))];
  if (!points.length) return frontOf(e, values);
  const means = new Map(points.map(point => {
    const found = point.rows.flatMap(row => values.get(row.trial.id) ?? []);
    const names = [...(found[0]?.keys() ?? [])].filter(name => found.every(one => one.has(name)));
    return [point.rows[0]!.trial.id, new Map(names.map(name => [name, found.reduce((sum, one) => sum + one.get(name)!, 0) / found.length]))];
  }));
  const front = frontOf(e, means);
  return new Set(points.filter(point => front.has(point.rows[0]!.trial.id)).flatMap(point => point.rows.map(row => row.trial.id)));
}

/** The last value of each series; a validation metric goes before one of the same name in another group. */
export function lastValues(curves: CurvesView['curves']): LastValues {
  const found = new Map<number, Map<string, number>>();
  for (const of of [false, true]) {
    for (const series of curves) {
      const value = toNumber(series.values[series.values.length - 1]);
      if ((series.group === 'validation') !== of || value === null) continue;
      const row = found.get(series.trial_id) ?? new Map<string, number>();
      found.set(series.trial_id, row.set(series.name, value));
    }
  }
  return found;
}

/** A column for each metric, and one for the front; objectives are shown unless the user says otherwise. */
export function metricColumns(e: ExperimentView, names: readonly string[], values: LastValues, rows: readonly TrialRow[] = []): TrialColumn[] {
  const objectives = objectivesOf(e);
  const front = seededFront(e, values, rows);
  const columns = names.map((name): TrialColumn => {
    const value = (row: TrialRow): number | null => values.get(row.trial.id)?.get(name) ?? null;
    return {
      key: `metric:${name}`, title: `Last ${nameText(name, 40)}`, value, text: row => formatNumber(value(row)), numeric: true,
      usual: objectives.some(one => one.name === name), descending: objectives.some(one => one.name === name && !one.smaller)
    };
  });
  if (!objectives.length) return columns;
  const text = (row: TrialRow): string => (front.has(row.trial.id) ? '◆ yes' : '');
  return [...columns, { key: 'pareto', title: 'Pareto', value: row => text(row) || null, text, numeric: false, usual: true }];
}

/** The metric columns of an experiment; `chosen`: keys of columns that the user has turned on or off. */
export function useMetricColumns(
  e: ExperimentView, rows: readonly TrialRow[], chosen: ReadonlyMap<string, boolean>
): TrialColumn[] {
  const { api } = useApp();
  // The stream says how far the trials are: values are asked for again when a trial has ended, or with a tenth more steps.
  const steps = rows.reduce((sum, row) => sum + row.trial.steps_completed, 0);
  const look = `${rows.length} ${rows.filter(row => isOver(row.trial.state)).length} ${Math.floor(Math.log(steps + 1) * MOMENTS)}`;
  const one = e.best?.trial_id ?? rows[0]?.trial.id;
  const known = useLoaded(one === undefined ? null : `${one} ${e.state} ${look}`, signal => api.get<TrialView>(`trials/${one}`, signal));
  // eslint-disable-next-line react-hooks/exhaustive-deps -- each report makes a new view with the same config
  const objectives = useMemo(() => objectivesOf(e).map(each => each.name), [e.config]);
  const names = useMemo(() => {
    const found = Object.values(known.data?.summary ?? {}).flatMap(group => Object.keys(group));
    return [...new Set([...objectives, ...found.sort()])].filter(name => !name.includes(',')).slice(0, MOST_NAMES);
  }, [known.data, objectives]);
  const shown = names.filter(name => chosen.get(`metric:${name}`) ?? objectives.includes(name));
  const asked = [...new Set([...shown, ...(objectives.length ? [...objectives, ...boundsOf(e).map(bound => bound.name)] : [])])];
  const query = asked.map(name => `name=${encodeURIComponent(name)}`).join('&');
  const loaded = useLoaded(query ? `${e.id} ${query} ${e.state} ${look}` : null, () => everyPart<CurvesView>(
    api, `experiments/${e.id}/curves?${query}&max_points=2&max_trials=${MOST_TRIALS}`, 'skip'
  ));
  const values = useMemo(() => lastValues((loaded.data ?? []).flatMap(part => part.curves)), [loaded.data]);
  // eslint-disable-next-line react-hooks/exhaustive-deps -- as above
  return useMemo(() => metricColumns(e, names, values, rows), [e.config, names, values, rows.length]);
}

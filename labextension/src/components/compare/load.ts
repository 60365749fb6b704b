/** What a comparison asks the master for. */

import { useMemo } from 'react';

import { Api, everyItem, everyPart } from '../../state/api';
import { useApp } from '../../state/context';
import type { CodeComparison, FileDifference, RunComparison, SeriesView } from '../../state/wire';
import { Loaded, useLoaded } from '../common';

/** Names under which code reports how many epochs it has done. */
const EPOCHS = ['epochs', 'epoch'];
/** Points of all curves of one metric: they come in one part. */
const MOST_POINTS = 16_000;
const MOST_TRIALS = 200;

function idsQuery(trials: readonly number[], experiments: readonly number[]): string {
  return [
    ...(trials.length ? [`trials=${trials.join(',')}`] : []), ...(experiments.length ? [`experiments=${experiments.join(',')}`] : [])
  ].join('&');
}

export function useComparison(trials: readonly number[], experiments: readonly number[], round: number): Loaded<RunComparison> {
  const { api } = useApp();
  const query = idsQuery(trials, experiments);
  return useLoaded(query ? `${query} ${round}` : null, signal => loadComparison(api, `comparison?${query}`, signal));
}

async function loadComparison(api: Api, path: string, signal: AbortSignal): Promise<RunComparison> {
  const parts = await everyPart<RunComparison>(api, path, 'skip', signal);
  return {
    ...parts[0]!,
    runs: parts.flatMap(part => part.runs), hyperparameters: parts.flatMap(part => part.hyperparameters),
    config: parts.flatMap(part => part.config), metrics: parts.flatMap(part => part.metrics)
  };
}

/** The curves of one metric of some trials. */
export function useCurves(trials: readonly number[], metric: { group: string; name: string } | null, round: number): Loaded<SeriesView[]> {
  const { api } = useApp();
  const group = metric?.group ? `&group=${encodeURIComponent(metric.group)}` : '';
  const name = metric ? `&name=${encodeURIComponent(JSON.stringify([metric.name]))}` : '';
  const query = `${group}${name}`;
  const key = metric && trials.length ? `${trials.join()}${query} ${round}` : null;
  return useLoaded(key, signal => loadCurves(api, trials, query, signal));
}

async function loadCurves(api: Api, trials: readonly number[], query: string, signal: AbortSignal): Promise<SeriesView[]> {
  const points = Math.min(500, Math.max(50, Math.floor(MOST_POINTS / trials.length)));
  const found: SeriesView[] = [];
  for (let from = 0; from < trials.length; from += MOST_TRIALS) {
    const ids = trials.slice(from, from + MOST_TRIALS).join(',');
    found.push(...await everyItem<SeriesView>(api, `comparison/curves?trials=${ids}${query}&max_points=${points}`, 'skip', signal));
  }
  return found;
}

/** By trial how many epochs were done at which step, where its code says so; null: it is not known yet. */
export function useEpochs(trials: readonly number[], wanted: boolean, round: number): ReadonlyMap<number, SeriesView> | null {
  const { api } = useApp();
  const name = `&name=${encodeURIComponent(JSON.stringify(EPOCHS))}`;
  const { data } = useLoaded(wanted && trials.length ? `${trials.join()} ${round}` : null, signal => loadCurves(api, trials, name, signal));
  return useMemo(() => {
    if (!data) return wanted ? null : new Map();
    const longest = [...data].sort((a, b) => a.steps.length - b.steps.length);
    return new Map(longest.map(series => [series.trial_id, series]));
  }, [data, wanted]);
}

/** How the code of two experiments differs. */
export function useCode(experiments: readonly number[]): Loaded<{ files: FileDifference[]; note: string }> {
  const { api } = useApp();
  const path = `comparison/code?experiments=${experiments.join(',')}`;
  return useLoaded(experiments.length > 1 ? path : null, async signal => {
    const parts = await everyPart<CodeComparison>(api, path, 'skip', signal);
    return { files: parts.flatMap(part => part.items), note: parts[0]!.note };
  });
}

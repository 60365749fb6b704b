/** What a comparison asks the master for. */

import { useMemo } from 'react';

import { Api, everyItem, everyPart } from '../../state/api';
import { useApp } from '../../state/context';
import type { CodeComparison, ComparedSeries, FileDifference, RunComparison, SeriesView } from '../../state/wire';
import { Loaded, useLoaded } from '../common';
import type { Subjects } from './link';
import { keyOfSeries } from './model';

/** Names under which code reports how many epochs it has done. */
const EPOCHS = ['epochs', 'epoch'];
/** Points of all curves of one metric: they come in one part. */
const MOST_POINTS = 16_000;
const MOST_TRIALS = 200;

function idsQuery({ trials, experiments, runs }: Subjects): string {
  const lists: [string, readonly (number | string)[]][] = [['trials', trials], ['experiments', experiments], ['runs', runs]];
  return lists.filter(([, ids]) => ids.length).map(([key, ids]) => `${key}=${ids.map(encodeURIComponent).join(',')}`).join('&');
}

export function useComparison(chosen: Subjects, round: number): Loaded<RunComparison> {
  const { api } = useApp();
  const query = idsQuery(chosen);
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

/** Whose curves are drawn: trials, and runs that have none. */
export interface Drawn {
  trials: readonly number[];
  runs: readonly string[];
}

/** The curves of one metric of some trials and runs. */
export function useCurves(drawn: Drawn, metric: { group: string; name: string } | null, round: number): Loaded<ComparedSeries[]> {
  const { api } = useApp();
  const group = metric?.group ? `&group=${encodeURIComponent(metric.group)}` : '';
  const name = metric ? `&name=${encodeURIComponent(JSON.stringify([metric.name]))}` : '';
  const query = `${group}${name}`;
  const key = metric && drawn.trials.length + drawn.runs.length ? `${keyOf(drawn)}${query} ${round}` : null;
  return useLoaded(key, signal => loadCurves(api, drawn, query, signal));
}

function keyOf({ trials, runs }: Drawn): string {
  return `${trials.join()}/${runs.join()}`;
}

async function loadCurves(api: Api, { trials, runs }: Drawn, query: string, signal: AbortSignal): Promise<ComparedSeries[]> {
  const points = Math.min(500, Math.max(50, Math.floor(MOST_POINTS / (trials.length + runs.length))));
  const found: ComparedSeries[] = [];
  // Runs come with the first trials: by the metrics of their searches the master knows which of a run is compared with them.
  let from = 0;
  let beside = runs;
  do {
    const ids = trials.slice(from, from + MOST_TRIALS - beside.length);
    const path = `comparison/curves?${idsQuery({ trials: ids, experiments: [], runs: beside })}${query}&max_points=${points}`;
    found.push(...await everyItem<ComparedSeries>(api, path, 'skip', signal));
    from += ids.length;
    beside = [];
  } while (from < trials.length);
  return found;
}

/** How many epochs were done at which step, by `keyOfSeries`, where the code says so; null: it is not known yet. */
export function useEpochs(drawn: Drawn, wanted: boolean, round: number): ReadonlyMap<string, SeriesView> | null {
  const { api } = useApp();
  const name = `&name=${encodeURIComponent(JSON.stringify(EPOCHS))}`;
  const { data } = useLoaded(wanted && drawn.trials.length + drawn.runs.length ? `${keyOf(drawn)} ${round}` : null, signal => loadCurves(api, drawn, name, signal));
  return useMemo(() => {
    if (!data) return wanted ? null : new Map();
    const longest = [...data].sort((a, b) => a.steps.length - b.steps.length);
    return new Map(longest.map(series => [keyOfSeries(series), series]));
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

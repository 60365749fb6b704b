/** Made-up comparisons. */

import type { CodeComparison, ComparedRun, Difference, RunComparison, RunCurves, RunMetric, TrialView } from '../state/wire';
import * as made from './fixtures';

const METRICS: [string, string][] = [['validation', 'validation_error'], ['validation', 'accuracy'], ['validation', 'loss'], ['training', 'loss'], ['training', 'lr'], ['gpu', 'gpu_util'], ['cpu', 'cpu_util_simple']];
/** Ids above which nothing is the reader's to see. */
const THEIRS = 900;
/** The id of a run that is not there. */
export const ABSENT = 'absent';

export interface Compared {
  trials: readonly TrialView[];
  points: number;
  hostile?: boolean;
}

/** Runs side by side: trials by their numbers, and experiments 1, 2 …, for which the trial at their place stands. */
export function comparison({ trials, hostile }: Compared, query: URLSearchParams): RunComparison {
  const [asked, experiments] = ['trials', 'experiments'].map(key => idsOf(query, key)) as [number[], number[]];
  const tracked = (query.get('runs') ?? '').split(',').filter(Boolean);
  const mine = asked.filter(id => id < THEIRS);
  const runs = [
    ...mine.map(id => run('trial', id, [id], trials, hostile)),
    ...experiments.filter(id => id < THEIRS).map(id => run('experiment', id, seedsOf(id), trials, hostile)),
    ...tracked.filter(id => id !== ABSENT).map(id => elsewhere(id, hostile))
  ];
  return {
    runs, absent_trials: asked.filter(id => id >= THEIRS), absent_experiments: experiments.filter(id => id >= THEIRS), absent_runs: tracked.filter(id => id === ABSENT),
    hyperparameters: rows(runs.map(one => one.hparams)),
    config: rows(runs.map((one, i) => ({ entrypoint: 'train.py', 'searcher.name': one.experiment_id === 12 ? 'random' : 'grid', 'resources.slots_per_trial': 1 + (i % 2), name: one.name }))),
    metrics: METRICS.map(([group, name]) => metric(group, name, runs, hostile)), metrics_left_out: 0, next: null
  };
}

/** An experiment with an even number trains its points with three seeds. */
function seedsOf(id: number): number[] {
  return id % 2 ? [100 + id] : [100 + id, 101 + id, 102 + id];
}

function run(kind: 'trial' | 'experiment', id: number, ids: number[], trials: readonly TrialView[], hostile = false): ComparedRun {
  const first = trials.find(one => one.id === ids[0]) ?? made.trial(ids[0]! - 100, 36);
  return {
    kind, id, run_id: '', experiment_id: kind === 'trial' ? 12 + (id % 3) : id, name: hostile ? made.HOSTILE.name : kind === 'trial' ? 'digits search' : `digits ${id}`, owner: hostile ? made.HOSTILE.name : 'alice',
    labels: [], state: 'COMPLETED', trial_ids: ids, index: ids[0]! - 100, seed: 1000, seeds: ids.length, metric: 'validation_error', smaller_is_better: true,
    best: first.best_validation, deviation: ids.length > 1 ? 0.012 : null, hparams: hostile ? { [made.HOSTILE.name]: made.HOSTILE.value, lr: 0.1 } : first.hparams,
    steps_completed: first.steps_completed, created_at: made.BEGAN, started_at: first.started_at, ended_at: made.BEGAN + 900, bundle: null, shortened: []
  };
}

/** A run from anywhere, by its id. */
function elsewhere(id: string, hostile = false): ComparedRun {
  const [first] = [run('trial', 100, [], [], hostile)];
  return {
    ...first!, kind: 'run', id: 0, run_id: id, experiment_id: 0, name: hostile ? made.HOSTILE.name : 'baseline on a laptop', state: 'FINISHED', trial_ids: [], index: null, seed: null, seeds: 1,
    metric: '', best: null, deviation: null, hparams: hostile ? { [made.HOSTILE.name]: made.HOSTILE.value } : { lr: 0.03, batch_size: 64 }
  };
}

function rows(values: readonly Record<string, unknown>[]): Difference[] {
  return [...new Set(values.flatMap(Object.keys))].sort().map(name => {
    const found = values.map(one => one[name] ?? null);
    return { name, values: found, same: found.every(one => JSON.stringify(one) === JSON.stringify(found[0])) };
  });
}

function metric(group: string, name: string, runs: readonly ComparedRun[], hostile = false): RunMetric {
  const searched = name === 'validation_error';
  return {
    group, name: hostile && searched ? made.HOSTILE.name : name, smaller_is_better: searched ? true : null,
    values: runs.map((one, i) => {
      const best = searched ? Number(one.best ?? 0.4) : 0.4 + ((i * 37) % 11) / 40;
      return group === 'cpu' && i === 1 ? null : { best, last: best * 1.1, min: best * 0.9, max: 0.9, deviation: searched ? one.deviation : null };
    })
  };
}

export function curves({ points, hostile }: Compared, query: URLSearchParams): RunCurves {
  const group = query.get('group') ?? 'validation';
  const names = JSON.parse(query.get('name') ?? '[]') as string[];
  const most = Math.min(points, Number(query.get('max_points') ?? 500));
  const items = names.filter(name => name !== 'epoch').flatMap(name => idsOf(query, 'trials').map(id => {
    if (name !== 'epochs') return { ...made.series(id, most, 2, hostile ? made.HOSTILE.name : name, group), name, run_id: '' };
    const steps = [0, 2000];
    return { trial_id: id, run_id: '', group: 'training', name, steps, values: [0, 25], times: steps.map(step => made.BEGAN + step), total: 2 };
  }));
  const tracked = (query.get('runs') ?? '').split(',').filter(Boolean);
  const elsewhere = names.filter(name => !name.startsWith('epoch')).flatMap(name => tracked.map(id => ({ ...made.series(7, most, 2, name, group), name, trial_id: 0, run_id: id })));
  return { items: [...items, ...elsewhere], absent_trials: [], absent_runs: [], next: null };
}

export function code(query: URLSearchParams, hostile = false): CodeComparison {
  const diff = '--- train.py (experiment 12)\n+++ train.py (experiment 13)\n@@ -1,3 +1,3 @@\n import torch\n-lr = 0.1\n+lr = 0.2\n print(lr)\n';
  const name = hostile ? made.HOSTILE.name : 'train.py';
  return {
    experiments: idsOf(query, 'experiments'), absent_trials: [], absent_experiments: [], note: '', next: null,
    items: [{ path: name, digests: ['sha256:a', 'sha256:b'], diff: hostile ? diff.replace('import torch', made.HOSTILE.log) : diff }, { path: 'data.bin', digests: ['sha256:c', null], diff: '' }]
  };
}

function idsOf(query: URLSearchParams, key: string): number[] {
  return (query.get(key) ?? '').split(',').filter(Boolean).map(Number);
}

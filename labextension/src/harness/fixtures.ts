/** Made-up data for tests, screenshots and the bench: the same every time, as large as asked. */

import type {
  AlertView, CheckpointView, CodeFile, Event, ExperimentView, FailureView, JournalEntry, LearningView, LogLine, OverviewView, SeriesView, TaskView, TimelineItem,
  TrialView
} from '../state/wire';

/** 2026-11-20 09:00:00 UTC: when the made-up search began. */
export const BEGAN = 1_795_165_200;

/** Numbers in 0..1 that look random and are always the same. */
export function random(seed: number): () => number {
  let state = (seed * 2654435761) >>> 0 || 1;
  return () => {
    state ^= state << 13;
    state >>>= 0;
    state ^= state >>> 17;
    state ^= state << 5;
    state >>>= 0;
    return state / 4294967296;
  };
}

/** What must never do anything but be shown. */
export const HOSTILE = {
  name: '<script>window.hacked=1</script><img src=x onerror="window.hacked=1"> \u202egnp.exe\u202c \u001b[31mred\u001b[0m',
  value: '"><svg onload=window.hacked=1>',
  log: '\u001b]0;title\u0007\u001b[1;31mERROR\u001b[0m <img src=x onerror="window.hacked=1"> \u202eevil\u202c \u0000\u0008 javascript:alert(1)'
};

export function learning(trial: number, source: string): LearningView {
  const blocks = [0, 1, 2, 3].map(i => `blocks.${i}`);
  return {
    trial_id: trial, s_hash: `sha256:${'5f'.repeat(32)}`, sources: ['trusted', source, 'partner'], left_out: 0, refusals: [],
    groups: [
      { label: 'embed.weight', count: 1, scales: [1, 0, 0], levels: ['direct', 'direct', 'direct'] },
      ...blocks.map(name => ({ label: `${name}.*`, count: 12, scales: [1, 0.1, 0], levels: ['direct', 'direct', 'direct'] })),
      { label: source === 'web' ? 'head.*' : source, count: 2, scales: [1, 1, 0], levels: ['direct', 'direct', 'direct'] },
      { label: 'adapter.*', count: 4, scales: [0, 0, 1], levels: ['direct', 'direct', 'isolated'] }
    ],
    share: { trusted: 0.6, [source]: 0.3, partner: 0.1 },
    depth: {
      steps_completed: 400, left_out: 3, layers: ['embed', ...blocks, 'head', 'adapter.0'],
      shares: [[0.31, 0.2, 0.15, 0.12, 0.1, 0.12, 0], [0, 0.05, 0.06, 0.07, 0.08, 0.74, 0], [0, 0, 0, 0, 0, 0.0004, 0.9996]]
    }
  };
}

export function experiment(over: Partial<ExperimentView> = {}): ExperimentView {
  return {
    shortened: [],
    id: 12, name: 'digits: width and learning rate', description: null, labels: [], notes: null, paused_at: null, paused_seconds: 0, edited_at: null, archived_at: null, owner: 'alice', may: 'own', workspace: 'Uncategorized', workspace_id: null,
    project: 'Uncategorized', project_id: null, state: 'ACTIVE', searcher: 'adaptive_asha', metric: 'validation_error', smaller_is_better: true,
    time_metric: 'batches', max_time: 1000, log_retention_days: null, progress: 0.42, trials_total: 64, trials: { COMPLETED: 24, ERROR: 2, ACTIVE: 6, RUNNING: 4 },
    best: { trial_id: 117, trial_index: 17, steps_completed: 960, value: 0.0214, checkpoint: uuid(17), failed: false },
    created_at: BEGAN - 30, started_at: BEGAN, ended_at: null, pending_reason: null, warnings: [], bundle: 'sha256:ab',
    config: CONFIG, failure: null, card: null, budgets: [], cost: null, currency: '', deletion: null, search_task: null, forked_from: null, unmanaged: false, governed: false, values: [], source: {}, ...over
  };
}

const CONFIG = {
  name: 'digits: width and learning rate', entrypoint: 'python3 train.py',
  searcher: { name: 'adaptive_asha', metric: 'validation_error', smaller_is_better: true, max_trials: 64, max_time: 1000, time_metric: 'batches' },
  hyperparameters: {
    lr: { type: 'log', base: 10, minval: -4, maxval: -1 }, width: { type: 'int', minval: 16, maxval: 512 },
    optimizer: { type: 'categorical', vals: ['adam', 'sgd', 'adamw'] }, dropout: { type: 'double', minval: 0, maxval: 0.6 }, batch_size: 64
  },
  resources: { slots_per_trial: 1, resource_pool: 'default', priority: 42 }, max_restarts: 5,
  environment: { environment_variables: ['API_KEY=********'], image: { cpu: 'detlab/cpu:1' } },
  checkpoint_storage: { type: 'shared_fs', host_path: '/srv/detlab/checkpoints', save_experiment_best: 1, save_trial_best: 1, save_trial_latest: 1 }
};

export function uuid(seed: number): string {
  const draw = random(seed + 77);
  const hex = Array.from({ length: 32 }, () => Math.floor(draw() * 16).toString(16)).join('');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-a${hex.slice(17, 20)}-${hex.slice(20)}`;
}

/** A trial as a search would have it; every ninth failed, many are stopped, the last ones run. */
export function trial(index: number, count: number, over: Partial<TrialView> = {}): TrialView {
  const draw = random(index + 1);
  const lr = 10 ** (-4 + 3 * draw());
  const width = 16 + Math.floor(draw() * 496);
  const running = index >= count - 6;
  const failed = !running && index % 13 === 9;
  const stopped = !running && !failed && index % 4 !== 1;
  const steps = running ? 120 + Math.floor(draw() * 300) : failed ? 80 : stopped ? 250 : 1000;
  const best = 0.02 + 0.3 * Math.abs(Math.log10(lr) + 2.3) * draw() + 0.1 * draw();
  return {
    shortened: [],
    id: 100 + index, index, experiment_id: 12, request_id: uuid(index), state: running ? 'ACTIVE' : failed ? 'ERROR' : 'COMPLETED',
    allocation_state: running ? 'RUNNING' : null, display_state: running ? (index >= count - 2 ? 'QUEUED' : 'RUNNING') : '',
    end_reason: running ? null : failed ? 'error' : stopped ? 'stopped' : 'completed',
    point_due: false,
    hparams: { lr, width, optimizer: ['adam', 'sgd', 'adamw'][Math.floor(draw() * 3)], dropout: draw() * 0.6, batch_size: 64 },
    seed: 1000 + index, restarts: index % 17 === 3 ? 1 : 0, run: 1, progress: steps / 1000, status: running ? 'training' : '',
    steps_completed: steps, best_validation: failed ? null : index === 17 ? 0.0214 : best,
    latest_validation: failed ? null : index === 17 ? 0.0219 : best * 1.04, latest_checkpoint: failed ? null : uuid(index),
    agent_id: running ? `node-${1 + (index % 2)}` : null, slots: running ? [`cuda:${index % 4}`] : [],
    started_at: BEGAN + (600 * index) / count, ended_at: running ? null : BEGAN + (600 * index) / count + steps / 8,
    worked: running ? 0 : steps / 8, works_since: running ? BEGAN + (600 * index) / count : null,
    pending_reason: running && index >= count - 2 ? 'all 4 slots of pool default are in use' : null, stop_evidence: stopped ? 'at batches 300: 0.211 is worse than 0.183, the median of 12 trials (median)' : '', would_stop: [], parent: null, asked_by: '', asked_at: null, warnings: [],
    policy_matches: [], attempts: [], failure: failed ? FAILURE : null, card: null, summary: {}, summary_left_out: 0, metadata: {}, ...over
  };
}

/** A trial of a search that draws points when trials start: the first two run, the third was canceled before it started. */
export function due(index: number): Partial<TrialView> {
  const waits: Partial<TrialView> = { state: 'ACTIVE', allocation_state: 'PENDING', display_state: 'QUEUED', end_reason: null, failure: null, steps_completed: 0, progress: 0, best_validation: null, latest_validation: null, latest_checkpoint: null, started_at: null, ended_at: null, agent_id: null, stop_evidence: '', restarts: 0 };
  if (index < 2) return { ...waits, allocation_state: 'RUNNING', display_state: 'RUNNING', started_at: BEGAN, agent_id: 'node-1' };
  const over: Partial<TrialView> = index === 2 ? { state: 'CANCELED', allocation_state: null, end_reason: 'canceled' } : {};
  return { ...waits, ...over, hparams: {}, point_due: true };
}

/** A trial whose numbers are none and whose names are endless. */
export function odd(index: number): Partial<TrialView> {
  const long = 'optimizer.parameter_groups.encoder.layers.attention.learning_rate_multiplier_after_warm_up';
  const hparams: Record<string, unknown> = {
    [long]: index / 7, [`${long}_2`]: `a value that goes on and on ${'x'.repeat(200)}${index % 2}`, lr: index % 4 ? 10 ** -index : 'NaN',
    validation_error: index, same: 1, nothing: null, deep: { a: [1, 2, { b: index }] }, flag: index % 2 === 0
  };
  const value = index % 3 === 0 ? 'NaN' : index % 3 === 1 ? 'Infinity' : 0.1 * index;
  return { hparams, best_validation: value as number, latest_validation: value as number, status: long };
}

export const FAILURE: FailureView = {
  kind: 'oom', message: 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB', trial_id: 109, rank: 1, exit_code: 1,
  signal: null, where: 'train.py, line 48, in train_batch', node: 'node-2', hint: 'use a smaller batch or model, or ask for a machine with more memory; the whole output: det trial logs 109', command: null,
  log_tail: [
    'Traceback (most recent call last):', '  File "train.py", line 71, in <module>', '    trainer.fit(max_length=Batch(1000))',
    '  File "train.py", line 48, in train_batch', '    loss = self.model(batch).mean()',
    'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB'
  ]
};

/** A learning curve that falls, with noise; `points` values every `every` steps. */
export function series(of: number, points: number, every = 10, name = 'validation_error', group = 'validation'): SeriesView {
  const draw = random(of * 31 + name.length);
  const floor = 0.02 + 0.25 * draw();
  const speed = 2 + 8 * draw();
  const steps: number[] = [];
  const values: number[] = [];
  const times: number[] = [];
  for (let i = 1; i <= points; i += 1) {
    steps.push(i * every);
    const share = i / Math.max(points, 60);
    values.push(floor + (0.9 - floor) * Math.exp(-speed * share) + 0.05 * (draw() - 0.5) * Math.exp(-2 * share));
    times.push(BEGAN + 20 * (of % 100) + i * every * 0.5);
  }
  return { trial_id: of, group, name, steps, values, times, total: points };
}

export function checkpoint(index: number): CheckpointView {
  const file = (size: number, tag: string): { size: number; digest: string; mode: number } =>
    ({ size, digest: `sha256:${tag.repeat(8)}`, mode: 0o644 });
  return {
    shortened: [],
    uuid: uuid(index), trial_id: 100 + index, experiment_id: 12, tracked_run: '', run: 1, steps_completed: 250 + 10 * index, state: index % 7 === 5 ? 'DELETED' : 'COMPLETED',
    created_at: BEGAN + 600 + index * 30, size: 1_834_002 + index * 1000, files: {
      'model_0.safetensors': file(1_801_000, 'a1b2c3d4'), 'trainer.json': file(8_002, 'b2c3d4e5'), 'trainer.safetensors': file(25_000, 'c3d4e5f6')
    },
    metadata: {}, metrics: {}, storage: {}, removing: false, removal_failure: '', validation: index % 5 === 4 ? null : 0.0214 + 0.003 * ((index * 7) % 20), manifest_digest: 'sha256:00', trash_until: index % 14 === 5 ? BEGAN + 90_000 : null
  };
}

export const CODE: Record<string, string> = {
  'train.py': '"""Train a small net on the digits."""\n\nimport torch\n\nfrom detlab import pytorch\n\n\nclass DigitsTrial(pytorch.PyTorchTrial):\n    """One hidden layer; lr and width are searched."""\n\n    def __init__(self, context):\n        self.context = context\n        width = context.get_hparam("width")\n        self.model = context.wrap_model(torch.nn.Sequential(torch.nn.Linear(64, width), torch.nn.ReLU(), torch.nn.Linear(width, 10)))\n        self.opt = context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), lr=context.get_hparam("lr")))\n',
  'data/load.py': 'from sklearn.datasets import load_digits\n\n\ndef digits():\n    return load_digits(return_X_y=True)\n',
  'digits.yaml': 'name: digits\nentrypoint: python3 train.py\n',
  'README.md': '# Digits\n'
};

export function codeFiles(): CodeFile[] {
  return Object.entries(CODE).map(([path, text], i) => ({ path, size: text.length, digest: `sha256:${String(i).repeat(64)}` }));
}

export function timeline(count: number): TimelineItem[] {
  const items: TimelineItem[] = [
    { time: BEGAN - 30, what: 'created', trial_id: null, run: null, detail: 'by alice' },
    { time: BEGAN, what: 'started', trial_id: null, run: null, detail: '' }
  ];
  for (let i = 0; i < count; i += 1) {
    const time = BEGAN + 20 * i;
    items.push({ time, what: 'trial created', trial_id: 100 + i, run: null, detail: '' });
    items.push({ time: time + 2, what: 'attempt started', trial_id: 100 + i, run: 1, detail: `on node-${1 + (i % 2)}` });
    if (i < count - 6) {
      items.push({ time: time + 120, what: 'checkpoint', trial_id: 100 + i, run: 1, detail: `${uuid(i)} at step 250` });
      items.push({ time: time + 125, what: 'trial ended', trial_id: 100 + i, run: 1, detail: i % 13 === 9 ? 'error: out of memory on rank 1' : 'stopped by the searcher' });
    }
  }
  return items;
}

const WORDS = ['loaded the digits', 'epoch finished', 'validation', 'wrote a checkpoint', 'learning rate is now', 'gradient norm'];

export function logLine(id: number, over: Partial<LogLine> = {}): LogLine {
  const draw = random(id);
  const level = id % 41 === 7 ? 'ERROR' : id % 19 === 3 ? 'WARNING' : id % 3 === 0 ? 'INFO' : null;
  return {
    id, trial_id: 117, task_id: null, run: 1, rank: id < 4 ? null : id % 4, node: 'ada-box', stdtype: id < 4 ? 'launcher' : id % 5 ? 'stdout' : 'stderr', level,
    time: BEGAN + id * 0.25, text: id < 4 ? ['bundle unpacked', 'started python3 train.py', '4 ranks are up'][id - 1] ?? 'launcher'
      : `${level ? `${level}: ` : ''}${WORDS[id % WORDS.length]} ${(draw() * 10).toFixed(4)} (step ${id})`, ...over
  };
}

export function task(over: Partial<TaskView> = {}): TaskView {
  return {
    shortened: [],
    workspace: '', workspace_id: null, project: '', project_id: null, may: 'own', opens: true,
    id: 'nb-7f3a', kind: 'notebook', name: 'exploring-heron', owner: 'alice', state: 'ACTIVE', allocation_state: 'RUNNING', display_state: 'RUNNING',
    end_reason: null, slots_needed: 0, slots: [], agent_id: 'node-1', resource_pool: 'default', runtime: 'docker', image: 'detlab/notebook:1',
    priority: 42, server_name: 'nb-7f3a', url: '/user/alice/nb-7f3a/lab', server_host: '', created_at: BEGAN, started_at: BEGAN + 6, ended_at: null, exit_code: null,
    stage_message: '', place: null, pending_reason: null, last_activity: BEGAN + 500, idle_timeout: 3600, cull_at: null, experiment_ids: [],
    trial_ids: [], gpus_idle_since: null, gpus_released_at: null, schedule_id: null, failure: null, config: { resources: { slots: 0 }, runtime: 'docker', idle_timeout: 3600 }, ...over
  };
}

export function overview(experiments: number): OverviewView {
  const states = ['ACTIVE', 'COMPLETED', 'PAUSED', 'ERROR', 'COMPLETED', 'CANCELED'] as const;
  return {
    cursor: 1, me: { name: 'alice', scopes: ['custom:detlab:write'], admin: false },
    cluster: { cluster_id: 'c', version: '0.1.0', protocol: 1, url: '', started_at: BEGAN, agents: 2, slots_total: 8, slots_used: 5, tasks_running: 1, experiments_active: 3, draining: false, is_copy: false, message: null },
    experiments: Array.from({ length: experiments }, (_, i) => {
      const state = states[i % states.length]!;
      return experiment({ id: experiments - i, name: `search ${experiments - i}`, config: null, state, progress: state === 'ACTIVE' ? 0.4 : 1, ended_at: state === 'ACTIVE' ? null : BEGAN + 900, created_at: BEGAN - i * 60 });
    }),
    tasks: [task(), task({ id: 'sh-1', kind: 'shell', name: 'brave-otter', server_name: 'sh-1' })], queue: [], agents: []
  };
}

/** What people did to the search. */
export function acts(trials: readonly TrialView[], hostile = false): JournalEntry[] {
  const author = hostile ? HOSTILE.name : 'alice';
  const done: Record<string, unknown>[] = [
    { type: 'extended', trials: 16, author }, { type: 'points_added', points: [{ lr: 0.003, width: 256, optimizer: hostile ? HOSTILE.value : 'adam', dropout: 0.1 }], author },
    { type: 'space_edited', space: CONFIG.hyperparameters, author: 'bob' }, { type: 'concurrency_set', limit: 8, author },
    { type: 'stop_requested', request_id: trials[0]?.request_id ?? '', author: 'bob' }, { type: 'promotion_requested', request_id: trials[1]?.request_id ?? '', author }
  ];
  return done.map((event, i) => ({ seq: 10 + 7 * i, at: BEGAN + 90 * (i + 1), event, decisions: [] }));
}

/** A metrics event of the experiment's stream. */
export function metricsEvent(id: number, of: number, step: number, value: number, run = 1): Event {
  return {
    id, kind: 'metrics', time: BEGAN + step * 0.5, experiment_id: 12, trial_id: of, task_id: null,
    data: { group: 'validation', steps_completed: step, run, metrics: { validation_error: value } }
  };
}

/** Alerts, the newest first; two are unread. */
export function alerts(hostile?: boolean): AlertView[] {
  const alert = (id: number, over: Partial<AlertView>): AlertView => ({
    id, kind: 'completed', level: 'info', title: 'experiment 12 (digits) has completed', text: '', experiment_id: 12, trial_id: null, run_id: null,
    held_back: 0, created_at: BEGAN - 600 * (5 - id), read: id < 4, ...(hostile && { title: HOSTILE.name, text: HOSTILE.log }), ...over
  });
  return [
    alert(5, { kind: 'failed', level: 'error', ...(!hostile && { title: 'experiment 14 (digits: width and learning rate) has failed', text: 'trial 117: out of memory on cuda:0' }) }),
    alert(4, { kind: 'improved', ...(!hostile && { title: 'experiment 12: validation_error is better than ever: 0.0214', text: 'by 0.003, at step 960 of trial 117' }) }),
    alert(3, { held_back: 12, kind: 'alert', level: 'warn', experiment_id: null, run_id: 'a'.repeat(32), ...(!hostile && { title: 'loss is not a number', text: 'step 400\nlr 0.1' }) }),
    alert(2, {}), alert(1, { kind: 'budget', level: 'warn', ...(!hostile && { title: 'experiment 12 has used 80 % of its budget of slot-hours' }) })
  ];
}

/** Made-up models, versions and storage: what the registry's views are shown with. */

import type {
  Comparison, Difference, EvidenceSummary, GcPreview, LabelMove, LineageGraph, ModelView, StorageUsage, StorageUse, VersionView
} from '../state/wire';
import { BEGAN, HOSTILE, uuid } from './fixtures';

const DAY = 86_400;

export const NOTES = `## What it is for

Reads handwritten digits of **8 × 8** pixels. Trained by *alice* on [optdigits](https://archive.ics.uci.edu/dataset/80).

- accuracy falls below 0.9 on rotated digits
- \`width\` above 256 gained nothing

| set | accuracy |
|-----|----------|
| validation | 0.981 |
| rotated | 0.874 |

\`\`\`python
model = det.load_model("digits@production")
\`\`\`
`;

const HOSTILE_NOTES = `${HOSTILE.name}\n\n[x](javascript:alert(1)) ![y](https://evil.example/p.png) \`${HOSTILE.value}\`\n\n${HOSTILE.log}\n\n<iframe src="https://evil.example"></iframe>`;

export function model(over: Partial<ModelView> = {}): ModelView {
  return {
    shortened: [],
    id: 1, name: 'digits', owner: 'alice', description: 'Handwritten digits, one hidden layer', notes: NOTES,
    metadata: { dataset: 'optdigits', reviewers: ['bob', 'carol'], limit_ms: 12.5 }, labels: ['vision', 'small'], archived: false, created_at: BEGAN - 9 * DAY,
    updated_at: BEGAN - 3600, versions: 5, latest: 5, moving: { staging: 5, production: 3 }, right: 'own', reference: over.name ?? 'digits', workspace: '', workspace_id: null, ...over
  };
}

export function hostileModel(id: number): ModelView {
  const odd = `${HOSTILE.name} ${'long '.repeat(12)}${id}`;
  return model({ id, name: odd, owner: HOSTILE.name, description: HOSTILE.value, notes: HOSTILE_NOTES, labels: [HOSTILE.value], metadata: { [HOSTILE.name]: HOSTILE.value }, moving: { [HOSTILE.value]: 2 } });
}

export function models(): ModelView[] {
  return [
    model(),
    model({ id: 2, name: 'speech-to-text', owner: 'bob', reference: 'bob/speech-to-text', description: 'Whisper, tuned for our call centre; the long description goes on and is cut in the list where it has to be, but not before.', labels: ['audio', 'large', 'multilingual'], versions: 41, latest: 41, moving: { production: 38, staging: 41, canary: 41, 'eu-west': 36 }, updated_at: BEGAN - 2 * DAY, right: 'read' }),
    model({ id: 3, name: 'ranking v2', owner: 'carol', reference: 'carol/ranking v2', description: '', labels: [], versions: 0, latest: null, moving: {}, updated_at: BEGAN - 20 * DAY, right: 'write' })
  ];
}

/** What a governed checkpoint was trained on. */
const GOVERNED: EvidenceSummary = {
  key_id: 'a1', policy_hash: `sha256:${'4e'.repeat(32)}`, s_hash: `sha256:${'cd'.repeat(32)}`, enforce: 'strict', ledger_index: 3, ledger_hash: `sha256:${'ef'.repeat(32)}`, privacy: null,
  sources: [
    { name: 'web', license: 'CC-BY-4.0', manifest: null, expires: null, samples: 120_000, reached: true, level: 'direct' },
    { name: 'clinic-a', license: 'research only', manifest: null, expires: null, samples: 4100, reached: true, level: 'isolated' },
    { name: 'clinic-b', license: '', manifest: null, expires: null, samples: 1, reached: false, level: '' }
  ]
};

export function version(number: number, over: Partial<VersionView> = {}): VersionView {
  const accuracy = 0.931 + 0.0125 * number - (number === 4 ? 0.03 : 0);
  return {
    shortened: [], withdrawn: [],
    model_id: 1, model: 'digits', model_reference: over.model ?? 'digits', version: number, semver: number > 1 ? `1.${number - 2}.0` : null, labels: number === 3 ? ['production'] : number === 5 ? ['staging'] : [], name: number === 5 ? 'wider' : '',
    comment: number === 5 ? 'The best of the search over width and learning rate' : '', notes: number === 5 ? 'Needs a **recheck** on rotated digits before it goes to production.' : '', metadata: number === 5 ? { approved: false } : {}, owner: number % 2 ? 'alice' : 'bob',
    created_at: BEGAN - (6 - number) * DAY, updated_at: BEGAN - (6 - number) * DAY, checkpoint: uuid(number), checkpoint_state: 'COMPLETED', size: 1_834_002 + number * 120_000,
    manifest_digest: `sha256:${'9f'.repeat(32)}`, format: number === 1 ? 'pickle' : 'safetensors', lineage: {
      experiment_id: 10 + number, experiment_name: 'digits: width and learning rate', trial_id: 100 + number, tracked_run: '', run: 1, steps_completed: 200 * number, hyperparameters: { lr: 0.003 / number, width: 64 * number, optimizer: number > 2 ? 'adamw' : 'adam', dropout: 0.1 },
      metrics: { accuracy, loss: 0.31 - 0.03 * number, 'training.loss': 0.22 - 0.03 * number, 'validation.accuracy': accuracy }, metric: 'accuracy', smaller_is_better: false,
      config: { name: 'digits', entrypoint: 'python3 train.py', searcher: { name: 'adaptive_asha', metric: 'accuracy' } }, bundle_digest: `sha256:${String(number).repeat(64)}`,
      environment: { python: '3.12.4', platform: 'Linux-6.8-x86_64', torch: number > 3 ? '2.9.0' : '2.8.0', numpy: '2.3.1', safetensors: '0.6.2' }, data: { optdigits: `sha256:${'c0ffee'.repeat(10)}` },
      parents: [], slots: 1, device: 'NVIDIA H100', submitter: 'alice', governed: number === 5 ? GOVERNED : null, started_at: BEGAN - (6 - number) * DAY - 900, ended_at: BEGAN - (6 - number) * DAY - 60
    }, ...over
  };
}

export function hostileVersion(number: number): VersionView {
  const made = version(number);
  const odd = { [HOSTILE.name]: HOSTILE.value };
  return {
    ...made, withdrawn: [HOSTILE.log], model: hostileModel(1).name, name: HOSTILE.name, comment: HOSTILE.value, notes: HOSTILE_NOTES, semver: HOSTILE.value, labels: [HOSTILE.value], owner: HOSTILE.name, metadata: odd, format: HOSTILE.value,
    lineage: { ...made.lineage, experiment_name: HOSTILE.name, hyperparameters: odd, metrics: { [HOSTILE.name]: 0.5, accuracy: 0.9 }, environment: { [HOSTILE.name]: HOSTILE.value, python: HOSTILE.value }, data: { [HOSTILE.name]: HOSTILE.log }, submitter: HOSTILE.name, device: HOSTILE.value, parents: [HOSTILE.value], governed: { ...GOVERNED, policy_hash: HOSTILE.value, sources: [{ ...GOVERNED.sources[0]!, level: HOSTILE.value, name: HOSTILE.name, license: HOSTILE.log }] }, config: odd, bundle_digest: HOSTILE.value }
  };
}

export function moves(hostile = false): LabelMove[] {
  const by = hostile ? HOSTILE.name : 'bob';
  const reason = hostile ? HOSTILE.log : 'passed the review of 20 November';
  return [
    { id: 4, label: 'staging', from_version: 4, to_version: 5, by, at: BEGAN - 3600, reason },
    { id: 3, label: 'canary', from_version: 4, to_version: null, by: 'alice', at: BEGAN - DAY, reason: '' },
    { id: 2, label: 'production', from_version: 2, to_version: 3, by: 'alice', at: BEGAN - 2 * DAY, reason: 'better on rotated digits, and half as large' },
    { id: 1, label: 'production', from_version: null, to_version: 2, by: 'alice', at: BEGAN - 4 * DAY, reason: 'first' }
  ];
}

export function lineage(hostile = false): LineageGraph {
  const name = hostile ? HOSTILE.name : 'digits: width and learning rate';
  return {
    nodes: [
      { id: 'version:digits@5', kind: 'version', label: 'digits@5', detail: 'staging' }, { id: `checkpoint:${uuid(5)}`, kind: 'checkpoint', label: `checkpoint ${uuid(5)}`, detail: 'step 1000' },
      { id: 'trial:105', kind: 'trial', label: 'trial 105', detail: 'lr 0.0006, width 320' }, { id: 'experiment:15', kind: 'experiment', label: 'experiment 15', detail: name },
      { id: 'code:sha256:55', kind: 'code', label: `code sha256:${'5'.repeat(64)}`, detail: '' }, { id: 'data:optdigits', kind: 'data', label: 'optdigits', detail: hostile ? HOSTILE.log : 'sha256:c0ffee' },
      { id: `checkpoint:${uuid(2)}`, kind: 'checkpoint', label: `checkpoint ${uuid(2)}`, detail: '' }, { id: 'trial:102', kind: 'trial', label: 'trial 102', detail: '' }, { id: 'version:digits@2', kind: 'version', label: 'digits@2', detail: '' }
    ],
    edges: [
      { source: 'version:digits@5', target: `checkpoint:${uuid(5)}`, label: 'registered from' }, { source: `checkpoint:${uuid(5)}`, target: 'trial:105', label: 'saved by' },
      { source: 'trial:105', target: 'experiment:15', label: 'of' }, { source: 'experiment:15', target: 'code:sha256:55', label: 'runs' }, { source: 'trial:105', target: 'data:optdigits', label: 'reads' },
      { source: 'trial:105', target: `checkpoint:${uuid(2)}`, label: 'started from' }, { source: `checkpoint:${uuid(2)}`, target: 'trial:102', label: 'saved by' }, { source: 'version:digits@2', target: `checkpoint:${uuid(2)}`, label: 'registered from' }
    ]
  };
}

const DIFF = `--- version 3/train.py
+++ version 5/train.py
@@ -12,7 +12,8 @@
     def __init__(self, context):
         self.context = context
         width = context.get_hparam("width")
-        self.model = context.wrap_model(net(width))
+        dropout = context.get_hparam("dropout")
+        self.model = context.wrap_model(net(width, dropout))
         self.opt = context.wrap_optimizer(AdamW(self.model.parameters()))
`;

export function comparison(numbers: readonly number[], hostile = false): Comparison {
  const versions = numbers.map(number => (hostile ? hostileVersion(number) : version(number)));
  const rows = (of: (v: VersionView) => Record<string, unknown>): Difference[] => {
    const names = [...new Set(versions.flatMap(v => Object.keys(of(v))))];
    return names.map(name => {
      const values = versions.map(v => of(v)[name] ?? null);
      return { name, values, same: values.every(value => value === values[0]) };
    });
  };
  return {
    versions, metrics: rows(v => v.lineage.metrics), hyperparameters: rows(v => v.lineage.hyperparameters), environment: rows(v => v.lineage.environment),
    config: [{ name: hostile ? HOSTILE.name : 'searcher.max_time', values: versions.map((_, i) => (hostile ? HOSTILE.value : 500 * (i + 1))), same: false }],
    code: [
      { path: hostile ? HOSTILE.name : 'train.py', digests: versions.map((_, i) => `sha256:${i}`), diff: hostile ? `@@ -1 +1 @@\n-${HOSTILE.name}\n+${HOSTILE.log}\n` : DIFF },
      { path: 'data/load.py', digests: versions.map((_, i) => (i ? null : 'sha256:0')), diff: '' }
    ]
  };
}

export function gc(best = 0, trialBest = 1, latest = 1): GcPreview {
  const keep = Math.min(12, best + 2 * trialBest + latest);
  const items = Array.from({ length: 12 }, (_, i) => ({
    uuid: uuid(i + 1), trial_id: 101 + i, steps_completed: 250 + 10 * i, metric: 0.02 + 0.003 * i, size: 1_834_002, keep: i < keep || i === 7, why: i < keep ? ['best of its trial'] : i === 7 ? [] : ['matches no rule'],
    pins: i === 7 ? [{ kind: 'version' as const, reason: 'version 3 of model digits' }] : i === 1 ? [{ kind: 'bookmark' as const, reason: 'bookmarked by alice: for the talk' }] : []
  })).sort((a, b) => Number(a.keep) - Number(b.keep));
  const going = items.filter(item => !item.keep).length;
  return {
    experiment_id: 12, policy: { save_experiment_best: best, save_trial_best: trialBest, save_trial_latest: latest }, items, left_out: 0, going, staying: items.length - going,
    freed: going * 1_834_002, kept: (items.length - going) * 1_834_002, applied: false, trash_until: BEGAN + 7 * DAY
  };
}

export function storage(by: StorageUsage['by'], hostile = false): StorageUsage {
  const GIB = 2 ** 30;
  const one = (name: string, gib: number, over: Partial<StorageUse> = {}): StorageUse => ({
    name: hostile ? `${HOSTILE.name} ${name}` : name, experiment_id: null, owner: '', checkpoints: Math.round(gib * 30), checkpoint_bytes: gib * GIB, trash_bytes: gib * 0.2 * GIB, other_bytes: gib * 0.1 * GIB, freed_bytes: gib * 3 * GIB,
    used: 1.1 * gib * GIB, limit: null, ...over
  });
  const items = by === 'user' ? [one('alice', 8.2, { limit: 10 * GIB }), one('bob', 3.1, { limit: 100 * GIB }), one('carol', 0.2)]
    : by === 'group' ? [one('vision', 11.5, { limit: 50 * GIB })]
      : by === 'project' ? [one('Uncategorized/Uncategorized', 9.1), one('speech/tuning', 2.4)] : [one('digits: width and learning rate', 6, { experiment_id: 12, owner: 'alice' }), one('speech', 2, { experiment_id: 9, owner: 'bob' })];
  return {
    by, items, total: one('', 11.5), more: by === 'experiment' ? 12 : 0,
    warnings: by === 'user' ? ['You use 9.0 GiB of your 10.0 GiB of storage (90 %): delete checkpoints that you no longer need.'] : []
  };
}

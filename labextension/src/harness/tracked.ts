/** Made-up runs that no cluster started. */

import type { RunCurve, RunCurveList, RunFileList, RunView, RunViewList } from '../state/wire';
import { BEGAN, HOSTILE } from './fixtures';
import * as media from './media';

const STATES = ['RUNNING', 'FINISHED', 'FINISHED', 'FAILED', 'KILLED'] as const;
const WHY = ['', '', '', "ValueError: expected 64 features, the batch has 63 (train.py, line 41)", 'ended by SIGTERM'];
const METRICS = ['loss', 'val.accuracy', 'val.loss', 'lr'];
const SYSTEM = ['system/cpu_util_percent', 'system/memory_free_gb', 'system/gpu_util_percent_0', 'system/gpu_free_memory_gb_0'];
const STEPS = 400;

function valueAt(name: string, step: number, i: number): number {
  const part = step / STEPS;
  if (name.startsWith('system/')) return 50 + 40 * Math.sin(step / 9 + name.length + i);
  if (name.includes('accuracy')) return 0.98 - 0.9 * Math.exp(-4 * part) + 0.01 * Math.sin(step);
  if (name === 'lr') return 0.1 * (1 - part);
  return 2.3 * Math.exp(-3 * part) + 0.05 + 0.04 * Math.sin(step * (i + 1)) ** 2;
}

export function run(i: number, hostile = false): RunView {
  const status = STATES[i % STATES.length]!;
  const names = [...METRICS, ...SYSTEM].map(name => (hostile ? `${HOSTILE.name} ${name}` : name));
  const plain = [...METRICS, ...SYSTEM];
  const bad = hostile ? HOSTILE.name : '';
  return {
    id: i.toString(16).padStart(32, 'a'), key: bad || `key-${i}`, name: bad || (i % 4 ? `baseline ${i}: wider, warmup` : ''), owner: bad || ['alice', 'bob'][i % 2]!, status, end_reason: (hostile ? HOSTILE.log : WHY[i % WHY.length])!,
    workspace: 'alice/vision', project: bad || 'digits', project_id: 3, experiment_id: null, group: bad || (i % 3 ? 'ablation-of-width' : ''), job_type: i % 3 ? ['train', 'eval'][i % 2]! : '',
    notes: hostile ? `${HOSTILE.log}\n\n[click](javascript:alert(1)) ${HOSTILE.name}` : i % 5 ? '' : 'The first with **warmup**. Diverges above `lr` 0.2.',
    started_at: BEGAN - i * 5000, ended_at: status === 'RUNNING' ? null : BEGAN - i * 5000 + 3100, heard_at: status === 'RUNNING' ? BEGAN + 750 : BEGAN - i * 5000 + 3100, deleted: false, may: 'own', shortened: [],
    config: { ...(hostile ? { [HOSTILE.name]: HOSTILE.value } : {}), lr: ['0.1', '0.03', '0.01'][i % 3]!, 'net.depth': String(2 + (i % 4)), optimizer: 'adam', seed: '7' },
    tags: {
      'detlab.key': `key-${i}`, 'mlflow.source.git.commit': '63281ef24b9c2f0d8f7d1f0b5c1f8a7a90d0e4b1', 'mlflow.source.git.branch': bad || 'warmup', 'mlflow.source.git.repoURL': hostile ? 'javascript:alert(1)' : 'https://git.example.org/vision/digits.git',
      'detlab.git.changed': '2', 'mlflow.source.name': hostile ? HOSTILE.value : '/home/alice/digits/train.py', 'detlab.command': 'python train.py --lr 0.1 --token ********', 'detlab.host': bad || 'laptop-7', 'detlab.python': '3.12.4', 'detlab.platform': 'Linux-6.1-x86_64', stage: bad || 'test'
    },
    metrics: Object.fromEntries(names.map((name, at) => [name, { value: i === 2 && at === 0 ? 'NaN' : valueAt(plain[at]!, STEPS, i), step: STEPS, time: BEGAN - i * 5000 + 3000 }])),
    summary: { best: 0.982, note: hostile ? HOSTILE.name : 'plateau after 300 steps', classes: { cat: 0.9, dog: 0.97 } }
  };
}

function curves(of: RunView, i: number, query: URLSearchParams): RunCurveList {
  const items = query.getAll('name').map((name): RunCurve => {
    const count = name.includes('system/') ? 60 : STEPS;
    const steps = Array.from({ length: count }, (_, at) => at);
    return {
      name, steps, values: steps.map(step => (name.includes('val.loss') && step === 120 ? 'NaN' : valueAt(name.split(' ').pop()!, (step * STEPS) / count, i)) as number),
      times: steps.map(step => of.started_at + (3000 * step) / count), total: count
    };
  });
  return { items, next: null };
}

function files(hostile: boolean): RunFileList {
  const paths = ['code/diff.patch', 'code/train.py', 'code/untracked.txt', 'requirements.txt', 'plots/confusion.png', 'model/weights.bin', 'model/card.md'];
  return { items: paths.map((path, i) => ({ path: hostile ? `${path.split('/')[0]}/${HOSTILE.value}` + i : path, size: 1200 * (i + 1) ** 3, updated_at: BEGAN })), next: null };
}

export function answer(count: number, id: string | undefined, part: string | undefined, rest: string | undefined, query: URLSearchParams, hostile: boolean): unknown {
  if (id === undefined) {
    const items = Array.from({ length: Math.min(count, 37) }, (_, i) => run(i, hostile)).filter(one => [['status', one.status], ['group', one.group], ['job_type', one.job_type]].every(([name, value]) => (query.get(name!) ?? value) === value));
    return { items, next: null } satisfies RunViewList;
  }
  const i = Number.parseInt(id.replace(/^a+/, '') || '0', 16);
  const one = count ? run(i, hostile) : { ...run(0), metrics: {}, config: {}, summary: {}, tags: {}, notes: '' };
  if (part === undefined) return one;
  if (part === 'curves') return curves(one, i, query);
  if (part === 'media' && rest === 'keys') return media.keys(count, hostile);
  if (part === 'media' && rest === 'steps') return media.steps(count);
  if (part === 'media') return media.page(0, query, hostile);
  if (part === 'files') return count ? files(hostile) : { items: [], next: null };
  return undefined;
}

const TEXTS: Record<string, string> = {
  'code/diff.patch': '--- a/train.py\n+++ b/train.py\n@@ -38,7 +38,8 @@\n     for step in range(1000):\n-        lr = 0.1\n+        lr = 0.1 * min(1, step / 100)\n         train(step, lr)\n',
  'code/train.py': 'import detlab as det\n\ndet.init(project="digits", config={"lr": 0.1})\nfor step in range(400):\n    det.log({"loss": 1 / (step + 1)})\ndet.finish()\n',
  'requirements.txt': 'numpy==2.2.1\ntorch==2.6.0\n'
};

/** The text of a file of a run; null: it is none. */
export function text(path: string, hostile: boolean): string | null {
  const found = /^runs\/[^/]+\/file\?path=(.*)$/.exec(path);
  if (!found) return null;
  return hostile ? `${HOSTILE.log}\n${HOSTILE.name}` : TEXTS[decodeURIComponent(found[1]!)] ?? 'code/notes.md\n';
}

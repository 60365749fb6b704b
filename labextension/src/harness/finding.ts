/** Made-up rows of the tables of runs, completions and saved views. */

import type { Candidate, Completions, ExperimentPage, FoundTrial, FoundTrials, SavedView } from '../state/wire';
import { BEGAN, experiment, HOSTILE } from './fixtures';

const STATES = ['ACTIVE', 'COMPLETED', 'COMPLETED', 'ERROR', 'CANCELED'] as const;
const COLUMNS: Candidate[] = [
  ['id', 'its number'], ['name', 'name of the experiment'], ['state', 'where it stands'], ['owner', 'who submitted it; `me` is who asks'],
  ['label', 'a label of the experiment'], ['created', 'when it was submitted, or made by its search'], ['duration', 'from its start to its end, or until now'], ['steps', 'steps completed']
].map(([text, about]) => ({ text: text!, kind: 'column', about: about! }));
const HPARAMS: Candidate[] = ['hparams.lr', 'hparams.width', 'hparams.optimizer.name'].map(text => ({ text, kind: 'hyperparameter', about: '' }));
const METRICS: Candidate[] = ['accuracy', 'val/loss', 'val/f1', 'loss', 'training.loss', 'training.lr'].map(text => ({ text, kind: 'metric', about: 'of validation' }));

/** A number from 0 to 1 that looks like chance. */
function chance(i: number, salt: number): number {
  return Math.abs(Math.sin(i * 12.9898 + salt * 78.233) * 43_758.5453) % 1;
}

function valueOf(i: number, column: string, hostile: boolean): unknown {
  if (column.includes('optimizer')) return i % 2 ? 'adam' : 'sgd';
  if (column === 'hparams.width') return 16 << (i % 5);
  if (column === 'duration') return 60 + Math.round(chance(i, 4) * 9000);
  if (column === 'gone') return null;
  if (hostile) return HOSTILE.value;
  return i % 97 === 0 ? 'NaN' : column === 'hparams.lr' ? 10 ** (-1 - 3 * chance(i, 1)) : chance(i, column.length);
}

function kindOf(column: string): string {
  if (column.startsWith('hparams.')) return 'any';
  return column === 'duration' ? 'duration' : 'number';
}

function columnsOf(query: URLSearchParams): string[] {
  const given = query.get('column');
  return given === null ? [] : (JSON.parse(given) as string[]);
}

export function trials(count: number, query: URLSearchParams, hostile = false): FoundTrials {
  const columns = columnsOf(query);
  const begin = count - Number(query.get('after') ?? count + 1) + 1;
  const most = Math.min(begin + Number(query.get('limit') ?? 100), count);
  const items: FoundTrial[] = [];
  for (let i = begin; i < most; i += 1) {
    const state = STATES[i % STATES.length]!;
    items.push({
      id: count - i, experiment_id: 12 + Math.floor((count - i) / 40), index: i % 40, name: hostile ? HOSTILE.name : `digits ${Math.floor((count - i) / 40)}`, owner: hostile ? HOSTILE.name : ['alice', 'bob'][i % 2]!,
      labels: hostile ? [HOSTILE.value] : i % 3 ? ['paper', 'baseline'].slice(0, i % 3) : [], state, end_reason: null, hparams: {}, steps_completed: 960 - (i % 90), restarts: 0, progress: state === 'ACTIVE' ? 0.4 : 1,
      best_validation: chance(i, 3), metric: 'validation_error', created_at: BEGAN - i * 60, started_at: BEGAN - i * 60 + 5, ended_at: state === 'ACTIVE' ? null : BEGAN, values: columns.map(one => valueOf(i, one, hostile)), shortened: []
    });
  }
  return { items, columns: columns.map(name => ({ name, kind: kindOf(name) })), notes: columns.includes('gone') ? ["nothing that you may see has a metric 'gone' in the group 'validation'"] : [], next: most < count ? count - most + 1 : null };
}

export function experiments(count: number, query: URLSearchParams, hostile = false): ExperimentPage {
  const found = trials(count, new URLSearchParams({ ...Object.fromEntries(query), after: query.get('before') ?? String(count + 1) }), hostile);
  const items = found.items.map((one, i) => experiment({
    id: one.id + 1000, name: hostile ? HOSTILE.name : `digits ${one.id}: width and learning rate`, owner: one.owner, labels: one.labels, state: one.state === 'ACTIVE' ? 'ACTIVE' : one.state, config: null,
    created_at: one.created_at, values: one.values, progress: one.progress, trials: { COMPLETED: i % 40, ACTIVE: 2 }
  }));
  return { ...found, items, next: found.next };
}

export function completions(query: URLSearchParams, hostile = false): Completions {
  const filter = query.get('filter') ?? '';
  const cursor = Number(query.get('cursor') ?? filter.length);
  const word = /[\w./"]*$/.exec(filter.slice(0, cursor))![0];
  const kind = query.get('kind');
  const odd: Candidate[] = hostile ? [{ text: HOSTILE.name, kind: 'metric', about: HOSTILE.log }] : [];
  const items = [...COLUMNS, ...HPARAMS, ...METRICS, ...odd].filter(one => (kind === null || one.kind === kind) && one.text.includes(word));
  return { begin: cursor - word.length, items, problem: '', column: null };
}

export function views(hostile = false): SavedView[] {
  return ['good', hostile ? HOSTILE.name : 'last week'].map((name, i) => ({
    id: i + 1, name, table: 'trials', filter: 'accuracy > 0.9 and label = paper', sort: ['-accuracy'], columns: ['id', 'name', 'accuracy'], layout: { pinned: ['name'], heat: ['accuracy'] },
    owner: 'alice', project_id: null, project: '', workspace: '', created_at: BEGAN, updated_at: BEGAN
  }));
}

/** What the master says of a filter that ends too soon. */
export function problemOf(filter: string): string | null {
  if (!/[=<>]\s*$/.test(filter)) return null;
  return `the filter cannot be read at column ${filter.length + 1}: a value is missing after the operator\n  ${filter}\n  ${' '.repeat(filter.length)}^`;
}

/** What is done with selected rows. */

import { asApiError, type Api } from '../../state/api';
import type { RunTable } from './request';

export interface BatchAction {
  key: string;
  label: string;
  /** What has happened, such as `paused`. */
  done: string;
  danger?: boolean;
  /** What it was done with is listed no more. */
  leaves?: boolean;
  /** Asked before it, where work is lost. */
  question?: string;
  /** The request for one row. */
  path(id: number): string;
  body?: unknown;
  /** In a request for many: the act, if not the key, and its labels. */
  act?: string;
  labels?: readonly string[];
}

export interface Refusal { id: number; message: string }

export interface BatchEnd {
  done: number;
  unchanged: number;
  refused: readonly Refusal[];
  left: number;
  /** What ended it before its end. */
  problem: string | null;
  /** Requests that take it back. */
  undo: readonly unknown[];
}

/** The answer of `experiments/batch`, as far as it is read. */
interface BatchAnswer {
  items: { id: number; result: 'done' | 'unchanged' | 'refused'; reason: string }[];
  left: number[];
  undo: unknown[];
}

const edit = (id: number): string => `experiments/${id}/edit`;
const verb = (name: string) => (id: number): string => `experiments/${id}/${name}`;

export const ACTIONS: Record<RunTable, readonly BatchAction[]> = {
  experiments: [
    { key: 'pause', label: 'Pause', done: 'paused', path: verb('pause') },
    { key: 'activate', label: 'Activate', done: 'activated', path: verb('activate') },
    { key: 'cancel', label: 'Cancel', done: 'canceled', danger: true, question: 'Their trials save a checkpoint and end.', path: verb('cancel') },
    { key: 'kill', label: 'Kill', done: 'killed', danger: true, question: 'Their trials end now. Work since their last checkpoints is lost.', path: verb('kill') },
    { key: 'archive', label: 'Archive', done: 'archived', leaves: true, path: edit, body: { archived: true } },
    { key: 'unarchive', label: 'Unarchive', done: 'unarchived', path: edit, body: { archived: false } }
  ],
  trials: [
    { key: 'kill', label: 'Kill', done: 'killed', danger: true, question: 'They end now; their experiments go on.', path: id => `trials/${id}/kill` }
  ]
};

export function labelAction(label: string, add: boolean): BatchAction {
  const body = add ? { add_labels: [label] } : { remove_labels: [label] };
  return { key: 'label', label: add ? 'Add label' : 'Remove label', done: add ? 'labelled' : 'without the label', path: edit, body, act: add ? 'add_labels' : 'remove_labels', labels: [label] };
}

/** Experiments of one request: so that one hears soon how far it is. */
const AT_ONCE = 100;
const BATCH = 'experiments/batch';

/** Do it with all ids, by requests for many where the master takes these; `onDone` hears how many are behind it. */
export async function runBatch(
  api: Api, table: RunTable, action: BatchAction, ids: readonly number[], onDone: (count: number) => void, signal: AbortSignal
): Promise<BatchEnd> {
  const many = table === 'experiments' ? await byMany(api, action, ids, onDone, signal) : null;
  return many ?? oneByOne(api, action, ids, onDone, signal);
}

/** Null: this master has no such route. */
async function byMany(
  api: Api, action: BatchAction, ids: readonly number[], onDone: (count: number) => void, signal: AbortSignal
): Promise<BatchEnd | null> {
  const items: BatchAnswer['items'] = [];
  const undo: unknown[] = [];
  let todo = [...ids];
  let problem: string | null = null;
  while (todo.length && !signal.aborted && problem === null) {
    const part = todo.slice(0, AT_ONCE);
    try {
      const answer = await api.post<BatchAnswer>(BATCH, { act: action.act ?? action.key, experiment_ids: part, labels: action.labels ?? [] });
      items.push(...answer.items);
      undo.unshift(...answer.undo);
      todo = [...answer.left, ...todo.slice(AT_ONCE)];
      if (answer.left.length === part.length) problem = 'None of them was reached in time: try again.';
      onDone(ids.length - todo.length);
    } catch (error) {
      const said = asApiError(error);
      if (!items.length && (said.status === 404 || said.status === 405)) return null;
      problem = said.message;
    }
  }
  const count = (result: string): number => items.filter(one => one.result === result).length;
  const refused = items.filter(one => one.result === 'refused').map(one => ({ id: one.id, message: one.reason }));
  return { done: count('done'), unchanged: count('unchanged'), refused, left: todo.length, problem, undo };
}

/** One request for each; a user who is logged out, or nobody answering, ends it. */
async function oneByOne(
  api: Api, action: BatchAction, ids: readonly number[], onDone: (count: number) => void, signal: AbortSignal
): Promise<BatchEnd> {
  const refused: Refusal[] = [];
  let at = 0;
  let problem: string | null = null;
  for (; at < ids.length && !signal.aborted && problem === null; at += 1) {
    try {
      await api.post(action.path(ids[at]!), action.body ?? {});
    } catch (error) {
      const said = asApiError(error);
      refused.push({ id: ids[at]!, message: said.message });
      if (said.status === 0 || said.status === 401) problem = said.message;
    }
    onDone(at + 1);
  }
  return { done: at - refused.length, unchanged: 0, refused, left: ids.length - at, problem, undo: [] };
}

/** Take back what a batch has done. */
export async function undoBatch(api: Api, requests: readonly unknown[]): Promise<void> {
  for (const request of requests) await api.post(BATCH, request);
}

/** What is done with selected rows, one after the other. */

import { asApiError, type Api } from '../../state/api';
import type { RunTable } from './request';

export interface BatchAction {
  key: string;
  label: string;
  /** What has happened, such as `paused`. */
  done: string;
  danger?: boolean;
  /** Asked before it, where work is lost. */
  question?: string;
  /** The request for one row. */
  path(id: number): string;
  body?: unknown;
}

export interface Refusal { id: number; message: string }

export interface BatchEnd { done: number; refused: readonly Refusal[]; left: number }

const edit = (id: number): string => `experiments/${id}/edit`;
const verb = (name: string) => (id: number): string => `experiments/${id}/${name}`;

export const ACTIONS: Record<RunTable, readonly BatchAction[]> = {
  experiments: [
    { key: 'pause', label: 'Pause', done: 'paused', path: verb('pause') },
    { key: 'activate', label: 'Activate', done: 'activated', path: verb('activate') },
    { key: 'cancel', label: 'Cancel', done: 'canceled', danger: true, question: 'Their trials save a checkpoint and end.', path: verb('cancel') },
    { key: 'kill', label: 'Kill', done: 'killed', danger: true, question: 'Their trials end now. Work since their last checkpoints is lost.', path: verb('kill') },
    { key: 'archive', label: 'Archive', done: 'archived', path: edit, body: { archived: true } },
    { key: 'unarchive', label: 'Unarchive', done: 'unarchived', path: edit, body: { archived: false } }
  ],
  trials: [
    { key: 'kill', label: 'Kill', done: 'killed', danger: true, question: 'They end now; their experiments go on.', path: id => `trials/${id}/kill` }
  ]
};

export function labelAction(label: string, add: boolean): BatchAction {
  const body = add ? { add_labels: [label] } : { remove_labels: [label] };
  return { key: 'label', label: add ? 'Add label' : 'Remove label', done: add ? 'labelled' : 'without the label', path: edit, body };
}

/** Do it for each id in turn; `onDone` hears how many are behind it. A user who is logged out or unreachable ends it. */
export async function runBatch(
  api: Api, action: BatchAction, ids: readonly number[], onDone: (count: number) => void, signal: AbortSignal
): Promise<BatchEnd> {
  const refused: Refusal[] = [];
  let at = 0;
  for (; at < ids.length && !signal.aborted; at += 1) {
    try {
      await api.post(action.path(ids[at]!), action.body ?? {});
    } catch (error) {
      const problem = asApiError(error);
      refused.push({ id: ids[at]!, message: problem.message });
      if (problem.status === 0 || problem.status === 401) {
        at += 1;
        break;
      }
    }
    onDone(at + 1);
  }
  return { done: at - refused.length, refused, left: ids.length - at };
}

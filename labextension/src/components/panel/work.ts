/** "My work" as one list: experiments and tasks, active ones first; and its filter. */

import { experimentState, isOver, shownState, stateWord } from '../../state/states';
import type { ExperimentView, TaskKind, TaskView } from '../../state/wire';

export type Work =
  | { kind: 'experiment'; key: string; over: boolean; time: number; experiment: ExperimentView }
  | { kind: 'task'; key: string; over: boolean; time: number; task: TaskView };

export const KIND_WORDS: Record<TaskKind, string> = {
  notebook: 'notebook', shell: 'shell', command: 'command', tensorboard: 'TensorBoard', cell: 'cell',
  notebook_run: 'notebook run'
};

/** Active work first; newest first within each part. */
export function workList(experiments: readonly ExperimentView[], tasks: readonly TaskView[]): Work[] {
  const all: Work[] = [
    ...experiments.map((experiment): Work => ({
      kind: 'experiment', key: `e${experiment.id}`, over: isOver(experiment.state), time: experiment.created_at,
      experiment
    })),
    ...tasks.map((task): Work => ({
      kind: 'task', key: `t${task.id}`, over: isOver(task.state), time: task.created_at, task
    }))
  ];
  return all.sort((a, b) => Number(a.over) - Number(b.over) || b.time - a.time);
}

/** Ended work stays in the list for this long (seconds); then it is older work, which is folded. */
export const RECENT = 86_400;

/** What the user removed from the list: single entries by key, and all that had ended by a moment (seconds). */
export interface Dismissed {
  keys: readonly string[];
  before: number;
}

export const NOTHING_DISMISSED: Dismissed = { keys: [], before: 0 };

/** Split a list into active and recent work, and older or dismissed work that has ended. */
export function folded(all: readonly Work[], now: number, dismissed: Dismissed): { recent: Work[]; older: Work[] } {
  const keys = new Set(dismissed.keys);
  const recent: Work[] = [];
  const older: Work[] = [];
  for (const work of all) {
    const ended = endOf(work);
    const old = work.over && (ended < now - RECENT || ended <= dismissed.before || keys.has(work.key));
    (old ? older : recent).push(work);
  }
  return { recent, older };
}

function endOf(work: Work): number {
  const view = work.kind === 'experiment' ? work.experiment : work.task;
  return view.ended_at ?? view.created_at;
}

/** Whether each word of a filter occurs in the name, id, kind, state, owner or labels; `state:error` in the state only. */
export function matches(work: Work, filter: string): boolean {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return true;
  const fields = searched(work);
  const all = Object.values(fields).join(' ').toLowerCase();
  return words.every(word => {
    const [, field, rest] = /^(\w+):(.*)$/.exec(word) ?? [];
    return field && Object.hasOwn(fields, field) ? fields[field as Searched].toLowerCase().includes(rest!) : all.includes(word);
  });
}

type Searched = 'id' | 'name' | 'owner' | 'kind' | 'state' | 'searcher' | 'label';

function searched(work: Work): Record<Searched, string> {
  if (work.kind === 'experiment') {
    const e = work.experiment;
    const state = experimentState(e);
    return {
      id: `${e.id} #${e.id}`, name: e.name, owner: e.owner, kind: 'experiment', state: `${state} ${stateWord(state)}`,
      searcher: e.searcher, label: e.labels.join(' ')
    };
  }
  const t = work.task;
  const state = shownState(t);
  return {
    id: t.id, name: t.name, owner: t.owner, kind: `${KIND_WORDS[t.kind]} ${t.kind}`, state: `${state} ${stateWord(state)}`,
    searcher: '', label: ''
  };
}

/** An experiment's name; of a name that the master generated, only its distinctive part. */
export function experimentName(view: Pick<ExperimentView, 'name'>): string {
  const made = /^Experiment \(([\w-]+)\)$/.exec(view.name);
  return made ? made[1]! : view.name;
}

/** Trials that have ended, and how many there are or will be. */
export function trialCount(view: ExperimentView): { done: number; all: number; running: number; failed: number } {
  const count = (name: string): number => view.trials[name] ?? 0;
  const known = Object.entries(view.trials).reduce((sum, [name, n]) => sum + (name === 'RUNNING' ? 0 : n), 0);
  const done = count('COMPLETED') + count('CANCELED') + count('ERROR');
  return { done, all: Math.max(view.trials_total ?? 0, known), running: count('RUNNING'), failed: count('ERROR') };
}

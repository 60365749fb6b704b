/** What may be done to an experiment, trial or task now; what may not says why. */

import { isOver } from '../../state/states';
import { nameText } from '../common/text';
import type { ExperimentView, TaskView, TrialView, UserView } from '../../state/wire';

export type Verb = 'pause' | 'activate' | 'cancel' | 'kill';

export interface Action {
  verb: Verb;
  label: string;
  /** What it does, for the tooltip. */
  tip: string;
  /** Why it cannot be done now; null if it can. */
  why: string | null;
  /** Work is lost: asked for twice. */
  harsh: boolean;
}

function stopping(state: string): boolean {
  return state.startsWith('STOPPING');
}

/** Why this user may change nothing at all, or null. */
export function readOnly(me: UserView | null): string | null {
  if (!me) return 'It is not known yet who you are.';
  const may = me.admin || me.scopes.some(scope => /^custom:detlab:(write|admin)(!|$)/.test(scope));
  return may ? null : 'Your token may look but not change anything (it lacks the scope custom:detlab:write).';
}

/** Why this user may not steer a task of `owner`, or null: tasks are not shared. */
export function forbidden(me: UserView | null, owner: string): string | null {
  const none = readOnly(me);
  if (none || me!.admin || me!.name === owner) return none;
  return `It is ${nameText(owner, 40)}'s; only its owner and admins may do this.`;
}

/** Why this user may not steer an experiment and its trials, or null. The view says what its owner lets them do. */
export function closed(me: UserView | null, e: ExperimentView): string | null {
  const none = readOnly(me);
  if (none || e.may !== 'read') return none;
  const owner = nameText(e.owner, 40);
  return `It is ${owner}'s, who lets you look at it, not change it (they may: det experiment share ${e.id} --user … --write).`;
}

function notNow(state: string, verb: Verb, noun: string): string | null {
  if (isOver(state) || state === 'DELETING') return `The ${noun} has ended (${state.toLowerCase()}).`;
  if (state === 'STOPPING_KILLED') return `The ${noun} is being killed.`;
  if (stopping(state) && verb !== 'kill') return `The ${noun} is stopping.`;
  if (verb === 'pause' && state === 'PAUSED') return `The ${noun} is paused already.`;
  if (verb === 'activate' && state === 'ACTIVE') return `The ${noun} is active already.`;
  return null;
}

const TIPS: Record<Verb, string> = {
  pause: 'Trials save a checkpoint and give their slots back; Activate goes on from there',
  activate: 'Go on with the paused trials',
  cancel: 'End it: trials save a checkpoint first',
  kill: 'End it now: work since the last checkpoint is lost'
};

const LABELS: Record<Verb, string> = { pause: 'Pause', activate: 'Activate', cancel: 'Cancel', kill: 'Kill' };

function action(verb: Verb, why: string | null): Action {
  return { verb, label: LABELS[verb], tip: TIPS[verb], why, harsh: verb === 'kill' || verb === 'cancel' };
}

/** Pause, activate, cancel, kill of an experiment. */
export function experimentActions(e: ExperimentView, me: UserView | null): Action[] {
  const verbs: Verb[] = ['pause', 'activate', 'cancel', 'kill'];
  return verbs.map(verb => action(verb, notNow(e.state, verb, 'experiment') ?? closed(me, e)));
}

/** Kill of a trial of an experiment; null: that is not known yet. */
export function trialActions(trial: TrialView, e: ExperimentView | null, me: UserView | null): Action[] {
  const why = e ? closed(me, e) : 'It is not known yet whose it is.';
  const kill = action('kill', notNow(trial.state, 'kill', 'trial') ?? why);
  return [{ ...kill, tip: 'End this trial now; its experiment goes on' }];
}

/** Kill of a user task. */
export function taskActions(task: TaskView, me: UserView | null): Action[] {
  const kill = action('kill', notNow(task.state, 'kill', 'task') ?? forbidden(me, task.owner));
  return [{ ...kill, tip: `End this ${task.kind.replace('_', ' ')} now` }];
}

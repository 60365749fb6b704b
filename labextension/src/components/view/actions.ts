/** Actions on experiments, trials and tasks; a disabled one says why. */

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
  /** Work is lost: needs confirmation. */
  needsConfirm: boolean;
}

function stopping(state: string): boolean {
  return state.startsWith('STOPPING');
}

/** Why this user may change nothing at all, or null. */
export function readOnly(me: UserView | null): string | null {
  if (!me) return 'Your user is not loaded yet.';
  const may = me.admin || me.scopes.some(scope => /^custom:detlab:(write|admin)(!|$)/.test(scope));
  return may ? null : 'Read-only: your token lacks the scope custom:detlab:write.';
}

/** Why this user may not end a task, or null: admins of its workspace may. */
export function forbidden(me: UserView | null, task: Pick<TaskView, 'owner' | 'may'>): string | null {
  const none = readOnly(me);
  if (none || me!.admin || me!.name === task.owner || task.may === 'write') return none;
  return `Only its owner, ${nameText(task.owner, 40)}, and admins may do this.`;
}

/** Why this user may not change a model or an artifact, or null. */
export function closedNamed(me: UserView | null, one: { right: string; owner: string }): string | null {
  const none = readOnly(me);
  if (none || one.right !== 'read') return none;
  return `Read-only: its owner, ${nameText(one.owner, 40)}, can allow you to change it.`;
}

/** Why this user may not rename, archive or delete one, or delete a version of it, or null: that is its owner's. */
export function ownersNamed(me: UserView | null, one: { right: string; owner: string }): string | null {
  return closedNamed(me, one) ?? (one.right === 'own' ? null : `Only its owner, ${nameText(one.owner, 40)}, and administrators may do this.`);
}

/** Why this user may not control an experiment and its trials, or null. The view says what its owner allows. */
export function closed(me: UserView | null, e: ExperimentView): string | null {
  const none = readOnly(me);
  if (none || e.may !== 'read') return none;
  const owner = nameText(e.owner, 40);
  return `Read-only: ${owner} can allow you to change it (det experiment share ${e.id} --user … --write).`;
}

/** Why this user may not archive an experiment, or null: only its owner may, not those who may change it. */
export function ownersAlone(me: UserView | null, e: ExperimentView): string | null {
  return closed(me, e) ?? (e.may === 'own' ? null : `Only its owner, ${nameText(e.owner, 40)}, and administrators may do this.`);
}

function notNow(state: string, verb: Verb, noun: string): string | null {
  if (isOver(state) || state === 'DELETING') return `The ${noun} has ended (${state.toLowerCase()}).`;
  if (state === 'STOPPING_KILLED') return `The ${noun} is being killed.`;
  if (stopping(state) && verb !== 'kill') return `The ${noun} is stopping.`;
  if (verb === 'pause' && state === 'PAUSED') return `The ${noun} is already paused.`;
  if (verb === 'activate' && state === 'ACTIVE') return `The ${noun} is already active.`;
  return null;
}

const TIPS: Record<Verb, string> = {
  pause: 'Trials save a checkpoint and release their slots; Activate resumes them. Code that saves none begins anew',
  activate: 'Resume the paused trials',
  cancel: 'Trials save a checkpoint, then end',
  kill: 'Trials end now; work since their last checkpoints is lost'
};

const LABELS: Record<Verb, string> = { pause: 'Pause', activate: 'Activate', cancel: 'Cancel', kill: 'Kill' };

function action(verb: Verb, why: string | null): Action {
  return { verb, label: LABELS[verb], tip: TIPS[verb], why, needsConfirm: verb === 'kill' || verb === 'cancel' };
}

/** Pause, activate, cancel, kill of an experiment. */
export function experimentActions(e: ExperimentView, me: UserView | null): Action[] {
  const verbs: Verb[] = ['pause', 'activate', 'cancel', 'kill'];
  return verbs.map(verb => action(verb, notNow(e.state, verb, 'experiment') ?? closed(me, e)));
}

/** Kill of a trial; its experiment is null until it is loaded. */
export function trialActions(trial: TrialView, e: ExperimentView | null, me: UserView | null): Action[] {
  const why = e ? closed(me, e) : 'Its experiment is not loaded yet.';
  const kill = action('kill', notNow(trial.state, 'kill', 'trial') ?? why);
  return [{ ...kill, tip: `The trial ends now${!e ? '' : e.searcher === 'single' ? ', and its experiment with it' : '; its experiment continues'}` }];
}

/** Kill of a user task. */
export function taskActions(task: TaskView, me: UserView | null): Action[] {
  const kill = action('kill', notNow(task.state, 'kill', 'task') ?? forbidden(me, task));
  return [{ ...kill, tip: `The ${task.kind.replaceAll('_', ' ')} ends now` }];
}

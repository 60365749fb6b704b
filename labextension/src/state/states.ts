/** What states mean to people: their words and their kinds. */

import type { ExperimentState, ExperimentView, TaskView, TrialView } from './wire';

/** Decides colour and sign; never the only carrier of the meaning. */
export type Tone = 'running' | 'waiting' | 'paused' | 'good' | 'bad' | 'off';

const WORDS: Record<string, string> = {
  ACTIVE: 'running', STOPPING_COMPLETED: 'finishing', STOPPING_CANCELED: 'canceling', STOPPING_KILLED: 'being killed',
  STOPPING_ERROR: 'failing'
};

const TONES: Record<string, Tone> = {
  ACTIVE: 'running', RUNNING: 'running', PAUSED: 'paused', COMPLETED: 'good', ERROR: 'bad', CANCELED: 'off',
  DELETING: 'off', DELETED: 'off', QUEUED: 'waiting', PENDING: 'waiting', PULLING: 'waiting', STARTING: 'waiting',
  ASSIGNED: 'waiting'
};

/** Whether nothing more will happen. */
export function isOver(state: string): boolean {
  return state === 'COMPLETED' || state === 'CANCELED' || state === 'ERROR' || state === 'DELETED';
}

/** The state in one or two lower-case words. */
export function stateWord(state: string): string {
  return WORDS[state] ?? state.toLowerCase().replaceAll('_', ' ');
}

export function stateTone(state: string): Tone {
  return TONES[state] ?? (state.startsWith('STOPPING') ? 'paused' : 'off');
}

/** What an experiment shows as its state: an active one with nothing running is queued. */
export function experimentState(view: ExperimentView): ExperimentState | 'QUEUED' {
  return view.state === 'ACTIVE' && !view.trials['RUNNING'] && view.pending_reason ? 'QUEUED' : view.state;
}

/** What the trials of an experiment do that still hold slots: once it is paused or ending, they are leaving. */
export function heldWord(state: ExperimentState): string {
  return state === 'ACTIVE' ? 'running' : state === 'PAUSED' ? 'pausing' : 'stopping';
}

/** What a trial or a task shows as its state. */
export function shownState(view: TrialView | TaskView): string {
  return isOver(view.state) ? view.state : view.display_state || view.state;
}

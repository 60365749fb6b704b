/** Words and tones of states. */

import type { ExperimentState, ExperimentView, TaskView, TrialView } from './wire';

/** Decides the colour and icon, which never carry the meaning alone. */
export type Tone = 'running' | 'waiting' | 'paused' | 'good' | 'bad' | 'off';

const WORDS: Record<string, string> = {
  ACTIVE: 'running', STOPPING_COMPLETED: 'finishing', STOPPING_CANCELED: 'canceling', STOPPING_KILLED: 'being killed',
  STOPPING_ERROR: 'failing', ERROR: 'failed'
};

const TONES: Record<string, Tone> = {
  ACTIVE: 'running', RUNNING: 'running', PAUSED: 'paused', COMPLETED: 'good', ERROR: 'bad', CANCELED: 'off',
  DELETING: 'off', DELETED: 'off', QUEUED: 'waiting', PENDING: 'waiting', PULLING: 'waiting', STARTING: 'waiting',
  ASSIGNED: 'waiting', SCHEDULED: 'waiting', FINISHED: 'good', FAILED: 'bad', KILLED: 'off'
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

/** How long a trial has worked, in seconds: its pauses and the queue do not count, as pauses of an experiment do not. */
export function tookOf(trial: TrialView, now: number): number | null {
  if (!trial.started_at) return null;
  if (typeof trial.worked !== 'number') return (trial.ended_at ?? now) - trial.started_at;
  return trial.worked + (trial.works_since ? Math.max(0, now - trial.works_since) : 0);
}

/** The displayed state of an experiment: an active one with nothing running is queued. */
export function experimentState(view: ExperimentView): ExperimentState | 'QUEUED' {
  return view.state === 'ACTIVE' && !view.trials['RUNNING'] && view.pending_reason ? 'QUEUED' : view.state;
}

/** Of a warning that all trials of a search had NaN or infinite values in the end, after better ones. */
const DIVERGED = /^(all \d+ trials|its trial) ended with NaN or an infinite value /;

/**
 * The warning of an experiment that completed without a result, or whose trials all diverged: its validations never had the searcher's metric, or all
 * values of it were NaN or infinite. Code that validates nothing may have been run for its output: that is no mistake.
 */
export function missedMetric(view: ExperimentView): string | null {
  if (view.state !== 'COMPLETED') return null;
  if (Number.isFinite(view.best?.value)) return view.warnings.find(warning => DIVERGED.test(warning)) ?? null;
  return view.warnings.find(warning => /never reported .* \(its validations reported: /.test(warning) || warning.startsWith('no finite value of ')) ?? null;
}

/** Whether what an experiment says of its search only tells that it has gone as it was asked to; see `level_of` of the wire. */
export function isNote(warning: string): boolean {
  if (warning.startsWith('the best trial was trained once more: ')) return !warning.endsWith('; it breaks a constraint');
  return /^(the search has ended early: |every point of the space has been tried)/.test(warning);
}

/** What trials that still hold slots are doing: once the experiment is paused or ending, they are stopping. */
export function heldSlotsWord(state: ExperimentState): string {
  return state === 'ACTIVE' ? 'running' : state === 'PAUSED' ? 'pausing' : 'stopping';
}

/** The displayed state of a trial or a task. */
export function shownState(view: TrialView | TaskView): string {
  return isOver(view.state) ? view.state : view.display_state || view.state;
}

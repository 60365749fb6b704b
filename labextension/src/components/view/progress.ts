/** The progress line: trials done of all, running, best, how long it may still take. */

import type { BestView, ExperimentView, TrialView } from '../../state/wire';
import { heldSlotsWord, isOver, shownState } from '../../state/states';
import { formatDuration, formatNumber } from '../common/format';
import { nameText } from '../common/text';

/** Below this share of the search an estimate of the rest is a guess. */
const TOO_EARLY = 0.02;

/** The parts of the line, ready to be joined. `now` is in seconds since the epoch. */
export function progressParts(e: ExperimentView, now: number): string[] {
  const { done, running, total } = counts(e);
  const parts = [`${done}${total === null ? '' : `/${total}`} ${total === 1 ? 'trial' : 'trials'} done`];
  if (running) parts.push(`${running} ${heldSlotsWord(e.state)}`);
  if (e.trials.ERROR) parts.push(`${e.trials.ERROR} failed`);
  if (e.best) {
    const where = `${bestOf(e.best)}, step ${e.best.steps_completed}`;
    parts.push(`best ${nameText(e.metric, 40) || 'metric'} ${formatNumber(e.best.value)} (${where})`);
  }
  const rest = remaining(e, now);
  if (rest !== null) parts.push(`about ${formatDuration(rest)} left`);
  if (isOver(e.state) && e.ended_at) parts.push(`took ${formatDuration(worked(e, e.ended_at))}`);
  return parts;
}

/** Whose the best validation is. */
export function bestOf(best: BestView): string {
  return `trial ${best.trial_id}${best.failed ? ', which failed' : ''}`;
}

/** How many trials are done, run now, and will be (null if the search cannot know). */
export function counts(e: ExperimentView): { done: number; running: number; total: number | null } {
  const by = e.trials;
  const done = (by.COMPLETED ?? 0) + (by.CANCELED ?? 0) + (by.ERROR ?? 0);
  return { done, running: by.RUNNING ?? 0, total: e.trials_total };
}

/** Seconds from its start to `end` without pauses; a master of before does not say how long they took. */
function worked(e: ExperimentView, end: number): number {
  return Math.max(0, end - (e.started_at ?? e.created_at) - (e.paused_seconds || 0));
}

/** Seconds until the end at the pace so far, or null if nothing can be said. */
export function remaining(e: ExperimentView, now: number): number | null {
  const { progress, started_at: since } = e;
  if (e.state !== 'ACTIVE' || !since || progress < TOO_EARLY || progress >= 1 || !e.trials.RUNNING) return null;
  return (worked(e, now) / progress) * (1 - progress);
}

/** The trial that failed first. */
export function firstFailed(trials: Iterable<TrialView>): TrialView | null {
  let first: TrialView | null = null;
  for (const trial of trials) {
    if (trial.state !== 'ERROR') continue;
    if (!first || (trial.ended_at ?? 0) < (first.ended_at ?? 0) || (trial.ended_at === first.ended_at && trial.id < first.id)) first = trial;
  }
  return first;
}

/** Whether the searcher stopped a trial before its time (at the top rung it stops those that are through). */
export function stoppedEarly(trial: TrialView): boolean {
  return trial.end_reason === 'stopped' && trial.progress < 1;
}

/** Whether a trial is out of the race: stopped early, canceled or failed. */
export function greyed(trial: TrialView): boolean {
  return stoppedEarly(trial) || trial.state === 'ERROR' || trial.state === 'CANCELED';
}

/** The state that decides a trial's colour and sign: one that was stopped early is neither a success nor a failure. */
export function toneState(trial: TrialView): string {
  return stoppedEarly(trial) ? 'CANCELED' : shownState(trial);
}

/** What stands for the hyperparameters of a trial that has none yet, or never got any; null: it has its own. */
export function pointWord(trial: TrialView): string | null {
  if (!trial.point_due) return null;
  return isOver(trial.state) ? 'none: it ended before it started' : 'drawn when it starts';
}

/** The end of a trial for people, where it says more than its state. */
export function endWord(trial: TrialView): string | undefined {
  if (stoppedEarly(trial)) return 'stopped early';
  const reason = isOver(trial.state) ? trial.end_reason : null; // one that is being killed has its reason already
  if (reason === 'error') return 'failed';
  return reason && reason !== 'completed' && reason !== 'stopped' ? reason.replaceAll('_', ' ') : undefined;
}

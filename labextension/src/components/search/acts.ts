/** What people did to a search, as text; what may be done to it and to its trials now. */

import { asApiError, type ApiError } from '../../state/api';
import type { AppContext } from '../../state/context';
import { isOver } from '../../state/states';
import { newKey } from '../../state/submitkey';
import type { ExperimentView, SteeredExperiment, SteerSearch, TrialView, UserView } from '../../state/wire';
import { formatValue, plural, unitsText, type Action } from '../common';
import { nameText } from '../common/text';
import { closed } from '../view/actions';

/** Characters of a point, or of the names of a space, that are shown. */
const MOST = 300;
/** Built-in methods without rungs: nothing of theirs can be promoted. */
const RUNGLESS = new Set(['single', 'random', 'grid', 'tpe', 'gp', 'cmaes', 'nsga2', 'bayesian', 'pbt', 'pb2']);

type Event = Record<string, unknown>;

/** What somebody did, from the event in the journal. `ids`: the trials' numbers by their names in the journal. */
export function actText(event: Event, ids: ReadonlyMap<string, number>): string {
  const names = event.request_ids ? (event.request_ids as string[]) : event.request_id ? [String(event.request_id)] : [];
  const who = names.map(name => ids.get(name) ?? name.slice(0, 8)).join(', ');
  switch (event.type) {
    case 'extended': {
      const parts = [
        event.trials ? plural(Number(event.trials), 'further trial') : '',
        event.units ? plural(Number(event.units), 'further unit') + ' for the longest trials' : ''
      ];
      return `extended it by ${parts.filter(Boolean).join(' and ')}`;
    }
    case 'points_added': {
      const points = (event.points as Event[] | undefined ?? []).map(point => Object.entries(point).map(([k, v]) => `${k}=${formatValue(v)}`).join(', '));
      return nameText(`added ${plural(points.length, 'point')}: ${points.join('; ')}`, MOST);
    }
    case 'trials_retried': return `retried failed ${names.length === 1 ? 'trial' : 'trials'} ${who}`;
    case 'reopened': return who ? `continued after its end ${names.length === 1 ? 'trial' : 'trials'} ${who}` : 'let it go on after its end';
    case 'space_edited': return nameText(`edited the bounds of ${Object.keys(event.space as Event | undefined ?? {}).join(', ')}`, MOST);
    case 'concurrency_set': return Number(event.limit) ? `set ${plural(Number(event.limit), 'trial')} at a time` : 'removed the limit of trials at a time';
    case 'stop_requested': return `stopped trial ${who}`;
    case 'promotion_requested': return `promoted trial ${who}${typeof event.to === 'number' ? ` to ${event.to}` : ''}`;
    case 'continued': return 'continued it';
    default: return nameText(String(event.type).replaceAll('_', ' '), 60);
  }
}

/** Why a search takes no act now from this user, or null. */
export function notSteered(e: ExperimentView, me: UserView | null): string | null {
  if (isOver(e.state) || e.state === 'DELETING') return `The search is over (${e.state.toLowerCase()}).`;
  if (e.state.startsWith('STOPPING')) return 'The experiment is stopping.';
  return closed(me, e);
}

/** Why failed trials are not retried now by this user, or null; that is possible after the end, too. */
export function notRetried(e: ExperimentView, me: UserView | null): string | null {
  const over = isOver(e.state) && e.state !== 'DELETED';
  return (over ? closed(me, e) : notSteered(e, me)) ?? (e.trials.ERROR ? null : 'No trial has failed.');
}

/** Send an act once, however often its request is sent. Resolves to the error of a refused one. */
export async function steer(
  app: AppContext, id: number, act: SteerSearch, learn: (view: SteeredExperiment) => void
): Promise<ApiError | null> {
  try {
    learn(await app.api.post<SteeredExperiment>(`experiments/${id}/search`, { ...act, idempotency_key: newKey() }));
    return null;
  } catch (error) {
    return asApiError(error);
  }
}

/** Text of an error, with what to do. */
export function errorText({ message, hint }: ApiError): string {
  return nameText(hint ? `${message}. ${hint}` : message, 600);
}

/** Stop and promote a trial by hand. `e` is null until it is loaded. */
export function trialActs(
  app: AppContext, trial: TrialView, e: ExperimentView | null, me: UserView | null, learn: (view: ExperimentView) => void
): Action[] {
  const why = isOver(trial.state) ? `The trial has ended (${trial.state.toLowerCase()}).`
    : trial.state.startsWith('STOPPING') ? 'The trial is stopping.'
      : e ? notSteered(e, me) : 'Its experiment is not loaded yet.';
  const run = async (act: 'stop' | 'promote', done: string): Promise<void> => {
    let to = '';
    const error = await steer(app, trial.experiment_id, { act, trial_ids: [trial.id] }, view => {
      if (typeof view.promoted_to === 'number') to = ` to ${unitsText(view.promoted_to, view.time_metric)}`;
      learn(view);
    });
    if (error) app.notify(`${done === 'stopped' ? 'Stop' : 'Promote'} trial ${trial.id}: ${errorText(error)}`, 'bad');
    else app.notify(`Trial ${trial.id} is ${done}${to}.`, 'good');
  };
  const stop = async (): Promise<void> => {
    const body = 'It trains no further and leaves its slots. What it has reported counts; the search continues.';
    if (await app.confirm({ title: `Stop trial ${trial.id}?`, body, yes: 'Stop', danger: true })) await run('stop', 'stopped');
  };
  const rungless = e && RUNGLESS.has(e.searcher) ? `The method ${e.searcher} has no rungs.` : null;
  return [
    { key: 'stop', label: 'Stop', why, run: stop },
    { key: 'promote', label: 'Promote', why: why ?? rungless, run: () => run('promote', 'promoted') }
  ];
}

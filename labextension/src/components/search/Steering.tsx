/** Steer a search: a bar of acts, what is left of its budgets, and what people did to it. */

import { ReactElement, useMemo, useRef, useState } from 'react';
import { stringify } from 'yaml';

import { useApp, useStore } from '../../state/context';
import { isOver } from '../../state/states';
import type { BudgetView, ExperimentView, JournalEntry, SteerSearch, TrialView } from '../../state/wire';
import { ActionButton, ErrorBanner, formatAgo, formatDuration, formatTime, plural, significant, unitsText, useLoaded, useNow } from '../common';
import { useThrottled } from '../common/loading/useThrottled';
import { nameText } from '../common/text';
import { ActForm, type ActFormProps } from './ActForm';
import { SearchTask } from './SearchTask';
import { Standing } from './Standing';
import { actText, errorText, notRetried, notSteered, steer } from './acts';

/** After changes of trials, the history and the budgets are asked for again at most this often (ms). */
const RELOAD_MS = 15_000;
const MOST_ACTS = 1000;
/** Acts shown before "Show all". */
const NEWEST = 3;

type Open = 'extend' | 'add' | 'bounds' | 'concurrency';
type Form = Omit<ActFormProps, 'send' | 'onClose'> & { said(act: SteerSearch): string };

export function Steering({ experiment: e, trials, version, onLearn }: {
  experiment: ExperimentView; trials: readonly TrialView[]; version: number; onLearn(view: ExperimentView): void;
}): ReactElement {
  const app = useApp();
  const me = useStore(s => s.me);
  const [open, setOpen] = useState<Open | null>(null);
  const [acted, setActed] = useState(0);
  const bar = useRef<HTMLDivElement>(null);
  const round = `${useThrottled(version, RELOAD_MS)} ${acted}`;
  const full = useLoaded(`${e.id} ${round}`, async signal => {
    const view = await app.api.get<ExperimentView>(`experiments/${e.id}`, signal);
    return { view, at: Date.now() / 1000 };
  });
  const journal = useLoaded(`${e.id} ${round}`, signal =>
    app.api.get<{ items: JournalEntry[] }>(`experiments/${e.id}/search/journal?only=acts&limit=${MOST_ACTS}`, signal));
  const acts = journal.data?.items ?? [];
  const why = notSteered(e, me);
  const failed = e.trials.ERROR ?? 0;
  const close = (): void => {
    bar.current?.querySelector<HTMLElement>(`[data-act=${open}] button`)?.focus();
    setOpen(null);
  };
  const send = async (act: SteerSearch, said: string): ReturnType<typeof steer> => {
    const error = await steer(app, e.id, act, onLearn);
    if (!error) {
      app.notify(`Experiment ${e.id}: ${said}`, 'good');
      setActed(n => n + 1);
    }
    return error;
  };
  const retry = async (): Promise<void> => {
    const error = await send({ act: 'retry' }, `${plural(failed, 'failed trial')} retried`);
    if (error) app.notify(`Retry failed trials: ${errorText(error)}`, 'bad');
  };
  const button = (key: Open, label: string): ReactElement => (
    <span data-act={key}><ActionButton label={label} why={why} onRun={() => setOpen(open === key ? null : key)} /></span>
  );
  const form = open && formOf(open, e, full.data?.view.config ?? e.config, acts, trials);
  return (
    <section className="det-steering" aria-label="Steer the search">
      <div ref={bar} className="det-controls" role="group" aria-label="Acts on the search">
        {button('extend', 'Extend…')}
        {button('add', 'Add point…')}
        {button('bounds', 'Edit bounds…')}
        {button('concurrency', 'Concurrency…')}
        <ActionButton label="Retry failed" why={notRetried(e, me)} onRun={retry} />
      </div>
      {form && !why && <ActForm key={open} {...form} send={act => send(act, form.said(act))} onClose={close} />}
      <SearchTask experiment={e} round={round} />
      <Standing experiment={e} version={version} />
      <Left experiment={e} budgets={full.data?.view.budgets ?? e.budgets} at={full.data?.at ?? null} />
      {journal.error ? <ErrorBanner error={journal.error} what="The history of acts" onRetry={journal.reload} /> : <History acts={acts} trials={trials} />}
    </section>
  );
}

function formOf(
  open: Open, e: ExperimentView, config: ExperimentView['config'], acts: readonly JournalEntry[], trials: readonly TrialView[]
): Form {
  const newest = (type: string): Record<string, unknown> | undefined => [...acts].reverse().find(one => one.event.type === type)?.event;
  const searcher = (config?.searcher ?? {}) as Record<string, unknown>;
  const staged = Boolean(e.time_metric || searcher.max_time);
  const unit = e.time_metric ? nameText(e.time_metric, 40) : 'the time metric';
  switch (open) {
    case 'extend': return {
      title: 'Extend the search', yes: 'Extend', about: staged ? 'The search makes further trials, or trains its longest ones further.' : 'The search makes further trials.',
      fields: [
        { key: 'trials', kind: 'number', label: 'Further trials', value: '' },
        ...(staged ? [{
          key: 'units', kind: 'number', label: `Further units of ${unit}`, value: '', about: 'For the longest trials, in methods with rungs.'
        } as const] : [])
      ],
      act: ({ trials: more, units }) => ({ act: 'extend', trials: Number(more), units: Number(units ?? 0) }),
      said: ({ trials: more, units }) => `extended by ${[more ? plural(more, 'trial') : '', units ? plural(units, 'unit') : ''].filter(Boolean).join(' and ')}`
    };
    case 'add': {
      const best = trials.find(trial => trial.id === e.best?.trial_id) ?? trials[0];
      return {
        title: 'Add a point', yes: 'Add', about: 'It becomes one of the next trials, beyond the budget of trials so far.',
        fields: [{
          key: 'points', kind: 'yaml', label: 'Hyperparameters (YAML)', value: best ? stringify(best.hparams, { lineWidth: 0 }).trimEnd() : '',
          about: best ? `As in trial ${best.id}, to be changed.` : undefined
        }],
        act: ({ points }) => ({ act: 'add', points: [points as Record<string, unknown>] }),
        said: () => '1 point added'
      };
    }
    case 'bounds': {
      const space = newest('space_edited')?.space ?? config?.hyperparameters ?? {};
      return {
        title: 'Edit the bounds', yes: 'Save', about: 'Further trials are drawn from this block; those that wait for slots or have begun stay as they are.',
        fields: [{ key: 'hyperparameters', kind: 'yaml', label: 'The whole hyperparameters block (YAML)', value: stringify(space, { lineWidth: 0 }).trimEnd() }],
        act: ({ hyperparameters }) => ({ act: 'bounds', hyperparameters: hyperparameters as Record<string, unknown> }),
        said: () => 'further trials have the new bounds; those that wait for slots or have begun keep theirs'
      };
    }
    case 'concurrency': {
      const limit = newest('concurrency_set')?.limit ?? searcher.max_concurrent_trials ?? '';
      return {
        title: 'Change the concurrency', yes: 'Change', about: 'Trials that run now are left to run.',
        fields: [{ key: 'limit', kind: 'number', label: 'Trials at a time', value: String(limit), about: '0 is no limit.' }],
        act: ({ limit: most }) => ({ act: 'concurrency', limit: Number(most) }),
        said: ({ limit: most }) => (most ? `${plural(most, 'trial')} at a time` : 'any number of trials at a time')
      };
    }
  }
}

/** What is left: trials, the budgets of the config; and how long one trial may train. */
function Left({ experiment: e, budgets, at }: {
  experiment: ExperimentView; budgets: readonly BudgetView[];
  /** When the budgets were told. */
  at: number | null;
}): ReactElement | null {
  const now = useNow();
  // The clock runs on between two answers.
  const since = e.state === 'ACTIVE' && e.started_at !== null && at !== null ? Math.max(0, now - at) : 0;
  const made = Object.entries(e.trials).reduce((sum, [state, count]) => sum + (state === 'RUNNING' ? 0 : count), 0);
  const rows = [
    ...(e.trials_total === null ? [] : [{ name: 'Trials', used: made, limit: e.trials_total, text: String }]),
    ...budgets.map(one => ({
      name: one.name === 'wall_clock' ? 'Wall-clock time' : nameText(one.name.replaceAll('_', ' ').replace(/^./, c => c.toUpperCase()), 40),
      used: one.used + (one.name === 'wall_clock' ? since : 0), limit: one.limit, text: one.name === 'wall_clock' ? formatDuration : (x: number): string => significant(x, false, 3)
    }))
  ];
  if (!rows.length && !e.max_time) return null;
  return (
    <ul className="det-left" aria-label="Budgets">
      {rows.map(({ name, used, limit, text }) => (
        <li key={name}>
          <span>{name}</span>
          <progress max={limit || 1} value={Math.min(used, limit)} aria-hidden="true" />
          <span className="det-num">{isOver(e.state) ? `${text(Math.min(used, limit))} of ${text(limit)} used` : `${text(Math.max(0, limit - used))} of ${text(limit)} left`}</span>
        </li>
      ))}
      {e.max_time !== null && <li><span>Longest trial</span><span className="det-num">{unitsText(e.max_time, e.time_metric)}</span></li>}
    </ul>
  );
}

function History({ acts, trials }: { acts: readonly JournalEntry[]; trials: readonly TrialView[] }): ReactElement | null {
  const [all, setAll] = useState(false);
  const now = useNow();
  const ids = useMemo(() => new Map(trials.map(trial => [trial.request_id, trial.id])), [trials]);
  if (!acts.length) return null;
  const newest = [...acts].reverse();
  return (
    <div className="det-acts">
      <h2>What people did</h2>
      <ol reversed aria-label="Acts on the search, newest first">
        {(all ? newest : newest.slice(0, NEWEST)).map(({ seq, at, event }) => (
          <li key={seq}>
            <time title={at === null ? undefined : formatTime(at)}>{at === null ? '–' : formatAgo(at, now)}</time>
            <span><b>{nameText(String(event.author), 60)}</b> {actText(event, ids)}</span>
          </li>
        ))}
      </ol>
      {acts.length > NEWEST && (
        <button type="button" className="det-button" aria-expanded={all} onClick={() => setAll(!all)}>
          {all ? 'Show fewer' : `Show all ${acts.length}`}
        </button>
      )}
    </div>
  );
}

/** "My work": experiments, notebooks, shells, commands. */

import { memo, ReactElement, useMemo, useState } from 'react';

import { useApp, useStore } from '../../state/context';
import { experimentState, heldSlotsWord, isOver, missedMetric, shownState, stateTone } from '../../state/states';
import type { ExperimentView, TaskView } from '../../state/wire';
import {
  ActionButton, EmptyState, formatAgo, formatLasting, formatNumber, formatTime, Menu, plural, Progress, StateBadge, useGrowing, useNow
} from '../common';
import { nameText } from '../common/text';
import { bestOf } from '../view/progress';
import { useDismissed } from './dismissed';
import { GettingStarted } from './GettingStarted';
import { experimentName, folded, KIND_WORDS, matches, trialCount, Work, workList } from './work';
import { experimentMenu, taskMenu, whyNotOpen } from './workactions';

const STEP = 50;
/** Pixels of an entry whose facts fit in one line; in the panel few do. */
const LEAST_HEIGHT = 60;
/** Longest reason shown, in characters. */
const REASON = 400;

export function WorkList({ filter }: { filter: string }): ReactElement {
  const experiments = useStore(s => s.experiments);
  const tasks = useStore(s => s.tasks);
  const now = useNow();
  const [most, setMost] = useState(STEP);
  const all = useMemo(() => workList(experiments, tasks), [experiments, tasks]);
  const cluster = useStore(s => s.cluster?.cluster_id ?? '');
  const { dismissed, dismiss, clear } = useDismissed(cluster);
  const [unfolded, setUnfolded] = useState(false);
  const { recent, older } = useMemo(() => folded(all, now, dismissed), [all, now, dismissed]);
  // A filter looks at everything: what is searched for is often old.
  const everything = filter.trim() !== '' || unfolded;
  const found = useMemo(
    () => (everything ? [...recent, ...older].filter(work => matches(work, filter)) : recent), [recent, older, everything, filter]
  );
  const drawn = useGrowing(Math.min(found.length, most), LEAST_HEIGHT);
  if (!all.length) {
    return <GettingStarted alone />;
  }
  if (!found.length && filter.trim()) return <EmptyState title={`No work matches “${filter}”.`} />;
  // Servers of notebooks alone: the user has run nothing on the cluster yet.
  const newcomer = filter.trim() === '' && !experiments.length && tasks.every(task => task.kind === 'notebook');
  return (
    <>
      {newcomer && <GettingStarted alone={false} />}
      {!found.length && <p className="det-none det-soft">Nothing is active, and nothing ended in the last day.</p>}
      <ul className="det-list" aria-label="My work">
        {found.slice(0, drawn).map((work, i) => (
          <li key={work.key} className="det-item" aria-posinset={i + 1} aria-setsize={found.length}>
            {work.kind === 'experiment'
              ? <ExperimentItem view={work.experiment} now={now} onDismiss={dismiss} />
              : <TaskItem view={work.task} now={now} onDismiss={dismiss} />}
          </li>
        ))}
      </ul>
      {found.length > most && (
        <button type="button" className="det-button det-more" onClick={() => setMost(most + 4 * STEP)}>
          Show more ({found.length - most})
        </button>
      )}
      {filter.trim() === '' && (
        <Fold
          older={older.length} ended={recent.filter(work => work.over)} unfolded={unfolded}
          onToggle={() => setUnfolded(!unfolded)} onClear={() => clear(Date.now() / 1000)}
        />
      )}
    </>
  );
}

/** The line below the list: older work to unfold, ended work to clear away. */
function Fold({ older, ended, unfolded, onToggle, onClear }: {
  older: number; ended: readonly Work[]; unfolded: boolean; onToggle(): void; onClear(): void;
}): ReactElement | null {
  if (!older && !ended.length) return null;
  return (
    <div className="det-fold">
      {older > 0 && (
        <button type="button" className="det-link" aria-expanded={unfolded} onClick={onToggle}>
          <span aria-hidden="true" className="det-twist">{unfolded ? '▾' : '▸'}</span> {older} older
        </button>
      )}
      {ended.length > 0 && (
        <button
          type="button" className="det-link det-age" title={`Fold ${plural(ended.length, 'ended entry', 'ended entries')} away; nothing is deleted`}
          onClick={onClear}
        >
          Clear ended
        </button>
      )}
    </div>
  );
}

interface ItemProps<V> { view: V; now: number; onDismiss(key: string): void }

const ExperimentItem = memo(function ExperimentItem({ view, now, onDismiss }: ItemProps<ExperimentView>): ReactElement {
  const app = useApp();
  const me = useStore(s => s.me?.name ?? '');
  const state = experimentState(view);
  const { done, all, running, failed } = trialCount(view);
  const name = nameText(experimentName(view));
  const place = { kind: 'experiment', id: view.id } as const;
  const missed = missedMetric(view);
  return (
    <>
      <div className="det-item-head">
        <Opener place={place} name={name} label={`Experiment ${view.id}: ${name}`} />
        <span className="det-soft det-num">#{view.id}</span>
        <Menu
          label={`Actions of experiment ${view.id}`}
          actions={() => experimentMenu(app, view, app.store.getSnapshot().me, () => onDismiss(`e${view.id}`))}
        />
      </div>
      {!isOver(view.state) && (
        <Progress value={view.progress} label={`Progress of experiment ${view.id}`} tone={stateTone(state)} />
      )}
      <div className="det-facts">
        <StateBadge state={state} about={view.pending_reason} warning={missed} />
        <span className="det-num">{done}/{all} trials{running ? `, ${running} ${heldSlotsWord(view.state)}` : ''}{failed ? `, ${failed} failed` : ''}</span>
        {view.owner !== me && <span className="det-ellipsis">{shared(view)}</span>}
        {view.best && (
          <span className="det-ellipsis det-num" title={`${nameText(view.metric)} of ${bestOf(view.best)}`}>
            best {formatNumber(view.best.value)}{view.best.failed ? ' (trial failed)' : ''}
          </span>
        )}
        <Age view={view} running={state === 'ACTIVE'} now={now} />
      </div>
      {state === 'QUEUED' && view.pending_reason && <div className="det-reason">{nameText(view.pending_reason, REASON)}</div>}
      {missed && <div className="det-reason" data-tone="warn">{nameText(missed, REASON)}</div>}
      {view.failure && <div className="det-reason" data-tone="bad">{nameText(view.failure.message, REASON)}</div>}
    </>
  );
}, sameShown);

/** Whose it is, and what they allow. */
function shared(view: ExperimentView): string {
  return `of ${nameText(view.owner, 40)}${view.may === 'read' ? ', read-only' : ''}`;
}

const TaskItem = memo(function TaskItem({ view, now, onDismiss }: ItemProps<TaskView>): ReactElement {
  const app = useApp();
  const state = shownState(view);
  const name = nameText(view.name);
  const queued = view.place !== null && !isOver(view.state);
  return (
    <>
      <div className="det-item-head">
        <Opener place={{ kind: 'task', id: view.id }} name={name || view.id} label={`${KIND_WORDS[view.kind]} ${name}`} />
        {view.server_name !== null && !isOver(view.state) && (
          <ActionButton label="Open" why={whyNotOpen(view)} onRun={() => app.openUrl(view.url!)}>Open ↗</ActionButton>
        )}
        <Menu
          label={`Actions of ${KIND_WORDS[view.kind]} ${name}`}
          actions={() => taskMenu(app, view, app.store.getSnapshot().me, () => onDismiss(`t${view.id}`))}
        />
      </div>
      <div className="det-facts">
        <StateBadge state={state} about={view.pending_reason} />
        <span>{KIND_WORDS[view.kind]}</span>
        {view.slots_needed > 0 && <span className="det-num">{plural(view.slots_needed, 'slot')}</span>}
        <Age view={view} running={state === 'RUNNING'} now={now} />
      </div>
      {queued && <div className="det-reason">position {view.place} in the queue{view.pending_reason ? `: ${nameText(view.pending_reason, REASON)}` : ''}</div>}
      {!isOver(view.state) && view.stage_message && <div className="det-reason">{nameText(view.stage_message, REASON)}</div>}
      {view.cull_at && !isOver(view.state) && (
        <div className="det-reason" data-tone="waiting">idle, will be ended {until(view.cull_at, now)}</div>
      )}
      {view.gpus_idle_since && !isOver(view.state) && (
        <div className="det-reason" data-tone="waiting">
          GPUs at 0 %{view.gpus_released_at ? `, will be ended ${until(view.gpus_released_at, now)}` : ''}
        </div>
      )}
      {view.failure && <div className="det-reason" data-tone="bad">{nameText(view.failure.message, REASON)}</div>}
    </>
  );
}, sameShown);

function Opener({ place, name, label }: {
  place: Parameters<ReturnType<typeof useApp>['navigate']>[0]; name: string; label: string;
}): ReactElement {
  const app = useApp();
  const address = app.address(place);
  return address !== null
    ? <a className="det-name det-ellipsis" href={address} title={label}>{name}</a>
    : (
      <button type="button" className="det-link det-name det-ellipsis" title={label} onClick={() => app.navigate(place)}>
        {name}
      </button>
    );
}

/** How long something has been running, or how long ago it ended or was created. */
function Age({ view, running, now }: { view: ExperimentView | TaskView; running: boolean; now: number }): ReactElement {
  if (running && view.started_at) {
    return (
      <time className="det-age det-num" title={`started ${formatTime(view.started_at)}`}>
        {formatLasting(view.started_at, now)}
      </time>
    );
  }
  const time = view.ended_at ?? view.created_at;
  return (
    <time className="det-age det-num" title={`${view.ended_at ? 'ended' : 'created'} ${formatTime(time)}`}>
      {formatAgo(time, now)}
    </time>
  );
}

function until(time: number, now: number): string {
  const minutes = Math.ceil((time - now) / 60);
  return minutes <= 0 ? 'now' : `in ${minutes} min`;
}

/** Ages are drawn to the minute: an item is drawn anew when it changed or its age may read otherwise. */
function sameShown(a: { view: unknown; now: number }, b: { view: unknown; now: number }): boolean {
  return a.view === b.view && a.now === b.now;
}

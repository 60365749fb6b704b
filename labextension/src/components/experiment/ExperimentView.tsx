/** One experiment in the main area: head, progress, and tabs. */

import { ReactElement, useEffect, useMemo, useRef, useState } from 'react';

import { experimentState, isNote, isOver, missedMetric, stateTone } from '../../state/states';
import { type ExperimentTab, Question, useApp, useStore } from '../../state/context';
import type { ExperimentView as Experiment, GrantList } from '../../state/wire';
import { ActionButton, formatAgo, Loading, Notice, Progress, useFeed, useLoaded, useNow, useVisible } from '../common';
import { nameText } from '../common/text';
import { FailureCard } from '../view/FailureCard';
import { experimentActions, readOnly } from '../view/actions';
import { Annotations } from './Annotations';
import { CheckpointsTab } from './CheckpointsTab';
import { CodeTab } from './CodeTab';
import { ConfigTab } from '../view/ConfigTab';
import { CurvesTab } from './CurvesTab';
import { EventsTab } from './EventsTab';
import { ExperimentFeed, ExperimentState } from './feed';
import { Header, useAction } from '../view/Header';
import { LinkNotice } from '../view/LinkNotice';
import { Missing } from '../view/Missing';
import { ParallelTab } from './ParallelTab';
import { firstFailed, progressParts } from '../view/progress';
import { pauseQuestion } from '../view/unsaved';
import { Tabs } from '../view/Tabs';
import { bestPointText, seedsOf, withPoints } from './trials/seeds';
import { RowCache } from './trials/trialtable';
import { More } from './More';
import { SearchTab } from './SearchTab';
import { TrialsTab } from './trials/TrialsTab';
import { Go } from '../admin/parts';
import { useGone } from '../common/loading/rights';
import { Gone } from '../view/Gone';

export type { ExperimentTab };

export function ExperimentView({ id, tab: first = 'curves' }: { id: number; tab?: ExperimentTab }): ReactElement {
  const root = useRef<HTMLDivElement>(null);
  const { feed, state } = useFeed(({ api, store }) => new ExperimentFeed(api, store.channel, id), id, useVisible(root));
  const { settle, store } = useApp();
  const me = useStore(s => s.me?.name ?? null);
  const [tab, setTab] = useState<ExperimentTab>(first);
  useEffect(() => setTab(first), [first]);
  const choose = (next: ExperimentTab): void => {
    setTab(next);
    settle?.({ kind: 'experiment', id, tab: next });
  };
  // What another lets one see may be taken away while it is shown; what one may do with it, too.
  const owner = state?.model?.experiment.owner;
  const gone = useGone<Experiment>(owner !== undefined && me !== null && owner !== me ? `experiments/${id}` : null, view => {
    if (view.may === feed?.getState().model?.experiment.may) return;
    feed?.learn(view);
    store.learn({ experiment: { ...view, config: null, notes: null } });
  });
  let body: ReactElement;
  if (gone) body = <Gone what={`experiment ${id}`} />;
  else if (state?.model && feed) body = <Shown feed={feed} state={state} tab={tab} onTab={choose} />;
  else if (state?.error) body = <Missing error={state.error} what={`Experiment ${id}`} onRetry={() => void feed?.start()} />;
  else body = <Loading what={`Loading experiment ${id}`} />;
  return <div ref={root} className="det-view-main" aria-busy={!state?.model && !state?.error}>{body}</div>;
}

function Shown({ feed, state, tab, onTab }: {
  feed: ExperimentFeed; state: ExperimentState; tab: ExperimentTab; onTab: (tab: ExperimentTab) => void;
}): ReactElement {
  const { api, store, navigate } = useApp();
  const me = useStore(s => s.me);
  const [editing, setEditing] = useState(false);
  const now = useNow(5000);
  const model = state.model!;
  const e = model.experiment;
  const own = (e.state === 'ACTIVE' ? null : e.card) ?? e.failure; // while it runs, its curves come first
  // eslint-disable-next-line react-hooks/exhaustive-deps -- trials change in place: the counters say when
  const first = useMemo(() => (e.state === 'ACTIVE' ? null : firstFailed(model.trials.values())), [model, e.state, state.states, model.trials.size]);
  const card = own ?? (first?.failure ? { ...first.failure, trial_id: first.id } : null);
  // eslint-disable-next-line react-hooks/exhaustive-deps -- another feed has other trials
  const cache = useMemo(() => new RowCache(), [feed]);
  const seeds = seedsOf(e);
  // eslint-disable-next-line react-hooks/exhaustive-deps -- trials change in place: the counters say when
  const rows = useMemo(() => withPoints(cache.of(model.trials.values()), seeds), [cache, model, state.states, model.trials.size, seeds]);
  const learn = (view: Experiment): void => {
    feed.learn(view);
    store.learn({ experiment: { ...view, config: null } });
  };
  const run = useAction<Experiment>(`experiment ${e.id}`, verb => `experiments/${e.id}/${verb}`, learn, (verb): Promise<Question | null> => (verb === 'pause' ? pauseQuestion(api, e) : Promise.resolve(null)));
  const bestSeeded = useMemo(() => bestPointText(rows, e.smaller_is_better), [rows, e.smaller_is_better]);
  const grants = useLoaded(`${e.id} ${e.state}`, signal => api.get<GrantList>(`experiments/${e.id}/grants`, signal));
  const annotated = (view: Experiment): void => {
    feed.learn(view);
    store.learn({ experiment: { ...view, config: null, notes: null } });
  };
  const tabs = [
    { key: 'curves', label: 'Learning curves' },
    { key: 'trials', label: 'Trials', note: rows.length || null },
    { key: 'search', label: 'Search' },
    { key: 'parallel', label: 'Parallel coordinates' },
    { key: 'checkpoints', label: 'Checkpoints' },
    { key: 'events', label: 'Events' },
    { key: 'config', label: 'Config' },
    { key: 'code', label: 'Code' }
  ];
  return (
    <>
      <Header
        title={e.name || `experiment ${e.id}`} kind={`Experiment ${e.id}`} state={experimentState(e)} about={e.pending_reason}
        warning={missedMetric(e)}
        numbers={[...progressParts(e, now), ...(bestSeeded ? [bestSeeded] : [])]}
        progress={<Progress value={e.state === 'COMPLETED' ? 1 : e.progress} label="Progress of the search" tone={missedMetric(e) ? 'warn' : stateTone(e.state)} />}
        facts={[
          nameText(e.owner, 40), placeOf(e, me?.name ?? ''), e.searcher && nameText(e.searcher, 40), e.unmanaged && 'evaluated by hand', `submitted ${formatAgo(e.created_at, now)}`, sharedWith(grants.data),
          ...e.labels.map(label => `#${nameText(label, 40)}`), e.archived_at !== null && e.archived_at !== undefined && 'archived'
        ]}
        actions={experimentActions(e, me)} onAction={run}
        more={<More experiment={e} me={me} onEdit={() => setEditing(true)} onSaved={annotated} />}
      >
        <ActionButton label="Fork…" why={readOnly(me)} onRun={() => navigate({ kind: 'new', from: e.id })} />
      </Header>
      <Annotations experiment={e} editing={editing} onClose={() => setEditing(false)} onSaved={annotated} />
      <LinkNotice link={state.link} onRetry={feed.retry} />
      {e.deletion ? (
        <Notice tone={e.deletion.failure ? 'bad' : 'paused'}>
          {e.state === 'DELETING'
            ? <>Deleting: {nameText(e.pending_reason ?? '', 400)}{e.deletion.failure && <> Try again now: <code>det experiment delete {e.id}</code></>}</>
            : <>Files that are to go are still stored{e.deletion.failure && `: ${nameText(e.deletion.failure, 400)}`}</>}
        </Notice>
      ) : e.pending_reason && !isOver(e.state) && <Notice tone="paused">Queued: {nameText(e.pending_reason, 400)}</Notice>}
      {e.warnings.map((warning, i) => <Notice key={i} tone={isNote(warning) ? 'off' : 'paused'}>{nameText(warning, 400)}</Notice>)}
      {!own && card && (e.trials.ERROR ?? 0) > 1 && <p className="det-soft">{e.trials.ERROR} trials failed, this one first:</p>}
      {card && <FailureCard failure={card} experiment={e.id} />}
      <Tabs label={`Views of experiment ${e.id}`} tabs={tabs} chosen={tab} onChoose={key => onTab(key as ExperimentTab)}>
        {tab === 'curves' && <CurvesTab feed={feed} state={state} />}
        {tab === 'trials' && <TrialsTab experiment={e} rows={rows} surplus={state.surplus} onLearn={learn} />}
        {tab === 'search' && <SearchTab experiment={e} rows={rows} version={state.states} onLearn={learn} />}
        {tab === 'parallel' && <ParallelTab experiment={e} rows={rows} />}
        {tab === 'checkpoints' && <CheckpointsTab experiment={e} version={state.checkpoints} />}
        {tab === 'events' && <EventsTab id={e.id} version={state.states + state.checkpoints} />}
        {tab === 'config' && <ConfigTab config={e.config} name={`experiment ${e.id}`} />}
        {tab === 'code' && <CodeTab id={e.id} />}
      </Tabs>
    </>
  );
}

/** Name of everybody's personal workspace, and of the project for what names none: no need to tell. */
const NOWHERE = 'Uncategorized';

/** The workspace and project where it lies, as a link; null if that is its owner's personal one. */
function placeOf(e: Experiment, me: string): ReactElement | null {
  const { workspace, project, workspace_id: at, project_id: inside } = e;
  if (at === null || inside === null || !workspace || (workspace.endsWith(NOWHERE) && project === NOWHERE)) return null;
  const place = workspace.includes('/') || e.owner === me ? workspace : `${e.owner}/${workspace}`;
  const shown = project === NOWHERE ? place : `${workspace === NOWHERE ? 'Personal' : place} / ${project}`;
  const to = project === NOWHERE ? { kind: 'workspace', workspace: String(at) } as const : { kind: 'project', workspace: String(at), project: String(inside) } as const;
  return <>in <Go to={to}><bdi>{nameText(shown, 160)}</bdi></Go></>;
}

/** Users and groups named in the head. */
const MOST_NAMED = 4;

/** `shared with bob, group vision (write)`; null if it is not shared, or not known. */
function sharedWith(grants: GrantList | null): string | null {
  if (!grants?.items.length) return null;
  const named = grants.items.slice(0, MOST_NAMED).map(
    to => `${to.kind === 'group' ? 'group ' : ''}${nameText(to.name, 40)}${to.write ? ' (write)' : ''}`
  );
  const more = grants.items.length - named.length;
  return `shared with ${named.join(', ')}${more > 0 ? ` and ${more} more` : ''}`;
}

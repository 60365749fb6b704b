/** One trial in the main area: metrics, logs, checkpoints, hyperparameters, and why it failed if it did. */

import { ReactElement, useEffect, useRef, useState } from 'react';

import { everyItem } from '../../state/api';
import { type TrialTab, useApp, useStore } from '../../state/context';
import { isOver, tookOf } from '../../state/states';
import type { CheckpointView, ExperimentView as Experiment, TrialView as Trial } from '../../state/wire';
import { RunArtifacts, runOfTrial } from '../artifacts';
import { ActionButton, EmptyState, ErrorBanner, formatDuration, formatNumber, Loading, Notice, useFeed, useLoaded, useNow, useVisible } from '../common';
import { trialActions } from '../view/actions';
import { Header, useAction } from '../view/Header';
import { LinkNotice } from '../view/LinkNotice';
import { endWord, toneState } from '../view/progress';
import { Missing } from '../view/Missing';
import { Tabs } from '../view/Tabs';
import { trialActs } from '../search';
import { useThrottled } from '../common/loading/useThrottled';
import { LogView } from '../logs/LogView';
import { MediaPane } from '../media';
import { nameText } from '../common/text';
import { Checkpoints } from '../storage';
import { FailureCard } from '../view/FailureCard';
import { TrialFeed, TrialState } from './feed';
import { GovernanceTab } from './GovernanceTab';
import { HparamsTab } from './HparamsTab';
import { MetricsTab } from './MetricsTab';
import { useGone } from '../common/loading/rights';
import { Gone } from '../view/Gone';

export type { TrialTab };

export function TrialView({ id, tab: first = 'metrics' }: { id: number; tab?: TrialTab }): ReactElement {
  const root = useRef<HTMLDivElement>(null);
  const visible = useVisible(root);
  const [tab, setTab] = useState<TrialTab>(first);
  useEffect(() => setTab(first), [first]);
  const { feed, state } = useFeed(({ api, store }) => new TrialFeed(api, store.channel, id), id, visible);
  const { settle } = useApp();
  const me = useStore(s => s.me?.name ?? null);
  const choose = (next: TrialTab): void => {
    setTab(next);
    settle?.({ kind: 'trial', id, tab: next });
  };
  const e = state?.experiment;
  const gone = useGone<Experiment>(e && me !== null && e.owner !== me ? `experiments/${e.id}` : null, view => feed?.learnExperiment(view));
  let body: ReactElement;
  if (gone) body = <Gone what={`trial ${id}`} />;
  else if (feed && state?.trial) body = <Shown feed={feed} state={state} tab={tab} onTab={choose} visible={visible} />;
  else if (state?.error) body = <Missing error={state.error} what={`Trial ${id}`} onRetry={() => void feed?.start()} />;
  else body = <Loading what={`Loading trial ${id}`} />;
  return <div ref={root} className="det-view-main" aria-busy={!state?.trial && !state?.error}>{body}</div>;
}

function Shown({ feed, state, tab, onTab, visible }: {
  feed: TrialFeed; state: TrialState; tab: TrialTab; onTab: (tab: TrialTab) => void; visible: boolean;
}): ReactElement {
  const app = useApp();
  const { navigate, address } = app;
  const me = useStore(s => s.me);
  const now = useNow(5000);
  const trial = state.trial!;
  const e = state.experiment;
  const run = useAction<Trial>(`trial ${trial.id}`, verb => `trials/${trial.id}/${verb}`, view => feed.learn(view));
  const card = trial.card ?? trial.failure;
  const place = { kind: 'experiment', id: trial.experiment_id } as const;
  const tabs = [
    { key: 'metrics', label: 'Metrics' }, { key: 'media', label: 'Media' }, { key: 'logs', label: 'Logs' },
    { key: 'checkpoints', label: 'Checkpoints' }, { key: 'artifacts', label: 'Artifacts' }, { key: 'hparams', label: 'Hyperparameters' },
    ...(e?.governed ? [{ key: 'governance', label: 'Governance' }] : [])
  ];
  return (
    <>
      <Header
        title={`Trial ${trial.id}`} kind="" state={toneState(trial)} word={endWord(trial)} about={trial.pending_reason}
        facts={factsOf(trial, e, now)} actions={trialActions(trial, e, me)} onAction={run}
      >
        <a
          className="det-button" href={address(place) ?? '#'}
          onClick={event => { if (!event.ctrlKey && !event.metaKey) { event.preventDefault(); navigate(place); } }}
        >
          Experiment {trial.experiment_id}
        </a>
        {trialActs(app, trial, e, me, view => app.store.learn({ experiment: { ...view, config: null } })).map(act => (
          <ActionButton key={act.key} label={act.label} why={act.why} onRun={act.run} />
        ))}
      </Header>
      <LinkNotice link={state.link} onRetry={feed.retry} />
      {trial.pending_reason && !isOver(trial.state) && <Notice tone="paused">Queued: {nameText(trial.pending_reason, 400)}</Notice>}
      {trial.stop_evidence && <Notice tone="paused">Stopped {nameText(trial.stop_evidence, 400)}</Notice>}
      {trial.would_stop.map((evidence, i) => <Notice key={i} tone="paused">Would have been stopped {nameText(evidence, 400)}</Notice>)}
      {trial.warnings.map((warning, i) => <Notice key={i} tone="paused">{nameText(warning, 400)}</Notice>)}
      {card && <FailureCard failure={{ ...card, trial_id: trial.id }} />}
      <Tabs label={`Views of trial ${trial.id}`} tabs={tabs} chosen={tab} onChoose={key => onTab(key as TrialTab)}>
        {tab === 'metrics' && <MetricsTab state={state} />}
        {tab === 'media' && <TrialMedia state={state} />}
        {tab === 'logs' && e?.unmanaged && <EmptyState title="No output: it is evaluated by hand." />}
        {tab === 'logs' && !e?.unmanaged && <LogView base={`trials/${trial.id}/logs`} label={`Logs of trial ${trial.id}`} visible={visible} />}
        {tab === 'checkpoints' && <TrialCheckpoints state={state} />}
        {tab === 'artifacts' && <TrialArtifacts trial={trial} />}
        {tab === 'hparams' && <HparamsTab trial={trial} />}
        {tab === 'governance' && <GovernanceTab trial={trial} />}
      </Tabs>
    </>
  );
}

function factsOf(trial: Trial, e: Experiment | null, now: number): (string | false)[] {
  const metric = e?.metric || 'validation';
  const took = tookOf(trial, now);
  const latest = trial.latest_validation !== trial.best_validation && trial.latest_validation !== null;
  return [
    e !== null && nameText(e.name, 80),
    `step ${trial.steps_completed}`,
    trial.best_validation !== null && `best ${nameText(metric, 40)} ${formatNumber(trial.best_validation)}`,
    latest && `latest ${formatNumber(trial.latest_validation)}`,
    took !== null && (trial.ended_at ? `took ${formatDuration(took)}` : took < 1 ? 'just started' : `for ${formatDuration(took)}`),
    trial.run > 1 && `attempt ${trial.run}`,
    trial.restarts > 0 && `${trial.restarts} ${trial.restarts === 1 ? 'restart' : 'restarts'}`,
    trial.agent_id !== null && `on ${nameText(trial.agent_id, 60)}${trial.slots.length ? ` (${trial.slots.map(slot => nameText(slot, 20)).join(', ')})` : ''}`,
    trial.asked_by !== '' && `evaluated by ${nameText(trial.asked_by, 60)}`,
    trial.status !== '' && `“${nameText(trial.status, 160)}”`
  ];
}

/** Looked at again as the trial goes on, at most every few seconds. */
function TrialMedia({ state }: { state: TrialState }): ReactElement {
  const trial = state.trial!;
  const round = useThrottled(isOver(trial.state) ? -1 : trial.steps_completed, 5000);
  return <MediaPane columns={[{ base: `trials/${trial.id}`, name: '' }]} round={round} over={isOver(trial.state)} />;
}

function TrialArtifacts({ trial }: { trial: Trial }): ReactElement {
  const round = useThrottled(isOver(trial.state) ? -1 : trial.steps_completed, 5000);
  return <RunArtifacts run={runOfTrial(trial.id)} round={round} over={isOver(trial.state)} />;
}

function TrialCheckpoints({ state }: { state: TrialState }): ReactElement {
  const { api } = useApp();
  const trial = state.trial!;
  const round = useThrottled(state.checkpoints, 2000);
  const { data, error, reload } = useLoaded(
    `${trial.id} ${round}`, signal => everyItem<CheckpointView>(api, `trials/${trial.id}/checkpoints`, 'after', signal)
  );
  if (error && !data) return <ErrorBanner error={error} what="Checkpoints" onRetry={reload} />;
  if (!data) return <Loading what="Loading the checkpoints" />;
  const e = state.experiment;
  return <Checkpoints items={data} over={isOver(trial.state)} experiment={e} reload={reload} />;
}

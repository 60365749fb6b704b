/** One run that no cluster started: its state and why it ended, metrics, media, output, settings, machine, code, files. */

import { ReactElement, useEffect, useMemo, useRef, useState } from 'react';

import { type RunTab, useApp, useStore } from '../../state/context';
import type { RunView } from '../../state/wire';
import { Ago, Go } from '../admin/parts';
import { RunArtifacts } from '../artifacts';
import { ActionButton, EmptyState, formatDuration, Loading, Menu, Notice, plural, useLoaded, useNow, useVisible } from '../common';
import { CopyButton } from '../common/CopyButton';
import { useRechecked } from '../common/loading/rights';
import { nameText } from '../common/text';
import { useThrottled } from '../common/loading/useThrottled';
import { LogView } from '../logs/LogView';
import { MediaPane } from '../media';
import { Gone } from '../view/Gone';
import { Header } from '../view/Header';
import { Markdown } from '../view/Markdown';
import { Missing } from '../view/Missing';
import { Tabs } from '../view/Tabs';
import { RunCode, RunFiles } from './RunFiles';
import { RunCurves } from './RunCurves';
import { comparisonOf, goesOn, silentFor, SYSTEM, titleOf, trialOf, useBeats } from './model';
import { useRemoval } from './removal';
import { RunSettings } from './RunSettings';

export function RunPage({ id, tab: first = 'metrics' }: { id: string; tab?: RunTab }): ReactElement {
  const { api, settle } = useApp();
  const root = useRef<HTMLDivElement>(null);
  const visible = useVisible(root);
  const [tab, setTab] = useState<RunTab>(first);
  useEffect(() => setTab(first), [first]);
  const path = `runs/${encodeURIComponent(id)}`;
  const { data, error, reload } = useLoaded(path, signal => api.get<RunView>(path, signal));
  useRechecked(reload);
  useBeats(data !== null && goesOn(data) && !data.deleted ? data.id : null, visible, reload);
  const choose = (next: RunTab): void => {
    setTab(next);
    settle?.({ kind: 'run', id, tab: next });
  };
  let body: ReactElement;
  if (error && data && (error.status === 404 || error.status === 403)) body = <Gone what={`run ${titleOf(data)}`} />;
  else if (data) body = <Shown run={data} tab={tab} onTab={choose} visible={visible} reload={reload} />;
  else if (error) body = <Missing error={error} what={`Run ${nameText(id, 60)}`} onRetry={reload} />;
  else body = <Loading what="Loading the run" />;
  return <div ref={root} className="det-view-main" aria-busy={!data && !error}>{body}</div>;
}

function Shown({ run, tab, onTab, visible, reload }: {
  run: RunView; tab: RunTab; onTab: (tab: RunTab) => void; visible: boolean; reload: () => void;
}): ReactElement {
  const { navigate } = useApp();
  const me = useStore(s => s.me);
  const now = useNow(5000);
  const remove = useRemoval();
  const over = !goesOn(run);
  const base = `runs/${encodeURIComponent(run.id)}`;
  const silent = silentFor(run, now);
  const trial = trialOf(run);
  const names = Object.keys(run.metrics);
  const ofMachine = names.filter(name => name.startsWith(SYSTEM));
  const tabs: { key: RunTab; label: string; note?: number }[] = [
    { key: 'metrics', label: 'Metrics', note: names.length - ofMachine.length }, { key: 'media', label: 'Media' }, { key: 'logs', label: 'Logs' }, { key: 'config', label: 'Config' },
    { key: 'system', label: 'System' }, { key: 'code', label: 'Code' }, { key: 'files', label: 'Files' }, { key: 'artifacts', label: 'Artifacts' }
  ];
  const removal = remove(run, me, reload, () => navigate({ kind: 'tracked' }));
  return (
    <>
      <Header
        title={titleOf(run)} kind="Run" state={run.status} about={run.end_reason} facts={factsOf(run, now)} actions={[]} onAction={async () => undefined}
        more={trial === null && run.experiment_id === null && <Menu label="More actions of the run" actions={() => removal} />}
      >
        <ActionButton label="Compare …" onRun={() => navigate(comparisonOf([run.id]))} />
        <CopyButton text={run.id} label="Copy id" what="the id, for det run describe and det.init(id=…)" />
      </Header>
      {run.deleted && <Notice>Deleted: lists leave it out, and nothing more is logged into it.</Notice>}
      {trial !== null && <Notice>This run is what clients of MLflow see of <Go to={{ kind: 'trial', id: trial }}>trial {trial}</Go>.</Notice>}
      {over && run.end_reason && <Notice tone={run.status === 'FINISHED' ? 'off' : 'bad'}>Why it ended: {nameText(run.end_reason, 2000)}</Notice>}
      {silent !== null && <Notice tone="paused">Not heard from for {formatDuration(silent)}: its process may be gone, or its machine has no connection. What it logs meanwhile is on its disk.</Notice>}
      {run.notes && <div className="det-model-notes det-run-notes" role="note" aria-label="Notes" tabIndex={0}><Markdown text={run.notes} level={1} /></div>}
      <Tabs label={`Views of run ${titleOf(run)}`} tabs={tabs} chosen={tab} onChoose={key => onTab(key as RunTab)}>
        {tab === 'metrics' && <RunCurves run={run} names={names.filter(name => !name.startsWith(SYSTEM))} empty={<NoMetrics over={over} />} />}
        {tab === 'system' && <RunCurves run={run} names={ofMachine} cut={SYSTEM} empty={<NoSystem over={over} />} />}
        {tab === 'media' && <MediaOfRun run={run} base={base} />}
        {tab === 'logs' && <LogView base={`${base}/logs`} label={`Output of run ${titleOf(run)}`} visible={visible} />}
        {tab === 'config' && <RunSettings run={run} />}
        {tab === 'code' && <RunCode run={run} base={base} reload={reload} />}
        {tab === 'files' && <RunFiles run={run} base={base} />}
        {tab === 'artifacts' && <ArtifactsOfRun run={run} />}
      </Tabs>
    </>
  );
}

/** Looked at again as the run goes on, at most every few seconds. */
function MediaOfRun({ run, base }: { run: RunView; base: string }): ReactElement {
  const columns = useMemo(() => [{ base, name: '' }], [base]);
  const round = useThrottled(goesOn(run) ? run.heard_at ?? 0 : -1, 5000);
  return <MediaPane columns={columns} round={round} over={!goesOn(run)} />;
}

function ArtifactsOfRun({ run }: { run: RunView }): ReactElement {
  const round = useThrottled(goesOn(run) ? run.heard_at ?? 0 : -1, 5000);
  return <RunArtifacts run={run.id} round={round} over={!goesOn(run)} />;
}

function factsOf(run: RunView, now: number): (ReactElement | string | false)[] {
  const took = (run.ended_at ?? now) - run.started_at;
  return [
    run.project_id !== null && <>in <Go to={{ kind: 'project', workspace: run.workspace, project: String(run.project_id) }}><bdi>{nameText(run.workspace, 80)} / {nameText(run.project, 80)}</bdi></Go></>,
    nameText(run.owner, 60),
    run.group !== '' && <>group <Go to={{ kind: 'tracked', query: new URLSearchParams({ group: run.group }).toString() }}><bdi>{nameText(run.group, 80)}</bdi></Go></>,
    run.job_type !== '' && `job type ${nameText(run.job_type, 80)}`,
    <>started <Ago time={run.started_at} /></>,
    took >= 0 && (run.ended_at ? `took ${formatDuration(took)}` : `for ${formatDuration(took)}`),
    goesOn(run) && run.heard_at !== null && <>heard <Ago time={run.heard_at} /></>,
    run.tags['detlab.host'] !== undefined && `on ${nameText(run.tags['detlab.host'], 60)}`,
    Object.keys(run.summary).length > 0 && plural(Object.keys(run.summary).length, 'result')
  ];
}

function NoMetrics({ over }: { over: boolean }): ReactElement {
  return (
    <EmptyState title={over ? 'This run logged no metrics.' : 'Waiting for the first metric …'}>
      <p><code>det.log({'{"loss": loss}'})</code> logs one; numbers of any name.</p>
    </EmptyState>
  );
}

function NoSystem({ over }: { over: boolean }): ReactElement {
  return (
    <EmptyState title={over ? 'The machine was not measured.' : 'The machine was not measured yet.'}>
      <p>A run by <code>det.init</code> measures processors, memory and GPUs every 15 seconds, from its second measurement on.</p>
    </EmptyState>
  );
}

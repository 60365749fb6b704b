/** One notebook, shell, command, TensorBoard, borrowed cell or notebook run in the main area. */

import { ReactElement, useEffect, useRef, useState } from 'react';

import { useApp, useStore } from '../../state/context';
import { isOver, shownState } from '../../state/states';
import type { OutputList, TaskKind, TaskView as Task } from '../../state/wire';
import {
  ActionButton, EmptyState, ErrorBanner, formatAgo, formatBytes, formatDuration, formatTime, Loading, Notice, useLoaded, useNow, useVisible
} from '../common';
import { taskActions } from '../view/actions';
import { ConfigTab } from '../view/ConfigTab';
import { Header, useAction } from '../view/Header';
import { Missing } from '../view/Missing';
import { Tabs } from '../view/Tabs';
import { LogView } from '../logs/LogView';
import { nameText } from '../common/text';
import { FailureCard } from '../view/FailureCard';

const KINDS: Record<TaskKind, string> = {
  notebook: 'Notebook', shell: 'Shell', command: 'Command', tensorboard: 'TensorBoard', cell: 'Borrowed cell', notebook_run: 'Notebook run'
};
const SERVED = new Set<TaskKind>(['notebook', 'shell', 'tensorboard']);

const ENDS: Record<string, string> = {
  killed: 'killed', idle: 'idle timeout', canceled: 'canceled', abandoned: 'abandoned by the Hub', lost: 'node lost', failed: 'failed'
};

export function TaskView({ id }: { id: string }): ReactElement {
  const { api, store } = useApp();
  const root = useRef<HTMLDivElement>(null);
  const visible = useVisible(root);
  const path = `tasks/${encodeURIComponent(id)}`;
  const { data, error, reload } = useLoaded(id, signal => api.get<Task>(path, signal));
  const [newer, setNewer] = useState<Task | null>(null);
  useEffect(() => {
    setNewer(null);
    return store.onEvent(event => {
      if (event.kind === 'task' && event.task_id === id) setNewer(event.data as unknown as Task);
      else if (event.kind === 'resync') reload();
    });
  }, [store, id, reload]);
  const task = newer && data ? { ...newer, config: data.config } : data;
  let body: ReactElement;
  if (task) body = <Shown task={task} path={path} visible={visible} onLearned={setNewer} />;
  else if (error) body = <Missing error={error} what={`Task ${nameText(id, 60)}`} onRetry={reload} />;
  else body = <Loading what="Loading the task" />;
  return <div ref={root} className="det-view-main" aria-busy={!task && !error}>{body}</div>;
}

function Shown({ task, path, visible, onLearned }: {
  task: Task; path: string; visible: boolean; onLearned: (task: Task) => void;
}): ReactElement {
  const { store, openUrl } = useApp();
  const me = useStore(s => s.me);
  const now = useNow(5000);
  const [tab, setTab] = useState('logs');
  const kind = KINDS[task.kind];
  const over = isOver(task.state);
  const run = useAction<Task>(`${kind.toLowerCase()} ${task.name}`, verb => `${path}/${verb}`, view => {
    onLearned(view);
    store.learn({ task: { ...view, config: null } });
  });
  // Another member of its workspace sees its state: what is in it is its owner's.
  const closed = task.opens === false;
  const tabs = [...(closed ? [] : [{ key: 'logs', label: 'Logs' }, { key: 'outputs', label: 'Outputs' }]), { key: 'config', label: 'Config' }];
  const shown = closed ? 'config' : tab;
  return (
    <>
      <Header
        title={task.name || task.id} kind={kind} state={shownState(task)} word={over && task.end_reason ? ENDS[task.end_reason] : undefined}
        about={task.pending_reason} facts={factsOf(task, now)} actions={taskActions(task, me)} onAction={run}
      >
        {SERVED.has(task.kind) && !closed && <ActionButton label="Open" primary why={whyClosed(task)} onRun={() => openUrl(task.url!)} />}
      </Header>
      {closed && <Notice>Only {nameText(task.owner, 60)} opens it and reads its output: members of its workspace see its state.</Notice>}
      {!over && task.stage_message && <Notice>{nameText(task.stage_message, 300)}</Notice>}
      {!over && task.pending_reason && (
        <Notice tone="paused">{task.place ? `Queued at position ${task.place}` : 'Waiting'}: {nameText(task.pending_reason, 400)}</Notice>
      )}
      {!over && task.cull_at && (
        <Notice tone="paused">Idle: it will be ended at {formatTime(task.cull_at)} unless it is used before then.</Notice>
      )}
      {!over && task.gpus_idle_since && (
        <Notice tone="paused">
          Its GPUs are at 0 % since {formatTime(task.gpus_idle_since)}
          {task.gpus_released_at ? `: it will be ended at ${formatTime(task.gpus_released_at)} unless it uses them before then.` : '.'}
        </Notice>
      )}
      {task.failure && <FailureCard failure={task.failure} task={task.id} />}
      <Tabs label={`Views of ${nameText(task.name, 60)}`} tabs={tabs} chosen={shown} onChoose={setTab}>
        {shown === 'logs' && <LogView base={`${path}/logs`} label={`Logs of ${nameText(task.name, 60)}`} visible={visible} />}
        {shown === 'outputs' && <Outputs path={path} task={task} />}
        {shown === 'config' && <ConfigTab config={task.config} name={nameText(task.name, 60)} />}
      </Tabs>
    </>
  );
}

/** Why it cannot be opened now, or null. */
export function whyClosed(task: Task): string | null {
  if (task.url) return null;
  if (isOver(task.state)) return 'It has ended.';
  return task.pending_reason ? 'It is queued.' : 'It is still starting.';
}

function factsOf(task: Task, now: number): (string | false | null)[] {
  const took = task.started_at ? (task.ended_at ?? now) - task.started_at : null;
  return [
    nameText(task.owner, 40),
    task.workspace !== '' && `in ${nameText(task.workspace, 80)} / ${nameText(task.project, 80)}`,
    `${task.slots_needed} ${task.slots_needed === 1 ? 'slot' : 'slots'}`,
    task.runtime === 'docker' ? `container ${nameText(task.image ?? '', 80)}` : 'process',
    task.agent_id !== null && `on ${nameText(task.agent_id, 60)}`,
    took !== null && (task.ended_at ? `took ${formatDuration(took)}` : took < 1 ? 'just started' : `for ${formatDuration(took)}`),
    task.exit_code !== null && `exit code ${task.exit_code}`,
    !isOver(task.state) && task.last_activity !== null && `used ${formatAgo(task.last_activity, now)}`
  ];
}

function Outputs({ path, task }: { path: string; task: Task }): ReactElement {
  const { api } = useApp();
  // Outputs change while it runs: reload when its state changes.
  const { data, error, reload } = useLoaded(
    `${path} ${task.state} ${task.display_state}`, signal => api.get<OutputList>(`${path}/outputs`, signal)
  );
  if (error && !data) return <ErrorBanner error={error} what="Outputs" onRetry={reload} />;
  if (!data) return <Loading what="Loading the outputs" />;
  return (
    <div>
      <div className="det-controls">
        <span className="det-soft">Output files</span>
        <button type="button" className="det-button" onClick={reload}>Refresh</button>
      </div>
      {data.items.length === 0
        ? <EmptyState title={isOver(task.state) ? 'No output files.' : 'No output files yet.'}>{task.kind === 'notebook_run' && !isOver(task.state) && 'The notebook appears here while it runs, cell by cell.'}</EmptyState>
        : (
          <ul className="det-outputs">
            {data.items.map(item => (
              <li key={item.name}>
                <a className="det-mono" download={item.name.split('/').pop()} href={api.href(`${path}/outputs/${encodeURIComponent(item.digest)}`)}>{nameText(item.name)}</a>
                <span className="det-soft det-num">{formatBytes(item.size)}</span>
                <span className="det-soft det-num">{formatTime(item.updated_at)}</span>
              </li>
            ))}
          </ul>
        )}
    </div>
  );
}

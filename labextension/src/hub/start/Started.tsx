/** Progress of a task that was just started; opens it when it is running. */

import { useEffect, useRef, type ReactElement } from 'react';

import { ActionButton, StateBadge } from '../../components/common';
import { useAct } from '../../components/common/loading/load';
import { nameText } from '../../components/common/text';
import { useApp, useStore } from '../../state/context';
import { viaHub } from '../../state/serverurl';
import { isOver, shownState } from '../../state/states';
import type { QueueItem, TaskView } from '../../state/wire';
import type { StartKind } from './task';

export function Started({ id, kind, onClose }: { id: string; kind: StartKind; onClose: () => void }): ReactElement {
  const { api, store, openUrl, navigate } = useApp();
  const act = useAct();
  const task = useStore(snapshot => snapshot.tasks.find(one => one.id === id));
  // the reply to the start may be older than the stream; the queue is loaded anew
  const queued = useStore(snapshot => snapshot.queue.find(one => one.task_id === id));
  const url = task?.url ?? null;
  const opened = useRef(false);
  const link = useRef<HTMLAnchorElement>(null);
  useEffect(() => {
    if (!url || opened.current) return;
    opened.current = true;
    openUrl(url); // a browser may block it after a long wait: the link stays
    link.current?.focus();
  }, [url, openUrl]);
  const details = (): void => {
    onClose();
    navigate({ kind: 'task', id });
  };
  const cancel = async (): Promise<void> => {
    await act(async () => store.learn({ task: await api.post<TaskView>(`tasks/${encodeURIComponent(id)}/kill`) }));
  };
  const over = task !== undefined && isOver(task.state);
  return (
    <div className="det-hub-started">
      <p role="status">
        {task && <strong className="det-adm-name">{nameText(task.name)}</strong>}
        {task && <StateBadge state={shownState(task)} />}
        <span>{task ? words(task, kind, queued) : 'Requested …'}</span>
      </p>
      {task?.failure && (
        <p className="det-banner" data-tone="bad">
          {nameText(task.failure.message, 600)}
          {task.failure.hint ? ` ${nameText(task.failure.hint, 600)}` : ''}
        </p>
      )}
      <div className="det-dialog-buttons">
        <ActionButton label="Details and logs" onRun={details} />
        {!url && !over && kind !== 'command' && <ActionButton label="Cancel start" danger onRun={cancel} />}
        {url && !over ? (
          <a ref={link} className="det-button det-primary" href={viaHub(url)} target="_blank" rel="noopener">Open</a>
        ) : (
          <ActionButton label="Close" primary onRun={onClose} />
        )}
      </div>
    </div>
  );
}

function words(task: TaskView, kind: StartKind, queued?: QueueItem): string {
  if (isOver(task.state)) return endWords(task);
  if (task.url) return 'Running; it opens in a new tab.';
  if (kind === 'command' && task.allocation_state === 'RUNNING') return 'Running.';
  const place = queued?.place ?? task.place;
  if (place !== null) {
    const why = queued?.reason || task.pending_reason;
    return `Position ${place} in the queue${why ? `: ${nameText(why, 400)}` : ''}. It opens when it is running.`;
  }
  return nameText(task.stage_message, 400) || `Starting${task.agent_id ? ` on ${nameText(task.agent_id)}` : ''} …`;
}

function endWords(task: TaskView): string {
  switch (task.end_reason) {
    case 'killed':
    case 'canceled':
      return 'Canceled.';
    case null:
      return 'Ended.';
    default:
      return `Ended: ${nameText(task.end_reason)}.`;
  }
}

/** The task that runs the class of a custom search: its state, why it waits, and the way to its log. */

import { ReactElement } from 'react';

import { useApp, useStore } from '../../state/context';
import { isOver, shownState } from '../../state/states';
import type { ExperimentView, TaskView } from '../../state/wire';
import { ActionButton, StateBadge, useLoaded } from '../common';
import { nameText } from '../common/text';

/** `round`: another one asks again, where the task is not among those that the page follows. */
export function SearchTask({ experiment: e, round }: { experiment: ExperimentView; round: string }): ReactElement | null {
  const { api, navigate } = useApp();
  const id = e.search_task;
  const followed = useStore(s => s.tasks.find(task => task.id === id)) ?? null;
  const loaded = useLoaded(id ? `${id} ${round}` : null, signal => api.get<TaskView>(`tasks/${encodeURIComponent(id!)}`, signal));
  if (e.searcher !== 'custom') return null;
  if (!id) return isOver(e.state) ? null : <p className="det-search-task det-soft">The task that runs the search class has not been made yet.</p>;
  const task = followed ?? loaded.data;
  return (
    <div className="det-search-task" role="group" aria-label="Task of the search class">
      <span className="det-soft">Search class runs in</span> <span>{nameText(id, 60)}</span>
      {task && <StateBadge state={shownState(task)} about={task.pending_reason} />}
      {task && !isOver(task.state) && task.pending_reason && (
        <span className="det-soft">waits for a place{task.place ? ` (position ${task.place})` : ''}: {nameText(task.pending_reason, 300)}</span>
      )}
      {task?.stage_message && !isOver(task.state) && <span className="det-soft">{nameText(task.stage_message, 200)}</span>}
      <ActionButton
        label="Log" why={loaded.error && !task ? 'Tasks are not shared: only the owner of the experiment sees this log.' : null}
        onRun={() => navigate({ kind: 'task', id })}
      />
    </div>
  );
}

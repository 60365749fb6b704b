/** The user tasks of a workspace: notebooks, shells, commands and TensorBoards of all its members, newest first. */

import { ReactElement } from 'react';

import { useApp, useStore } from '../../state/context';
import { shownState } from '../../state/states';
import type { TaskView } from '../../state/wire';
import { Ago, Go, Sheet } from '../admin/parts';
import { ActionButton, EmptyState, ErrorBanner, Loading, Menu, StateBadge } from '../common';
import { useAct, useReloadOn } from '../common/loading/load';
import { useRechecked } from '../common/loading/rights';
import { nameText } from '../common/text';
import { taskActions } from '../view/actions';
import { usePaged } from './load';

const PAGE = 50;
const RELOAD_MS = 1500;

export function TaskRows({ workspace, named }: { workspace: number; named: string }): ReactElement {
  const { items, error, more, reload, showMore } = usePaged<TaskView>(`tasks?limit=${PAGE}&workspace=${workspace}`, 'before');
  useRechecked(reload);
  useReloadOn('task', reload, RELOAD_MS, ({ task_id, data }) => {
    const known = items?.find(one => one.id === task_id);
    return known === undefined || known.display_state !== data.display_state || known.state !== data.state;
  });
  if (error) return <ErrorBanner error={error} what="Notebooks and other tasks" onRetry={reload} />;
  if (!items) return <Loading what="Loading the tasks" />;
  if (!items.length) {
    return (
      <EmptyState title="No notebook, shell, command or TensorBoard lies in it.">
        Start one with <code>det notebook start -w {named}</code>. Members see its state; only who has started it opens it.
      </EmptyState>
    );
  }
  return (
    <div className="det-rows">
      <p className="det-soft">Members see the state of each. Only who has started one opens it and reads its output.</p>
      <Rows items={items} reload={reload} />
      {more && <p className="det-adm-more"><ActionButton label="Show more" onRun={showMore} /></p>}
    </div>
  );
}

function Rows({ items, reload }: { items: readonly TaskView[]; reload: () => void }): ReactElement {
  const { api, confirm } = useApp();
  const act = useAct();
  const me = useStore(s => s.me);
  const kill = async (task: TaskView): Promise<void> => {
    const body = `The ${wordOf(task)} "${nameText(task.name, 80)}" of ${nameText(task.owner, 60)} ends now.`;
    if (!(await confirm({ title: `Kill this ${wordOf(task)}?`, body, yes: 'Kill', danger: true }))) return;
    if (await act(() => api.post(`tasks/${encodeURIComponent(task.id)}/kill`))) reload();
  };
  const head = (
    <>
      <th>Task</th>
      <th>Kind</th>
      <th>State</th>
      <th>Owner</th>
      <th>Project</th>
      <th>Pool</th>
      <th className="det-right">Slots</th>
      <th>Submitted</th>
      <th><span className="det-hidden">Actions</span></th>
    </>
  );
  return (
    <Sheet label="Tasks" head={head}>
      {items.map(task => (
        <tr key={task.id}>
          <td><Go to={{ kind: 'task', id: task.id }}><span className="det-adm-name"><bdi>{nameText(task.name, 120) || task.id}</bdi></span></Go></td>
          <td>{wordOf(task)}</td>
          <td><StateBadge state={shownState(task)} about={task.pending_reason} /></td>
          <td><span className="det-adm-name">{nameText(task.owner, 60)}</span></td>
          <td>
            {task.workspace_id !== null && task.project_id !== null
              ? <Go to={{ kind: 'project', workspace: String(task.workspace_id), project: String(task.project_id) }}><span className="det-adm-name"><bdi>{nameText(task.project, 120)}</bdi></span></Go>
              : '–'}
          </td>
          <td><span className="det-adm-name">{nameText(task.resource_pool, 60)}</span></td>
          <td className="det-right det-num">{task.slots_needed}</td>
          <td><Ago time={task.created_at} /></td>
          <td className="det-right">
            <Menu
              label={`Actions of ${nameText(task.name, 60) || task.id}`}
              actions={() => taskActions(task, me).map(one => ({ key: one.verb, label: one.label, why: one.why, danger: true, run: () => kill(task) }))}
            />
          </td>
        </tr>
      ))}
    </Sheet>
  );
}

function wordOf(task: TaskView): string {
  return task.kind === 'tensorboard' ? 'TensorBoard' : task.kind.replaceAll('_', ' ');
}

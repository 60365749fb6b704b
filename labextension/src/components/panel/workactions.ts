/** The panel's menus of experiments and tasks: only what can be done now; one line where the user may change nothing. */

import type { AppContext } from '../../state/context';
import { asApiError } from '../../state/api';
import { isOver } from '../../state/states';
import type { CreateTaskReply, ExperimentView, TaskView, TrialView, UserView } from '../../state/wire';
import type { Action } from '../common';
import { closed, experimentActions, forbidden, readOnly, taskActions, Verb } from '../view/actions';
import { pauseQuestion } from '../view/unsaved';
import { nameText } from '../common/text';
import { experimentName, KIND_WORDS } from './work';

/** Run a call; an error is shown as a notification, not thrown. */
export async function attempt(app: AppContext, what: string, call: () => Promise<void>): Promise<void> {
  try {
    await call();
  } catch (error) {
    const problem = asApiError(error);
    app.notify(nameText(`${what}: ${problem.message}${problem.hint ? ` ${problem.hint}` : ''}`, 600), 'bad');
  }
}

/** Pause, activate, cancel or kill an experiment, asking first where work is lost. */
export async function manage(app: AppContext, e: ExperimentView, verb: Verb, label: string): Promise<void> {
  if (verb === 'kill' || verb === 'cancel') {
    const body = verb === 'kill'
      ? `All trials of "${nameText(experimentName(e))}" end now. Work since their last checkpoints is lost.`
      : `All trials of "${nameText(experimentName(e))}" save a checkpoint and end.`;
    const yes = await app.confirm({ title: `${label} experiment ${e.id}?`, body, yes: label, danger: true });
    if (!yes) return;
  }
  const question = verb === 'pause' ? await pauseQuestion(app.api, e) : null;
  if (question && !(await app.confirm(question))) return;
  await attempt(app, `${label} experiment ${e.id}`, async () => {
    app.store.learn({ experiment: await app.api.post<ExperimentView>(`experiments/${e.id}/${verb}`) });
  });
}

/** The menu of an experiment; `dismiss` removes it from the list once it has ended. */
export function experimentMenu(app: AppContext, e: ExperimentView, me: UserView | null, dismiss?: () => void): Action[] {
  const controls = experimentActions(e, me).map(a => ({
    key: a.verb, label: a.label, why: a.why, danger: a.needsConfirm, run: () => manage(app, e, a.verb, a.label)
  }));
  const none = Object.values(e.trials).every(n => n === 0) ? 'No trials yet.' : null;
  return [
    { key: 'open', label: 'Open', run: () => app.navigate({ kind: 'experiment', id: e.id }) },
    ...possible(controls, isOver(e.state) ? null : closed(me, e)),
    ...possible([
      { key: 'logs', label: 'Logs of the best or first trial', why: none, run: () => openLogs(app, e) },
      { key: 'tensorboard', label: 'TensorBoard', why: none ?? readOnly(me), run: () => openTensorBoard(app, e) }
    ]),
    ...common(app, String(e.id), watchCode(e.id)),
    ...dismissal(e, dismiss)
  ];
}

/** The actions that can be done now; `barred` (why this user may do none of them) takes one line. */
function possible(actions: Action[], barred: string | null = null): Action[] {
  const now = actions.filter(action => !action.why);
  return now.length || !barred ? now : [{ key: 'barred', label: '', why: barred, run: () => undefined }];
}

function dismissal(view: ExperimentView | TaskView, dismiss?: () => void): Action[] {
  return dismiss && isOver(view.state) ? [{ key: 'dismiss', label: 'Remove from this list', run: dismiss }] : [];
}

/** The menu of a task; `dismiss` removes it from the list once it has ended. */
export function taskMenu(app: AppContext, task: TaskView, me: UserView | null, dismiss?: () => void): Action[] {
  const kind = KIND_WORDS[task.kind];
  const kill = taskActions(task, me)[0]!;
  return [
    ...possible([{ key: 'open', label: 'Open', why: whyNotOpen(task), run: () => app.openUrl(task.url!) }]),
    { key: 'logs', label: 'Details and logs', run: () => app.navigate({ kind: 'task', id: task.id }) },
    ...possible([{
      key: 'kill', label: 'Kill', why: kill.why, danger: true,
      run: async () => {
        const body = `The ${kind} "${nameText(task.name)}" ends now.`;
        if (!(await app.confirm({ title: `Kill this ${kind}?`, body, yes: 'Kill', danger: true }))) return;
        await attempt(app, `Kill ${kind}`, async () => {
          app.store.learn({ task: await app.api.post<TaskView>(`tasks/${encodeURIComponent(task.id)}/kill`) });
        });
      }
    }], isOver(task.state) ? null : forbidden(me, task)),
    ...common(app, task.id, taskCode(task.id)),
    ...dismissal(task, dismiss)
  ];
}

/** Code for a notebook; only kernels of the Hub's servers have the magics from the start. A test runs both in a kernel. */
export function watchCode(id: number): string {
  return `%load_ext detlab_magics\n%det_watch ${id}`;
}

export function taskCode(id: string): string {
  return `from detlab import client\n\ntask = client.get_task(${JSON.stringify(id)})\ntask`;
}

/** Why a task cannot be opened in a tab, or null. */
export function whyNotOpen(task: TaskView): string | null {
  if (task.url) return null;
  return isOver(task.state) ? 'It has ended.' : 'It is still starting.';
}

function common(app: AppContext, id: string, code: string): Action[] {
  return [
    {
      key: 'copy', label: 'Copy id',
      run: () => attempt(app, 'Copy', async () => {
        await navigator.clipboard.writeText(id);
        app.notify(`Copied ${id}`);
      })
    },
    ...(app.insertCode
      ? [{ key: 'insert', label: 'Insert code into the notebook', run: () => app.insertCode?.(code) }]
      : [])
  ];
}

async function openLogs(app: AppContext, e: ExperimentView): Promise<void> {
  await attempt(app, 'Logs', async () => {
    const place = { kind: 'trial', experiment: e.id, tab: 'logs' } as const;
    if (e.best) return app.navigate({ ...place, id: e.best.trial_id });
    const page = await app.api.get<{ items: TrialView[] }>(`experiments/${e.id}/trials?limit=1`);
    if (page.items[0]) app.navigate({ ...place, id: page.items[0].id });
    else app.notify(`Experiment ${e.id} has no trials yet.`);
  });
}

async function openTensorBoard(app: AppContext, e: ExperimentView): Promise<void> {
  const open = app.store.getSnapshot().tasks.find(
    t => t.kind === 'tensorboard' && !isOver(t.state) && t.experiment_ids.includes(e.id)
  );
  if (open?.url) return app.openUrl(open.url);
  if (open) return app.notify('Its TensorBoard is starting. Open it in My work when it is running.');
  await attempt(app, 'TensorBoard', async () => {
    const reply = await app.api.post<CreateTaskReply>('tasks', { kind: 'tensorboard', experiment_ids: [e.id] });
    if (reply.task) app.store.learn({ task: reply.task });
    app.notify('The TensorBoard is starting. Open it in My work when it is running.');
  });
}

/** What components get from JupyterLab. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Dialog, Notification, showDialog } from '@jupyterlab/apputils';
import { INotebookTracker, NotebookActions } from '@jupyterlab/notebook';

import { nameText } from '../components/common/text';
import type { AppContext, Place, Question } from '../state/context';
import { viaHub } from '../state/serverurl';
import { Store } from '../state/store';
import type { LabApi } from './api';
import { OPEN } from './commands';

/** Make the context of all views of this Lab: one store, one stream. */
export function makeApp(
  lab: JupyterFrontEnd, api: LabApi, notebooks: INotebookTracker | null, hubOrigin: () => string | null
): AppContext {
  return {
    api,
    store: new Store(api),
    host: 'lab',
    navigate: (place: Place) => void lab.commands.execute(OPEN, { ...place }),
    address: () => null,
    insertCode: notebooks ? code => insertCode(lab, notebooks, code) : undefined,
    openTutorial: () => openTutorial(lab, api),
    plotly: async () => (await import('plotly.js-cartesian-dist-min')).default,
    openUrl: path => void window.open(`${hubOrigin() ?? window.location.origin}${viaHub(path)}`, '_blank', 'noopener'),
    confirm,
    notify: (message, tone) => void (tone === 'bad' ? Notification.error : Notification.info)(message, { autoClose: tone === 'bad' ? 10_000 : 4000 })
  };
}

/** Put the tutorial beside the user's files, unless it is there already, and open it. */
async function openTutorial(lab: JupyterFrontEnd, api: LabApi): Promise<void> {
  const { contents } = lab.serviceManager;
  try {
    const { name, content } = await api.own<{ name: string; content: unknown }>('tutorial');
    const there = await contents.get(name, { content: false }).then(() => true, () => false);
    if (!there) {
      await contents.save(name.slice(0, name.lastIndexOf('/')), { type: 'directory' });
      await contents.save(name, { type: 'notebook', format: 'json', content });
    }
    await lab.commands.execute('docmanager:open', { path: name });
  } catch (error) {
    Notification.error(nameText(`The tutorial was not opened: ${error instanceof Error ? error.message : String(error)}`, 400), { autoClose: 10_000 });
  }
}

async function confirm(question: Question): Promise<boolean> {
  const yes = question.danger ? Dialog.warnButton : Dialog.okButton;
  const answer = await showDialog({
    title: question.title, body: question.body, buttons: [Dialog.cancelButton(), yes({ label: question.yes })],
    defaultButton: 0
  });
  return answer.button.accept;
}

/** Put code in a new cell below the active one of the notebook used last. */
async function insertCode(lab: JupyterFrontEnd, notebooks: INotebookTracker, code: string): Promise<void> {
  const panel = notebooks.currentWidget;
  if (!panel) {
    Notification.warning('Open a notebook first: the code is inserted below its active cell.', { autoClose: 5000 });
    return;
  }
  lab.shell.activateById(panel.id);
  try {
    await panel.context.ready; // a cell inserted before the file is loaded would be lost
  } catch (error) {
    Notification.error(nameText(`The code was not inserted: the notebook did not open (${String(error)}).`, 400), { autoClose: 10_000 });
    return;
  }
  if (panel.isDisposed) {
    Notification.warning('The code was not inserted: the notebook was closed.', { autoClose: 5000 });
    return;
  }
  const notebook = panel.content;
  NotebookActions.insertBelow(notebook);
  notebook.activeCell?.model.sharedModel.setSource(code);
  notebook.mode = 'edit';
}

/** Code for the notebook in front: where it cannot go, that is said, and nothing is left to fail unseen. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import type { INotebookTracker } from '@jupyterlab/notebook';
import { afterEach, expect, it } from 'vitest';

import type { LabApi } from './api';
import { makeApp } from './host';

afterEach(() => Notification.dismiss());

/** Insert code where the notebook in front is `panel`, or there is none; what people are told then. */
async function insert(panel: object | null): Promise<string[]> {
  const lab = { shell: { activateById: () => undefined } } as unknown as JupyterFrontEnd;
  const app = makeApp(lab, {} as LabApi, { currentWidget: panel } as INotebookTracker, () => null);
  await app.insertCode!('1 + 1');
  return Notification.manager.notifications.map(({ type, message }) => `${type}: ${message}`);
}

it('says that there is no notebook', async () => {
  expect(await insert(null)).toEqual(['warning: Open a notebook first: the code is inserted below its active cell.']);
});

it('says that the notebook did not open, and why, as text that obeys nothing', async () => {
  const panel = { id: 'n', isDisposed: false, context: { ready: Promise.reject(new Error('no such file \u202e')) } };
  expect(await insert(panel)).toEqual(['error: The code was not inserted: the notebook did not open (Error: no such file ⟨U+202E⟩).']);
});

it('leaves a notebook alone that was closed while it was waited for', async () => {
  const panel = {
    id: 'n', isDisposed: false,
    get context() { return { ready: Promise.resolve().then(() => { this.isDisposed = true; }) }; },
    get content() { throw new Error('a closed notebook has none'); }
  };
  expect(await insert(panel)).toEqual(['warning: The code was not inserted: the notebook was closed.']);
});

it.each([[false, ['get', 'save tutorial', 'save tutorial/first.ipynb', 'open tutorial/first.ipynb']], [true, ['get', 'open tutorial/first.ipynb']]])(
  'opens the tutorial beside the user\'s files, and overwrites none (there already: %s)', async (there, expected) => {
    const done: string[] = [];
    const contents = {
      get: async () => { done.push('get'); if (!there) throw new Error('404'); },
      save: async (path: string) => void done.push(`save ${path}`)
    };
    const commands = { execute: async (_: string, { path }: { path: string }) => void done.push(`open ${path}`) };
    const lab = { serviceManager: { contents }, commands } as unknown as JupyterFrontEnd;
    const api = { own: async () => ({ name: 'tutorial/first.ipynb', content: { cells: [] } }) } as unknown as LabApi;
    await makeApp(lab, api, null, () => null).openTutorial!();
    expect(done).toEqual(expected);
  }
);

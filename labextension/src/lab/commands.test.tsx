/** Our commands in JupyterLab's own palette and launcher, worked by keyboard. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { ICommandPalette } from '@jupyterlab/apputils';
import { Launcher, LauncherModel } from '@jupyterlab/launcher';
import { CommandRegistry } from '@lumino/commands';
import { DisposableDelegate } from '@lumino/disposable';
import { MessageLoop } from '@lumino/messaging';
import { CommandPalette, Widget } from '@lumino/widgets';
import { fireEvent, waitFor } from '@testing-library/react';
import { afterEach, describe, expect, it } from 'vitest';

import { show, Shown } from '../testing/app';
import { experiment, overview } from '../testing/fixtures';
import { addCommands, offer, OPEN } from './commands';

const PANEL = 'detlab-panel';

interface Stage extends Shown {
  palette: CommandPalette;
  launcher: Launcher;
  /** What was opened or activated, in order. */
  opened: string[];
  /** The widget in front. */
  front: { id: string };
  lab: JupyterFrontEnd;
}

const widgets: Widget[] = [];

afterEach(() => {
  for (const widget of widgets.splice(0)) widget.dispose();
});

/** The parts of JupyterLab that hold commands, with ours in them. */
async function stage(): Promise<Stage> {
  const shown = show(<div />, {
    overview: overview({ experiments: [experiment(2), experiment(1)] }), 'POST experiments/2/pause': experiment(2, { state: 'PAUSED' })
  });
  await waitFor(() => expect(shown.app.store.getSnapshot().ready).toBe(true));
  const commands = new CommandRegistry();
  const palette = new CommandPalette({ commands });
  const model = new LauncherModel();
  const launcher = new Launcher({ model, cwd: '', callback: () => undefined, commands });
  const opened: string[] = [];
  const front = { id: 'launcher-0' };
  commands.addCommand(OPEN, { execute: args => { opened.push(JSON.stringify(args)); } });
  const lab = {
    commands, contextMenu: { addItem: () => undefined },
    shell: { activateById: (id: string) => opened.push(id), get currentWidget() { return front; } }
  } as unknown as JupyterFrontEnd;
  addCommands(lab, shown.app, null, null, PANEL);
  for (const category of ['Notebook', 'Console', 'Other']) {
    commands.addCommand(`test:${category}`, { label: category, execute: () => undefined });
    model.add({ command: `test:${category}`, category });
  }
  const items: Pick<ICommandPalette, 'addItem'> = {
    addItem: item => {
      const added = palette.addItem(item);
      return new DisposableDelegate(() => palette.removeItem(added));
    }
  };
  offer(lab, items as ICommandPalette, model);
  for (const widget of [palette, launcher]) {
    widgets.push(widget);
    Widget.attach(widget, document.body);
  }
  MessageLoop.flush();
  return { ...shown, palette, launcher, opened, front, lab };
}

/** Type into the palette, whose first match is chosen then, and press keys; what it then shows. */
function search(palette: CommandPalette, text: string, ...keys: number[]): string[] {
  palette.activate();
  MessageLoop.flush();
  fireEvent.input(palette.inputNode, { target: { value: text } });
  MessageLoop.flush();
  // Lumino reads the key's number.
  for (const keyCode of keys) fireEvent.keyDown(palette.inputNode, { keyCode });
  return [...palette.node.querySelectorAll('.lm-CommandPalette-itemLabel')].map(el => el.textContent!);
}

const ENTER = 13;

describe('the command palette', () => {
  it('has all commands of ours under one head', async () => {
    const { palette } = await stage();
    expect(search(palette, 'detlab').sort()).toEqual([
      'Activate the Experiment in View', 'All Experiments', 'All Trials', 'Compare Runs', 'Kill the Experiment in View', 'New Experiment',
      'Pause the Experiment in View', 'Show Artifacts', 'Show What Others Share with Me', 'Show Workspaces', 'Show the detlab Panel', 'Show the detlab Settings'
    ]);
    expect(palette.node.querySelector('.lm-CommandPalette-header')!.textContent).toBe('detlab');
  });

  it('opens the form and the panel by keyboard', async () => {
    const { palette, opened } = await stage();
    search(palette, 'new experiment', ENTER);
    search(palette, 'detlab panel', ENTER);
    expect(opened).toEqual(['{"kind":"new"}', PANEL]);
  });

  it('opens a comparison, empty by keyboard, and of the runs that another part names', async () => {
    const { palette, opened, lab } = await stage();
    search(palette, 'compare runs', ENTER);
    await lab.commands.execute('detlab:compare', { trials: [12, 15, 'x', -1], experiments: [3] });
    expect(opened).toEqual([
      '{"kind":"comparison","trials":[],"experiments":[],"view":""}', '{"kind":"comparison","trials":[12,15],"experiments":[3],"view":""}'
    ]);
  });

  it('steers the experiment in view by keyboard, and nothing else', async () => {
    const { palette, api, front } = await stage();
    search(palette, 'pause the experiment', ENTER);
    expect(palette.node.querySelector('.lm-CommandPalette-itemCaption')!.textContent).toBe('no experiment is open in the active tab');
    front.id = 'detlab-experiment:2';
    expect(search(palette, 'pause the experiment', ENTER)).toEqual(['Pause the Experiment in View (2)']);
    await waitFor(() => expect(api.asked.filter(path => path.startsWith('POST'))).toEqual(['POST experiments/2/pause']));
  });
});

describe('the launcher', () => {
  it('shows the card between the notebooks and the consoles, and opens the form by Enter', async () => {
    const { launcher, opened } = await stage();
    await waitFor(() => expect(launcher.node.querySelector('.jp-LauncherCard[title^="Train with many"]')).toBeTruthy());
    const heads = [...launcher.node.querySelectorAll('.jp-Launcher-sectionTitle')].map(el => el.textContent);
    expect(heads).toEqual(['Notebook', 'detlab', 'Console', 'Other']);
    fireEvent.keyDown(launcher.node.querySelector('.jp-LauncherCard[title^="Train with many"]')!, { key: 'Enter' });
    expect(opened).toEqual(['{"kind":"new"}']);
  });
});

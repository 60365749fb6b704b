/** Commands for the palette, the launcher and the file browser's menu. */

import type { ILabShell, JupyterFrontEnd } from '@jupyterlab/application';
import type { ICommandPalette } from '@jupyterlab/apputils';
import type { IDefaultFileBrowser } from '@jupyterlab/filebrowser';
import type { ILauncher } from '@jupyterlab/launcher';

import { compareLink } from '../components/compare/link';
import { experimentActions, Verb } from '../components/view/actions';
import { manage } from '../components/panel/workactions';
import type { AppContext } from '../state/context';
import type { ExperimentView } from '../state/wire';
import { detlabIcon } from './icon';
import { RUNNABLE } from './pick';

/** Shows a place (state/context) in the main area. */
export const OPEN = 'detlab:open';
export const RUN_AS_EXPERIMENT = 'detlab:run-as-experiment';
const CATEGORY = 'detlab';
/** After the notebooks (0) and before the consoles (20): lower ones lie below the fold. */
const LAUNCHER_RANK = 10;

export function addCommands(
  lab: JupyterFrontEnd, app: AppContext, files: IDefaultFileBrowser | null, shell: ILabShell | null, panelId: string
): void {
  lab.commands.addCommand('detlab:new-experiment', {
    label: args => (args['isPalette'] ? 'New Experiment' : 'New experiment'),
    caption: 'Train with many hyperparameters and find the best',
    icon: args => (args['isPalette'] ? undefined : detlabIcon),
    execute: () => lab.commands.execute(OPEN, { kind: 'new' })
  });
  lab.commands.addCommand('detlab:compare', {
    label: args => (args['isPalette'] ? 'Compare Runs' : 'Compare runs'),
    caption: 'Show trials, experiments or runs side by side',
    execute: args => lab.commands.execute(OPEN, compareLink({ trials: numbersOf(args['trials']), experiments: numbersOf(args['experiments']), runs: textsOf(args['runs']) }))
  });
  for (const table of ['experiments', 'trials'] as const) {
    lab.commands.addCommand(`detlab:all-${table}`, {
      label: `All ${table === 'trials' ? 'Trials' : 'Experiments'}`,
      caption: `Find ${table} by filters, metrics and hyperparameters`,
      execute: () => lab.commands.execute(OPEN, { kind: 'runs', table })
    });
  }
  lab.commands.addCommand('detlab:show-panel', {
    label: 'Show the detlab Panel',
    execute: () => lab.shell.activateById(panelId)
  });
  const lists: [string, string][] = [['tracked', 'Show Runs from Anywhere'], ['artifacts', 'Show Artifacts'], ['workspaces', 'Show Workspaces'], ['shared', 'Show What Others Share with Me'], ['settings', 'Show the detlab Settings']];
  for (const [kind, label] of lists) {
    lab.commands.addCommand(`detlab:${kind}`, { label, execute: () => lab.commands.execute(OPEN, { kind }) });
  }
  const chosen = (): string | null => {
    const items = files ? [...files.selectedItems()] : [];
    return items.length === 1 && RUNNABLE.test(items[0]!.path) ? items[0]!.path : null;
  };
  lab.commands.addCommand(RUN_AS_EXPERIMENT, {
    label: () => (chosen()?.endsWith('.ipynb') ? 'Run Notebook on the Cluster' : 'Run as Experiment'),
    caption: () => (chosen()?.endsWith('.ipynb') ? 'Run the whole notebook as a task, and keep its outputs' : 'Submit this file to the cluster'),
    icon: detlabIcon,
    isVisible: () => chosen() !== null,
    execute: args => {
      const path = (args['path'] as string | undefined) ?? chosen();
      if (path) return lab.commands.execute(OPEN, { kind: 'new', path });
    }
  });
  addControls(lab, app, shell);
}

function numbersOf(value: unknown): number[] {
  return Array.isArray(value) ? value.filter((one): one is number => typeof one === 'number' && Number.isSafeInteger(one) && one >= 0) : [];
}

function textsOf(value: unknown): string[] {
  return Array.isArray(value) ? value.filter((one): one is string => typeof one === 'string') : [];
}

/** Put the commands where people look for them. */
export function offer(lab: JupyterFrontEnd, palette: ICommandPalette | null, launcher: ILauncher | null): void {
  launcher?.add({ command: 'detlab:new-experiment', category: CATEGORY, rank: 1, categoryRank: LAUNCHER_RANK });
  const offered = ['new-experiment', 'compare', 'show-panel', 'all-experiments', 'all-trials', 'artifacts', 'workspaces', 'shared', 'settings', 'pause', 'activate', 'kill'];
  for (const command of offered.map(name => `detlab:${name}`)) {
    palette?.addItem({ command, category: CATEGORY, args: { isPalette: true } });
  }
  lab.contextMenu.addItem({
    command: RUN_AS_EXPERIMENT, selector: '.jp-DirListing-item[data-isdir="false"]', rank: 5.5
  });
}

/** Pause, activate and kill of the experiment whose view is in front. */
function addControls(lab: JupyterFrontEnd, app: AppContext, shell: ILabShell | null): void {
  const shown = (): string | null => /^detlab-experiment:(\d+)$/.exec((shell ?? lab.shell).currentWidget?.id ?? '')?.[1] ?? null;
  const inFront = (): ExperimentView | null => app.store.getSnapshot().experiments.find(e => e.id === Number(shown())) ?? null;
  const verbs: [Verb, string][] = [['pause', 'Pause'], ['activate', 'Activate'], ['kill', 'Kill']];
  for (const [verb, label] of verbs) {
    const why = (): string | null => {
      const e = inFront();
      if (!e) return shown() ? 'not in My work: use the buttons in its view' : 'no experiment is open in the active tab';
      return experimentActions(e, app.store.getSnapshot().me).find(a => a.verb === verb)?.why ?? null;
    };
    lab.commands.addCommand(`detlab:${verb}`, {
      label: () => `${label} the Experiment in View${inFront() ? ` (${inFront()!.id})` : ''}`,
      caption: () => why() ?? '',
      isEnabled: () => why() === null,
      execute: () => {
        const e = inFront();
        if (e) return manage(app, e, verb, label);
      }
    });
  }
  const renew = (): void => lab.commands.notifyCommandChanged();
  shell?.currentChanged.connect(renew);
  let states = '';
  app.store.subscribe(() => {
    const now = app.store.getSnapshot().experiments.map(e => `${e.id}${e.state}`).join();
    if (now !== states) renew();
    states = now;
  });
}

/** The JupyterLab extension: panel, views, launcher card, file action, status item, palette. */

import { ILabShell, ILayoutRestorer, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette, MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';
import { IDefaultFileBrowser } from '@jupyterlab/filebrowser';
import { ILauncher } from '@jupyterlab/launcher';
import { INotebookTracker } from '@jupyterlab/notebook';
import { IStatusBar } from '@jupyterlab/statusbar';

import { version } from '../../package.json';
import { Panel } from '../components/panel';
import { applySettings } from '../components/settings/own';
import { AppContext, Place } from '../state/context';
import { LabApi } from './api';
import { addCommands, offer, OPEN } from './commands';
import { VersionFoot, Versioning, VersionNotice } from './handshake';
import { makeApp } from './host';
import { detlabIcon } from './icon';
import { NewExperiment } from './tabs/NewExperiment';
import { StatusItem } from './StatusItem';
import { keepStillViews } from './stillviews';
import { pickerOf } from './pick';
import { makeTab, placeKey, View } from './tabs/views';

const plugin: JupyterFrontEndPlugin<void> = {
  id: '@detlab/labextension:plugin',
  description: 'Experiments, notebooks and the cluster of detlab',
  autoStart: true,
  optional: [
    ILayoutRestorer, ICommandPalette, ILauncher, IDefaultFileBrowser, INotebookTracker, IStatusBar, ILabShell
  ],
  activate: (
    lab: JupyterFrontEnd,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null,
    launcher: ILauncher | null,
    files: IDefaultFileBrowser | null,
    notebooks: INotebookTracker | null,
    statusBar: IStatusBar | null,
    shell: ILabShell | null
  ): void => {
    const api = new LabApi(lab.serviceManager.serverSettings);
    const versioning = new Versioning(api, version);
    const app = makeApp(lab, api, notebooks, () => versioning.getState().versions?.hub ?? null);
    const panel = addPanel(lab, app, versioning);
    restorer?.add(panel, panel.id);
    addTabs(lab, app, api, files, restorer);
    addCommands(lab, app, files, shell, panel.id);
    offer(lab, palette, launcher);
    if (notebooks) keepStillViews(notebooks);
    statusBar?.registerStatusItem('detlab:status', {
      item: statusWidget(app, () => lab.shell.activateById(panel.id)), align: 'left', rank: 100
    });
    // What the first paint of Lab needs goes first; the stream begins when it is up.
    void lab.restored.then(() => {
      app.store.start();
      void applySettings(api);
      void versioning.ask();
    });
  }
};

function addPanel(lab: JupyterFrontEnd, app: AppContext, versioning: Versioning): View {
  const content = (
    <Panel notice={<VersionNotice versioning={versioning} />} footer={<VersionFoot versioning={versioning} />} />
  );
  const panel = new View(app, content, 'detlab');
  panel.id = 'detlab-panel';
  panel.title.icon = detlabIcon;
  panel.title.caption = 'detlab: experiments and cluster';
  lab.shell.add(panel, 'left', { rank: 500 });
  return panel;
}

function addTabs(
  lab: JupyterFrontEnd, app: AppContext, api: LabApi, files: IDefaultFileBrowser | null, restorer: ILayoutRestorer | null
): void {
  const tracker = new WidgetTracker<MainAreaWidget<View>>({ namespace: 'detlab' });
  const places = new Map<string, Place>();
  lab.commands.addCommand(OPEN, {
    label: 'Open in detlab',
    execute: args => {
      const place = args as unknown as Place;
      const key = placeKey(place);
      const open = tracker.find(tab => tab.id === `detlab-${key}`);
      // A view is opened again at another of its tabs.
      const same = open && JSON.stringify(places.get(key)) === JSON.stringify(place);
      if (open && (same || !('tab' in place) || !place.tab)) return lab.shell.activateById(open.id);
      open?.dispose();
      const tab = makeTab(app, place, asked => (
        <NewExperiment
          app={app} api={api} contents={lab.serviceManager.contents} pick={files ? pickerOf(files) : null} path={asked.path} from={asked.from}
          folder={files?.model.path ?? ''} onDone={() => tab.close()}
        />
      ));
      places.set(key, place);
      lab.shell.add(tab, 'main', { type: 'detlab' });
      void tracker.add(tab);
      lab.shell.activateById(tab.id);
    }
  });
  void restorer?.restore(tracker, {
    command: OPEN,
    args: tab => ({ ...places.get(tab.id.replace(/^detlab-/, '')) }),
    name: tab => tab.id
  });
}

function statusWidget(app: AppContext, onClick: () => void): View {
  const item = new View(app, <StatusItem onClick={onClick} />, 'detlab status');
  item.removeClass('det-view-host');
  return item;
}

export default plugin;

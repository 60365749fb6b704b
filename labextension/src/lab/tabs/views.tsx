/** Lumino widgets that hold React views. */

import { MainAreaWidget, ReactWidget } from '@jupyterlab/apputils';
import { Fragment, lazy, ReactElement, Suspense } from 'react';

import { Loading } from '../../components/common';
import { nameText } from '../../components/common/text';
import { useZone } from '../../components/common/zone';
import { AppContext, AppProvider, Place } from '../../state/context';
import { detlabIcon } from '../icon';

const ExperimentTab = lazy(async () => ({ default: (await import('./ExperimentTab')).ExperimentTab }));
const RegistryTab = lazy(async () => ({ default: (await import('./RegistryTab')).RegistryTab }));
const RunsTab = lazy(async () => ({ default: (await import('./RunsTab')).RunsTab }));
const WorkspaceTab = lazy(async () => ({ default: (await import('./WorkspaceTab')).WorkspaceTab }));

/** A view in its context. */
export class View extends ReactWidget {
  constructor(private app: AppContext, private content: ReactElement, name: string) {
    super();
    this.addClass('det-app');
    this.addClass('det-view-host');
    this.node.setAttribute('aria-label', name);
    this.node.setAttribute('role', 'region');
  }

  protected render(): ReactElement {
    return <AppProvider value={this.app}><InZone>{this.content}</InZone></AppProvider>;
  }
}

/** Drawn anew when another time zone is chosen. */
function InZone({ children }: { children: ReactElement }): ReactElement {
  return <Fragment key={useZone()}>{children}</Fragment>;
}

export function placeKey(place: Place): string {
  switch (place.kind) {
    case 'new': return `new:${place.from ?? ''}${place.path ?? ''}`;
    case 'runs': return `runs:${place.table}`;
    case 'tracked':
    case 'models':
    case 'artifacts':
    case 'storage':
    case 'workspaces':
    case 'shared':
    case 'settings': return place.kind;
    case 'workspace': return `workspace:${place.workspace}`;
    case 'project': return `project:${place.workspace}/${place.project}`;
    case 'model': return `model:${place.name}`;
    case 'version': return `version:${place.model}@${place.version}`;
    case 'artifact': return `artifact:${place.artifact}`;
    case 'artifactversion': return `artifact:${place.artifact}:v${place.version}`;
    case 'comparison': return `comparison:${place.trials.join()}/${place.experiments.join()}/${(place.runs ?? []).join()}`;
    case 'compare': return `compare:${place.model}@${place.versions.join()}`;
    default: return `${place.kind}:${place.id}`;
  }
}

export function placeTitle(place: Place): string {
  switch (place.kind) {
    case 'experiment': return `Experiment ${place.id}`;
    case 'trial': return `Trial ${place.id}`;
    case 'task': return `Task ${place.id}`;
    case 'runs': return place.table === 'trials' ? 'Trials' : 'Experiments';
    case 'tracked': return 'Runs';
    case 'run': return `Run ${nameText(place.id, 80)}`;
    case 'models': return 'Models';
    case 'artifacts': return 'Artifacts';
    case 'artifact': return `Artifact ${nameText(place.artifact, 80)}`;
    case 'artifactversion': return `${nameText(place.artifact, 80)}:v${place.version}`;
    case 'storage': return 'Storage';
    case 'workspaces': return 'Workspaces';
    case 'shared': return 'Shared with me';
    case 'settings': return 'detlab settings';
    case 'workspace': return `Workspace ${nameText(place.workspace, 80)}`;
    case 'project': return `Project ${nameText(place.project, 80)}`;
    case 'model': return `Model ${nameText(place.name, 80)}`;
    case 'version': return `${nameText(place.model, 80)} version ${place.version}`;
    case 'comparison': return 'Compare';
    case 'compare': return `Compare ${nameText(place.model, 80)}`;
    case 'new': return place.path?.endsWith('.ipynb') ? 'New notebook run' : 'New experiment';
  }
}

/** What a tab reads: the number first, since many tabs side by side show no more than their first letters. */
export function tabLabel(place: Place): string {
  switch (place.kind) {
    case 'experiment':
    case 'trial': return `#${place.id} ${place.kind}`;
    case 'version': return `v${place.version} ${nameText(place.model, 40)}`;
    case 'model': return nameText(place.name, 40);
    case 'artifact': return nameText(place.artifact, 40);
    default: return placeTitle(place);
  }
}

/** A tab of the main area for a place; `form` makes the one of new experiments. */
export function makeTab(
  app: AppContext, place: Place, form: (place: Place & { kind: 'new' }) => ReactElement
): MainAreaWidget<View> {
  const element = (): ReactElement => {
    switch (place.kind) {
      case 'experiment':
      case 'trial':
      case 'task': return <Suspense fallback={<Loading />}><ExperimentTab place={place} /></Suspense>;
      case 'runs':
      case 'tracked':
      case 'run':
      case 'comparison': return <Suspense fallback={<Loading />}><RunsTab place={place} /></Suspense>;
      case 'workspaces':
      case 'workspace':
      case 'project':
      case 'shared': return <Suspense fallback={<Loading />}><WorkspaceTab place={place} /></Suspense>;
      case 'models':
      case 'artifacts':
      case 'artifact':
      case 'artifactversion':
      case 'storage':
      case 'settings':
      case 'model':
      case 'version':
      case 'compare': return <Suspense fallback={<Loading />}><RegistryTab place={place} /></Suspense>;
      case 'new': return form(place);
    }
  };
  const tab = new MainAreaWidget({ content: new View(app, element(), placeTitle(place)) });
  tab.id = `detlab-${placeKey(place)}`;
  tab.title.label = tabLabel(place);
  tab.title.caption = placeTitle(place);
  tab.title.icon = detlabIcon;
  tab.title.closable = true;
  tab.toolbar.hide();
  return tab;
}

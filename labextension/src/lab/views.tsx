/** Lumino widgets that hold React views. */

import { MainAreaWidget, ReactWidget } from '@jupyterlab/apputils';
import type { ReactElement } from 'react';

import { ExperimentView } from '../components/experiment/ExperimentView';
import { TaskView } from '../components/trial/TaskView';
import { TrialView } from '../components/trial/TrialView';
import { AppContext, AppProvider, Place } from '../state/context';
import { detlabIcon } from './icon';

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
    return <AppProvider value={this.app}>{this.content}</AppProvider>;
  }
}

export function placeKey(place: Place): string {
  return place.kind === 'new' ? `new:${place.from ?? ''}${place.path ?? ''}` : `${place.kind}:${place.id}`;
}

export function placeTitle(place: Place): string {
  switch (place.kind) {
    case 'experiment': return `Experiment ${place.id}`;
    case 'trial': return `Trial ${place.id}`;
    case 'task': return `Task ${place.id}`;
    case 'new': return place.path?.endsWith('.ipynb') ? 'New notebook run' : 'New experiment';
  }
}

/** What a tab reads: the number first, since many tabs side by side show no more than their first letters. */
export function tabLabel(place: Place): string {
  return place.kind === 'new' || place.kind === 'task' ? placeTitle(place) : `#${place.id} ${place.kind}`;
}

/** A tab of the main area for a place; `form` makes the one of new experiments. */
export function makeTab(
  app: AppContext, place: Place, form: (place: Place & { kind: 'new' }) => ReactElement
): MainAreaWidget<View> {
  const element = (): ReactElement => {
    switch (place.kind) {
      case 'experiment': return <ExperimentView id={place.id} />;
      case 'trial': return <TrialView id={place.id} tab={place.tab} />;
      case 'task': return <TaskView id={place.id} />;
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

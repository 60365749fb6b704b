/** Tabs of the tables of runs, of models, workspaces, storage and comparisons; a script of its own, which is loaded with the first of them. */

import type { ReactElement } from 'react';

import { CompareRuns } from '../../components/compare';
import { RunsPage } from '../../components/finding';
import { ComparePage, ModelPage, ModelsPage, VersionPage } from '../../components/models';
import { SettingsPage } from '../../components/settings/SettingsPage';
import { StoragePage } from '../../components/storage';
import { ProjectPage, SharedPage, WorkspacePage, WorkspacesPage } from '../../components/workspaces';
import type { Place } from '../../state/context';

export type RegistryPlace = Place & {
  kind: 'runs' | 'models' | 'storage' | 'model' | 'version' | 'compare' | 'comparison' | 'workspaces' | 'workspace' | 'project' | 'shared' | 'settings';
};

/** Pages of the hub scroll by themselves in a tab. */
export function RegistryTab({ place }: { place: RegistryPlace }): ReactElement {
  return <div className="det-view-main">{page(place)}</div>;
}

function page(place: RegistryPlace): ReactElement {
  switch (place.kind) {
    case 'runs': return <RunsPage table={place.table} query={place.query} />;
    case 'models': return <ModelsPage />;
    case 'storage': return <StoragePage />;
    case 'workspaces': return <WorkspacesPage />;
    case 'workspace': return <WorkspacePage workspace={place.workspace} tab={place.tab} />;
    case 'project': return <ProjectPage workspace={place.workspace} project={place.project} />;
    case 'shared': return <SharedPage />;
    case 'settings': return <SettingsPage />;
    case 'model': return <ModelPage name={place.name} />;
    case 'version': return <VersionPage model={place.model} version={place.version} />;
    case 'comparison': return <CompareRuns trials={place.trials} experiments={place.experiments} view={place.view} />;
    case 'compare': return <ComparePage model={place.model} versions={place.versions} />;
  }
}

/** Tabs of models, artifacts, storage and settings; a script of its own, which is loaded with the first of them. */

import type { ReactElement } from 'react';

import { ArtifactPage, ArtifactsPage, ArtifactVersionPage } from '../../components/artifacts';
import { ComparePage, ModelPage, ModelsPage, VersionPage } from '../../components/models';
import { SettingsPage } from '../../components/settings/SettingsPage';
import { StoragePage } from '../../components/storage';
import type { Place } from '../../state/context';

export type RegistryPlace = Place & { kind: 'models' | 'artifacts' | 'artifact' | 'artifactversion' | 'storage' | 'model' | 'version' | 'compare' | 'settings' };

/** Pages of the hub scroll by themselves in a tab. */
export function RegistryTab({ place }: { place: RegistryPlace }): ReactElement {
  return <div className="det-view-main">{page(place)}</div>;
}

function page(place: RegistryPlace): ReactElement {
  switch (place.kind) {
    case 'models': return <ModelsPage />;
    case 'artifacts': return <ArtifactsPage />;
    case 'artifact': return <ArtifactPage artifact={place.artifact} />;
    case 'artifactversion': return <ArtifactVersionPage artifact={place.artifact} version={place.version} />;
    case 'storage': return <StoragePage />;
    case 'settings': return <SettingsPage />;
    case 'model': return <ModelPage name={place.name} />;
    case 'version': return <VersionPage model={place.model} version={place.version} />;
    case 'compare': return <ComparePage model={place.model} versions={place.versions} />;
  }
}

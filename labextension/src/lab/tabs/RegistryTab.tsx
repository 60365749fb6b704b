/** Tabs of the tables of runs, of models and of storage; a script of its own, which is loaded with the first of them. */

import type { ReactElement } from 'react';

import { RunsPage } from '../../components/finding';
import { ComparePage, ModelPage, ModelsPage, VersionPage } from '../../components/models';
import { StoragePage } from '../../components/storage';
import type { Place } from '../../state/context';

export type RegistryPlace = Place & { kind: 'runs' | 'models' | 'storage' | 'model' | 'version' | 'compare' };

/** Pages of the hub scroll by themselves in a tab. */
export function RegistryTab({ place }: { place: RegistryPlace }): ReactElement {
  return <div className="det-view-main">{page(place)}</div>;
}

function page(place: RegistryPlace): ReactElement {
  switch (place.kind) {
    case 'runs': return <RunsPage table={place.table} query={place.query} />;
    case 'models': return <ModelsPage />;
    case 'storage': return <StoragePage />;
    case 'model': return <ModelPage name={place.name} />;
    case 'version': return <VersionPage model={place.model} version={place.version} />;
    case 'compare': return <ComparePage model={place.model} versions={place.versions} />;
  }
}

/** Tabs of workspaces and projects; a script of its own, which is loaded with the first of them. */

import type { ReactElement } from 'react';

import { ProjectPage, SharedPage, WorkspacePage, WorkspacesPage } from '../../components/workspaces';
import type { Place } from '../../state/context';

export type TeamPlace = Place & { kind: 'workspaces' | 'workspace' | 'project' | 'shared' };

export function WorkspaceTab({ place }: { place: TeamPlace }): ReactElement {
  return <div className="det-view-main">{page(place)}</div>;
}

function page(place: TeamPlace): ReactElement {
  switch (place.kind) {
    case 'workspaces': return <WorkspacesPage />;
    case 'workspace': return <WorkspacePage workspace={place.workspace} tab={place.tab} />;
    case 'project': return <ProjectPage workspace={place.workspace} project={place.project} />;
    case 'shared': return <SharedPage />;
  }
}

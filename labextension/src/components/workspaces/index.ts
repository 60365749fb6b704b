/** Workspaces with members and roles, projects with notes, and what others share. */

export { useShared, useTeams } from './load';
export { MoveExperiment } from './MoveExperiment';
export { ProjectPage } from './ProjectPage';
export { SharedPage } from './SharedPage';
export { WorkspaceItems } from './Section';
export { WorkspacePage } from './WorkspacePage';
export { WorkspacesPage } from './WorkspacesPage';

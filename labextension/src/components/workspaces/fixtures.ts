/** Workspaces, members and projects as the master sends them, for component tests. */

import type { MemberView, ProjectView, WorkspaceView } from '../../state/wire';

export function workspace(id: number, over: Partial<WorkspaceView> = {}): WorkspaceView {
  return {
    id, name: `workspace ${id}`, owner: 'ada', personal: false, description: '', created_at: 1e9, archived_at: null, may: 'own', role: 'admin', projects: 1,
    experiments: 2, runs: 0, models: 0, tasks: 0, quota: null, defaults: { resource_pool: '', checkpoint_storage: {}, environment: {}, task_container_defaults: {}, template: '' }, shortened: [], ...over
  };
}

export const PERSONAL = workspace(1, { name: 'Uncategorized', personal: true, role: null });

export function project(id: number, over: Partial<ProjectView> = {}): ProjectView {
  return {
    id, name: `project ${id}`, workspace_id: 7, workspace: 'ada/vision', owner: 'ada', description: '', notes: '', created_at: 1e9, archived_at: null,
    experiments: 0, runs: 0, tasks: 0, may: 'own', shortened: [], ...over
  };
}

export function member(name: string, role: MemberView['role'], kind: MemberView['kind'] = 'user'): MemberView {
  return { kind, name, role, added_by: 'ada', created_at: 1e9 };
}

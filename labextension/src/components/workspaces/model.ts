/** What views of workspaces derive from what the master sends, and the paths of its routes. */

import type { MemberView, ProjectView, UserView, WorkspaceView } from '../../state/wire';
import { nameText } from '../common/text';
import { readOnly } from '../view/actions';

const quoted = encodeURIComponent;

export type RoleName = MemberView['role'];

/** What each role may, in a few words. */
export const ROLES: readonly [RoleName, string][] = [
  ['viewer', 'sees what lies in it'],
  ['editor', 'also changes it and puts things into it'],
  ['admin', 'also deletes, shares, and decides who is a member']
];

export function workspacePath(workspace: string | number): string {
  return `workspaces/${quoted(String(workspace))}`;
}

export function projectPath(workspace: string | number, project: string | number): string {
  return `${workspacePath(workspace)}/projects/${quoted(String(project))}`;
}

/** What this user names a workspace by: its name, or `OWNER/NAME` where somebody else has made it. */
export function workspaceName(workspace: Pick<WorkspaceView, 'name' | 'owner' | 'personal'>, me: string): string {
  if (workspace.personal) return workspace.owner === me ? 'Personal' : `Personal of ${nameText(workspace.owner, 60)}`;
  const name = nameText(workspace.name, 120);
  return workspace.owner === me ? name : `${nameText(workspace.owner, 60)}/${name}`;
}

/** The caller's role in words. */
export function roleWord(workspace: Pick<WorkspaceView, 'role' | 'personal' | 'may'>): string {
  if (workspace.role) return workspace.role;
  return workspace.personal ? 'owner' : workspace.may === 'own' ? 'administrator of the cluster' : '–';
}

/** Why this user may put nothing into a workspace, or null. */
export function notEditor(me: UserView | null, of: Pick<WorkspaceView | ProjectView, 'may'>): string | null {
  return readOnly(me) ?? (of.may === 'read' ? 'It needs the role editor; ask an admin of the workspace.' : null);
}

/** Why this user may not decide about a workspace, or null. */
export function notAdmin(me: UserView | null, of: Pick<WorkspaceView | ProjectView, 'may'>): string | null {
  return readOnly(me) ?? (of.may === 'own' ? null : 'It needs the role admin; ask an admin of the workspace.');
}

/** What is wrong with the name of a workspace or a project, or null; the master looks more closely. */
export function folderProblem(name: string): string | null {
  if (!name.trim()) return 'A name is needed.';
  return /^\p{Nd}+$/u.test(name.trim()) ? 'A name of digits only would look like an id.' : null;
}

/** Dialogs that make workspaces and projects, and forms that change what people wrote about them. */

import type { ReactElement } from 'react';

import { useApp } from '../../state/context';
import type { CreateProject, CreateWorkspace, EditProject, EditWorkspace, ProjectView, WorkspaceView } from '../../state/wire';
import { Dialog } from '../admin/Dialog';
import { nameText } from '../common/text';
import { FieldsForm, type FormField } from '../admin/fields';
import { folderProblem, projectPath, workspacePath } from './model';

const SAME = 'Names are the same if they differ only in case or in how Unicode writes them.';
const NAME: FormField = { key: 'name', label: 'Name', most: 256, required: true, check: folderProblem, about: SAME };
const DESCRIPTION: FormField = { key: 'description', label: 'Description', most: 10_000 };

export function NewWorkspace({ onClose, onMade }: { onClose: () => void; onMade: (made: WorkspaceView) => void }): ReactElement {
  const { api } = useApp();
  const make = async (values: Record<string, string>): Promise<void> => {
    const body: CreateWorkspace = { name: values.name!, description: values.description ?? '' };
    onMade(await api.post<WorkspaceView>('workspaces', body));
  };
  return (
    <Dialog title="New workspace" onClose={onClose}>
      <p className="det-soft det-dialog-about">A folder with members: they see what lies in it, and nobody else does. You are its first admin.</p>
      <FieldsForm label="New workspace" fields={[NAME, DESCRIPTION]} start={{}} yes="Create" dialog conflictAt="name" onSubmit={make} onCancel={onClose} />
    </Dialog>
  );
}

export function NewProject({ workspace, onClose, onMade }: {
  workspace: WorkspaceView; onClose: () => void; onMade: (made: ProjectView) => void;
}): ReactElement {
  const { api } = useApp();
  const make = async (values: Record<string, string>): Promise<void> => {
    const body: CreateProject = { name: values.name!, description: values.description ?? '' };
    onMade(await api.post<ProjectView>(`${workspacePath(workspace.id)}/projects`, body));
  };
  return (
    <Dialog title={`New project in ${nameText(workspace.name, 60)}`} onClose={onClose}>
      <FieldsForm label="New project" fields={[NAME, DESCRIPTION]} start={{}} yes="Create" dialog conflictAt="name" onSubmit={make} onCancel={onClose} />
    </Dialog>
  );
}

/** `renames`: whether the name may be changed, which is its maker's. */
export function EditWorkspaceForm({ workspace, renames, onSaved, onCancel }: {
  workspace: WorkspaceView; renames: boolean; onSaved: (view: WorkspaceView) => void; onCancel: () => void;
}): ReactElement {
  const { api } = useApp();
  const save = async (now: Record<string, string>): Promise<void> => {
    const changes: EditWorkspace = changed({ name: workspace.name, description: workspace.description }, now);
    onSaved(await api.post<WorkspaceView>(`${workspacePath(workspace.id)}/edit`, changes));
  };
  const start = { name: workspace.name, description: workspace.description };
  return (
    <FieldsForm
      label={`Edit workspace ${nameText(workspace.name, 80)}`} fields={renames ? [NAME, DESCRIPTION] : [DESCRIPTION]} start={start} yes="Save"
      conflictAt={renames ? 'name' : undefined} onSubmit={save} onCancel={onCancel}
    />
  );
}

export function EditProjectForm({ project, onSaved, onCancel }: {
  project: ProjectView; onSaved: (view: ProjectView) => void; onCancel: () => void;
}): ReactElement {
  const { api } = useApp();
  const save = async (now: Record<string, string>): Promise<void> => {
    const changes: EditProject = changed({ name: project.name, description: project.description }, now);
    onSaved(await api.post<ProjectView>(`${projectPath(project.workspace_id, project.id)}/edit`, changes));
  };
  const start = { name: project.name, description: project.description };
  return (
    <FieldsForm
      label={`Edit project ${nameText(project.name, 80)}`} fields={[NAME, DESCRIPTION]} start={start} yes="Save" conflictAt="name"
      onSubmit={save} onCancel={onCancel}
    />
  );
}

/** Only what was changed: somebody else may be changing the rest. */
function changed<T extends Record<string, string>>(before: T, now: Record<string, string>): Partial<T> {
  return Object.fromEntries(Object.entries(before).filter(([key, value]) => (now[key] ?? '') !== value).map(([key]) => [key, now[key]])) as Partial<T>;
}

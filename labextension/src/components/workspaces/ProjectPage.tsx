/** One project of a workspace: its notes and its experiments. */

import { ReactElement, useState } from 'react';

import { useApp, useStore } from '../../state/context';
import type { EditProject, ProjectView } from '../../state/wire';
import { Go } from '../admin/parts';
import { ActionButton, EmptyState, formatAgo, formatTime, Loading, Menu, Notice, plural, useLoaded, useNow } from '../common';
import { useAct } from '../common/loading/load';
import { nameText } from '../common/text';
import { useRechecked } from '../common/loading/rights';
import { ProjectRuns } from '../runs';
import { Gone } from '../view/Gone';
import { Missing } from '../view/Missing';
import { ExperimentRows } from './ExperimentRows';
import { EditProjectForm } from './forms';
import { notAdmin, notEditor, projectPath } from './model';
import { NotesEditor, NotesText } from './Notes';
import { Submit } from './WorkspacePage';

export function ProjectPage({ workspace, project }: { workspace: string; project: string }): ReactElement {
  const { api } = useApp();
  const path = projectPath(workspace, project);
  const { data, error, reload } = useLoaded(path, signal => api.get<ProjectView>(path, signal));
  useRechecked(reload);
  if (error && data && (error.status === 404 || error.status === 403)) return <Gone what={`project ${nameText(data.name, 80)}`} />;
  if (error && !data) return <Missing error={error} what={`Project ${nameText(project, 80)}`} onRetry={reload} />;
  if (!data) return <Loading what="Loading the project" />;
  return <Shown key={data.id} project={data} reload={reload} />;
}

function Shown({ project, reload }: { project: ProjectView; reload: () => void }): ReactElement {
  const { api } = useApp();
  const me = useStore(s => s.me);
  const now = useNow();
  const [editing, setEditing] = useState<'texts' | 'notes' | null>(null);
  const path = projectPath(project.workspace_id, project.id);
  const why = notEditor(me, project);
  const done = (): void => { setEditing(null); reload(); };
  const saveNotes = async (notes: string, before: string): Promise<void> => {
    const body: EditProject = { notes, notes_before: before };
    await api.post<ProjectView>(`${path}/edit`, body);
    done();
  };
  const [owner = '', place = ''] = project.workspace.split(/\/(.*)/s);
  const where = { name: place, owner, personal: false, id: project.workspace_id };
  return (
    <section className="det-model">
      <header className="det-head-block">
        <p className="det-crumbs">
          <Go to={{ kind: 'workspaces' }}>Workspaces</Go> / <Go to={{ kind: 'workspace', workspace: String(project.workspace_id) }}><bdi>{nameText(project.workspace, 200)}</bdi></Go>
        </p>
        <div className="det-head-line">
          <h1 className="det-head-title" tabIndex={-1}><bdi>{nameText(project.name)}</bdi></h1>
          {project.archived_at ? <span className="det-chip">archived</span> : null}
          <div className="det-head-actions" role="group" aria-label="Actions">
            <ActionButton label={project.notes ? 'Edit notes' : 'Write notes'} why={why} onRun={() => setEditing('notes')} />
            <ActionButton label="Edit" why={why} onRun={() => setEditing('texts')} />
            <More project={project} path={path} own={notAdmin(me, project)} reload={reload} />
          </div>
        </div>
        <p className="det-head-facts">
          <span>Project {project.id}</span>
          {project.owner && <span>made by {nameText(project.owner, 60)}</span>}
          <span>{plural(project.experiments, 'experiment')}</span>
          {project.runs > 0 && <span>{plural(project.runs, 'run')} from elsewhere</span>}
          <span title={formatTime(project.created_at)}>{formatAgo(project.created_at, now)}</span>
        </p>
      </header>
      {project.archived_at && <Notice>Archived: it takes nothing new, and lists leave it out.</Notice>}
      {editing === 'texts'
        ? <EditProjectForm project={project} onSaved={done} onCancel={() => setEditing(null)} />
        : project.description && <p className="det-description">{nameText(project.description, 2000)}</p>}
      {editing === 'notes'
        ? (
          <NotesEditor
            label={`Notes of project ${nameText(project.name, 80)}`} notes={project.notes} save={saveNotes}
            current={async () => (await api.get<ProjectView>(path)).notes} onCancel={() => setEditing(null)}
          />
        )
        : project.notes && <NotesText text={project.notes} />}
      <ExperimentRows
        where={{ workspace: String(project.workspace_id), project: String(project.id) }} label="Experiments"
        empty={<EmptyState title="No experiment lies in it."><Submit workspace={where} me={me?.name ?? ''} project={project.name} /></EmptyState>}
      />
      <ProjectRuns project={project} />
    </section>
  );
}

function More({ project, path, own, reload }: { project: ProjectView; path: string; own: string | null; reload: () => void }): ReactElement {
  const { api, confirm, navigate, notify } = useApp();
  const act = useAct();
  const name = nameText(project.name, 80);
  const archive = async (): Promise<void> => {
    if (await act(() => api.post(`${path}/edit`, { archived: !project.archived_at }))) reload();
  };
  const remove = async (): Promise<void> => {
    if (!(await confirm({ title: `Delete project ${name}?`, body: 'Its notes go with it. One in which something lies is not deleted.', yes: 'Delete', danger: true }))) return;
    if (!(await act(() => api.del(path)))) return;
    notify(`Project ${name} was deleted.`, 'good');
    navigate({ kind: 'workspace', workspace: String(project.workspace_id) });
  };
  const within = [project.experiments && plural(project.experiments, 'experiment'), project.runs && `${plural(project.runs, 'run')} from elsewhere`].filter(Boolean).join(' and ');
  const full = within ? `${within} ${project.experiments + project.runs === 1 ? 'lies in it: move or delete it' : 'lie in it: move or delete them'} first.` : null;
  return (
    <Menu
      label={`More actions of project ${name}`}
      actions={() => [
        { key: 'archive', label: project.archived_at ? 'Unarchive' : 'Archive', why: own, run: archive },
        { key: 'delete', label: 'Delete …', why: own ?? full, danger: true, run: remove }
      ]}
    />
  );
}

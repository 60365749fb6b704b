/** One workspace: its projects, what lies in it, its members, and what it gives. */

import { ReactElement, useEffect, useState } from 'react';

import { useApp, useStore, type WorkspaceTab } from '../../state/context';
import type { ModelView, ProjectView, WorkspaceView } from '../../state/wire';
import { Ago, Go, Sheet } from '../admin/parts';
import { ActionButton, EmptyState, ErrorBanner, formatAgo, formatTime, Loading, Menu, Notice, plural, Toggle, useLoaded, useNow } from '../common';
import { useAct } from '../common/loading/load';
import { nameText } from '../common/text';
import { useRechecked } from '../common/loading/rights';
import { Gone } from '../view/Gone';
import { Missing } from '../view/Missing';
import { Tabs } from '../view/Tabs';
import { Defaults } from './Defaults';
import { ExperimentRows } from './ExperimentRows';
import { EditWorkspaceForm, NewProject } from './forms';
import { usePaged } from './load';
import { Members } from './Members';
import { TaskRows } from './TaskRows';
import { notAdmin, notEditor, roleWord, workspaceName, workspacePath } from './model';

export function WorkspacePage({ workspace, tab: first = 'projects' }: { workspace: string; tab?: WorkspaceTab }): ReactElement {
  const { api, settle } = useApp();
  const path = workspacePath(workspace);
  const { data, error, reload } = useLoaded(path, signal => api.get<WorkspaceView>(path, signal));
  const [tab, setTab] = useState<WorkspaceTab>(first);
  useEffect(() => setTab(first), [first]);
  useRechecked(reload);
  if (error && data && (error.status === 404 || error.status === 403)) return <Gone what={`workspace ${nameText(data.name, 80)}`} />;
  if (error && !data) return <Missing error={error} what={`Workspace ${nameText(workspace, 80)}`} onRetry={reload} />;
  if (!data) return <Loading what="Loading the workspace" />;
  const choose = (next: WorkspaceTab): void => {
    setTab(next);
    settle?.({ kind: 'workspace', workspace, tab: next });
  };
  return <Shown key={data.id} workspace={data} tab={tab} onTab={choose} reload={reload} />;
}

function Shown({ workspace, tab, onTab, reload }: {
  workspace: WorkspaceView; tab: WorkspaceTab; onTab: (tab: WorkspaceTab) => void; reload: () => void;
}): ReactElement {
  const { navigate } = useApp();
  const me = useStore(s => s.me);
  const now = useNow();
  const [editing, setEditing] = useState(false);
  const [making, setMaking] = useState(false);
  const own = notAdmin(me, workspace);
  const closed = workspace.archived_at ? 'It is archived: it takes nothing new.' : null;
  const name = workspaceName(workspace, me?.name ?? '');
  const tabs = [
    { key: 'projects', label: 'Projects', note: workspace.projects || null }, { key: 'experiments', label: 'Experiments', note: workspace.experiments || null },
    { key: 'models', label: 'Models', note: workspace.models || null }, { key: 'tasks', label: 'Tasks', note: workspace.tasks || null },
    ...(workspace.personal ? [] : [{ key: 'members', label: 'Members' }]),
    { key: 'defaults', label: 'Defaults' }
  ];
  return (
    <section className="det-model">
      <header className="det-head-block">
        <p className="det-crumbs"><Go to={{ kind: 'workspaces' }}>Workspaces</Go></p>
        <div className="det-head-line">
          <h1 className="det-head-title" tabIndex={-1}><bdi>{name}</bdi></h1>
          {workspace.archived_at ? <span className="det-chip">archived</span> : null}
          <div className="det-head-actions" role="group" aria-label="Actions">
            <ActionButton label="New project …" why={notEditor(me, workspace) ?? closed} onRun={() => setMaking(true)} />
            <ActionButton label="Edit" why={own} onRun={() => setEditing(true)} />
            {!workspace.personal && <More workspace={workspace} own={own} reload={reload} />}
          </div>
        </div>
        <p className="det-head-facts">
          {[`Workspace ${workspace.id}`, `made by ${nameText(workspace.owner, 60)}`, `your role: ${roleWord(workspace)}`].map(fact => <span key={fact}>{fact}</span>)}
          {workspace.quota !== null && <span title="An administrator of the cluster sets it">at most {plural(workspace.quota, 'slot')} at a time</span>}
          <span title={formatTime(workspace.created_at)}>{formatAgo(workspace.created_at, now)}</span>
        </p>
      </header>
      {workspace.archived_at && <Notice>Archived: it takes nothing new, and lists leave it out.</Notice>}
      {editing
        ? (
          <EditWorkspaceForm
            workspace={workspace} renames={!workspace.personal && (workspace.owner === me?.name || Boolean(me?.admin))}
            onSaved={() => { setEditing(false); reload(); }} onCancel={() => setEditing(false)}
          />
        )
        : workspace.description && <p className="det-description">{nameText(workspace.description, 2000)}</p>}
      <Tabs label={`Parts of workspace ${name}`} tabs={tabs} chosen={tab} onChoose={key => onTab(key as WorkspaceTab)}>
        {tab === 'projects' && <Projects workspace={workspace} />}
        {tab === 'experiments' && (
          <ExperimentRows
            where={{ workspace: String(workspace.id) }} label="Experiments" showProject
            empty={<EmptyState title="No experiment lies in it."><Submit workspace={workspace} me={me?.name ?? ''} /></EmptyState>}
          />
        )}
        {tab === 'models' && <Models workspace={workspace} />}
        {tab === 'tasks' && <TaskRows workspace={workspace.id} named={commandName(workspace, me?.name ?? '')} />}
        {tab === 'members' && !workspace.personal && <Members workspace={workspace} onLeft={() => navigate({ kind: 'workspaces' })} onChanged={reload} />}
        {tab === 'defaults' && <Defaults workspace={workspace} onSaved={reload} />}
      </Tabs>
      {making && (
        <NewProject
          workspace={workspace} onClose={() => setMaking(false)}
          onMade={made => { setMaking(false); navigate({ kind: 'project', workspace: String(workspace.id), project: String(made.id) }); }}
        />
      )}
    </section>
  );
}

/** How something comes to lie in it. */
export function Submit({ workspace, me, project }: { workspace: Pick<WorkspaceView, 'name' | 'owner' | 'personal' | 'id'>; me: string; project?: string }): ReactElement {
  const named = commandName(workspace, me);
  const inside = project === undefined ? '' : ` --project ${/^[\w.-]+$/.test(project) ? project : `'${nameText(project, 120).replaceAll("'", "'\\''")}'`}`;
  return <>Submit with <code>det experiment create search.yaml code/ -w {named}{inside}</code>, or move one here from its page.</>;
}

/** What names it in a command: its id where its name would have to be quoted. */
function commandName(workspace: Pick<WorkspaceView, 'name' | 'owner' | 'personal' | 'id'>, me: string): string {
  const name = workspaceName(workspace, me);
  return /^[\w./-]+$/.test(name) ? name : String(workspace.id);
}

function More({ workspace, own, reload }: { workspace: WorkspaceView; own: string | null; reload: () => void }): ReactElement {
  const { api, confirm, navigate, notify } = useApp();
  const act = useAct();
  const name = nameText(workspace.name, 80);
  const archive = async (): Promise<void> => {
    if (await act(() => api.post(`${workspacePath(workspace.id)}/edit`, { archived: !workspace.archived_at }))) reload();
  };
  const remove = async (): Promise<void> => {
    if (!(await confirm({ title: `Delete workspace ${name}?`, body: 'Its projects, members and defaults go with it. One in which something lies is not deleted.', yes: 'Delete', danger: true }))) return;
    if (!(await act(() => api.del(workspacePath(workspace.id))))) return;
    notify(`Workspace ${name} was deleted.`, 'good');
    navigate({ kind: 'workspaces' });
  };
  const within = [
    workspace.experiments && plural(workspace.experiments, 'experiment'), workspace.runs && `${plural(workspace.runs, 'run')} from elsewhere`, workspace.models && plural(workspace.models, 'model'),
    workspace.tasks && plural(workspace.tasks, 'task')
  ].filter(Boolean);
  const full = within.length ? `It holds ${within.join(' and ')}: move, delete or end first what lies in it.` : null;
  return (
    <Menu
      label={`More actions of workspace ${name}`}
      actions={() => [
        { key: 'archive', label: workspace.archived_at ? 'Unarchive' : 'Archive', why: own, run: archive },
        { key: 'delete', label: 'Delete …', why: own ?? full, danger: true, run: remove }
      ]}
    />
  );
}

function Projects({ workspace }: { workspace: WorkspaceView }): ReactElement {
  const [archived, setArchived] = useState(false);
  const { items, error, more, reload, showMore } = usePaged<ProjectView>(`${workspacePath(workspace.id)}/projects?limit=100${archived ? '&archived=any' : ''}`, 'after');
  const head = (
    <>
      <th>Project</th>
      <th className="det-right">Experiments</th>
      <th className="det-right">Runs</th>
      <th className="det-adm-roomy">Made by</th>
      <th className="det-adm-roomy">Made</th>
    </>
  );
  return (
    <div className="det-rows">
      <div className="det-adm-filters"><Toggle on={archived} label="Archived" tip="Show also archived projects" onChange={setArchived} /></div>
      {error && <ErrorBanner error={error} what="Projects" onRetry={reload} />}
      {!items && !error && <Loading what="Loading the projects" />}
      {items && !items.length && <EmptyState title="No projects yet.">A project is a folder within a workspace, with notes of its own.</EmptyState>}
      {items && items.length > 0 && (
        <Sheet label="Projects" head={head}>
          {items.map(one => (
            <tr key={one.id} data-archived={one.archived_at ? true : undefined}>
              <td className="det-models-name">
                <Go to={{ kind: 'project', workspace: String(workspace.id), project: String(one.id) }}><span className="det-adm-name"><bdi>{nameText(one.name, 120)}</bdi></span></Go>
                {one.archived_at ? <span className="det-chip">archived</span> : null}
                {one.description && <span className="det-models-about det-soft">{nameText(one.description, 200)}</span>}
              </td>
              <td className="det-right det-num">{one.experiments}</td>
              <td className="det-right det-num">{one.runs}</td>
              <td className="det-adm-roomy"><span className="det-adm-name">{nameText(one.owner, 60) || '–'}</span></td>
              <td className="det-adm-roomy"><Ago time={one.created_at} /></td>
            </tr>
          ))}
        </Sheet>
      )}
      {more && <p className="det-adm-more"><ActionButton label="Show more" onRun={showMore} /></p>}
    </div>
  );
}

function Models({ workspace }: { workspace: WorkspaceView }): ReactElement {
  const { items, error, more, reload, showMore } = usePaged<ModelView>(`models?limit=50&workspace=${workspace.id}`, 'after');
  if (error) return <ErrorBanner error={error} what="Models" onRetry={reload} />;
  if (!items) return <Loading what="Loading the models" />;
  if (!items.length) return <EmptyState title="No model lies in it."><code>det model move MODEL {workspace.id}</code> moves one here.</EmptyState>;
  return (
    <div className="det-rows">
      <ModelRows items={items} />
      {more && <p className="det-adm-more"><ActionButton label="Show more" onRun={showMore} /></p>}
    </div>
  );
}

export function ModelRows({ items }: { items: readonly ModelView[] }): ReactElement {
  return (
    <Sheet label="Models" head={<><th>Model</th><th className="det-right">Versions</th><th>Owner</th><th>Updated</th></>}>
      {items.map(model => (
        <tr key={model.id}>
          <td><Go to={{ kind: 'model', name: model.reference || model.name }}><span className="det-adm-name"><bdi>{nameText(model.name)}</bdi></span></Go></td>
          <td className="det-right det-num">{model.versions}</td>
          <td><span className="det-adm-name">{nameText(model.owner, 60)}</span></td>
          <td><Ago time={model.updated_at} /></td>
        </tr>
      ))}
    </Sheet>
  );
}

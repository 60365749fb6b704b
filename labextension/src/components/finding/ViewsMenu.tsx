/** Saved views of a table: pick one, save what is shown, rename, delete. */

import { ReactElement, useState } from 'react';

import { everyItem } from '../../state/api';
import { useApp, useStore } from '../../state/context';
import type { ProjectList, SavedView } from '../../state/wire';
import { ActionButton, ErrorBanner, useLoaded, type Loaded } from '../common';
import { useAct } from '../common/loading/load';
import { nameText } from '../common/text';
import { useShared } from '../workspaces/load';
import { workspaceName, workspacePath } from '../workspaces/model';
import { Popover } from './Popover';
import { changedSince, keptOf, ofView, PLAIN, viewKey, type RunTable, type TableRequest } from './request';

export function useViews(table: RunTable): Loaded<SavedView[]> {
  const { api } = useApp();
  return useLoaded(`views ${table}`, signal => everyItem<SavedView>(api, `saved-views?table=${table}&limit=1000`, 'after', signal));
}

/** Names are kept in one form of Unicode. */
function sameName(one: string, other: string): boolean {
  return one.normalize('NFC').trim() === other.normalize('NFC').trim();
}

export function ViewsMenu({ table, request, views, why, onRequest }: {
  table: RunTable;
  request: TableRequest;
  views: Loaded<SavedView[]>;
  /** Why nothing can be saved, or null. */
  why: string | null;
  onRequest(request: TableRequest): void;
}): ReactElement {
  const me = useStore(s => s.me?.name ?? '');
  const all = views.data ?? [];
  const current = all.find(one => viewKey(one, me) === request.view);
  const mine = all.filter(one => one.owner === me);
  const taken = (name: string): boolean => mine.some(one => sameName(one.name, name));
  const changed = current && changedSince(current, request);
  const label = request.view ? `View: ${nameText(request.view, 30)}${changed ? ' (changed)' : ''}` : 'Views';
  return (
    <Popover label={<span className="det-ellipsis">{label}</span>} about="Saved views">
      {close => (
        <>
          {views.error && <ErrorBanner error={views.error} what="Saved views" onRetry={views.reload} />}
          {views.data && !all.length && <p className="det-soft">No saved views yet. A view keeps filter, order and columns under a name.</p>}
          <ul className="det-run-views">
            {all.map(view => (
              <ViewItem
                key={view.id} view={view} me={me} chosen={view === current} taken={taken} table={table} why={why} reload={views.reload}
                onPick={() => { onRequest(ofView(view, viewKey(view, me))); close(); }}
                onNamed={name => { if (view === current) onRequest({ ...request, view: name }); }}
              />
            ))}
          </ul>
          {request.view !== '' && <button type="button" className="det-link" onClick={() => { onRequest(PLAIN); close(); }}>Without a view</button>}
          <SaveForm
            key={request.view} table={table} request={request} current={current?.owner === me ? current : undefined} taken={taken} why={why}
            onSaved={name => { views.reload(); onRequest({ ...request, view: name }); close(); }}
          />
        </>
      )}
    </Popover>
  );
}

function ViewItem({ view, me, chosen, taken, table, why, reload, onPick, onNamed }: {
  view: SavedView; me: string; chosen: boolean; taken(name: string): boolean; table: RunTable; why: string | null; reload(): void; onPick(): void; onNamed(name: string): void;
}): ReactElement {
  const { api, confirm, notify } = useApp();
  const act = useAct();
  const [name, setName] = useState<string | null>(null);
  const shown = nameText(view.name, 60);
  const gone = (of: string): Promise<unknown> => api.del(`saved-views?${new URLSearchParams({ table, name: of })}`);
  const rename = async (): Promise<void> => {
    const next = name!.trim();
    setName(null);
    if (!next || sameName(next, view.name)) return;
    if (taken(next)) return notify(`There is a view “${nameText(next, 60)}” already.`, 'bad');
    const done = await act(async () => {
      await api.replace('saved-views', keptOf(table, next, ofView(view), projectOf(view)));
      await gone(view.name);
    });
    reload();
    if (done) onNamed(next);
  };
  const remove = async (): Promise<void> => {
    if (!(await confirm({ title: `Delete the view “${shown}”?`, body: 'What it shows stays; only the view is gone.', yes: 'Delete', danger: true }))) return;
    if (await act(() => gone(view.name)) && chosen) onNamed('');
    reload();
  };
  if (name !== null) {
    return (
      <li>
        <form className="det-run-save" onSubmit={event => { event.preventDefault(); void rename(); }}>
          <input className="det-input" aria-label={`New name of the view ${shown}`} value={name} maxLength={200} autoFocus onChange={event => setName(event.target.value)} />
          <button type="submit" className="det-button">Rename</button>
        </form>
      </li>
    );
  }
  return (
    <li>
      <button type="button" className="det-link det-ellipsis" aria-current={chosen || undefined} title={nameText(view.filter, 400) || undefined} onClick={onPick}><bdi>{shown}</bdi></button>
      {view.project_id !== null && <span className="det-soft det-ellipsis" title={nameText(`${view.workspace} / ${view.project}`, 300)}>{view.owner === me ? '' : `${nameText(view.owner, 40)} · `}{nameText(view.project, 40)}</span>}
      {view.owner === me && (
        <span className="det-run-order">
          <ActionButton compact label={`Rename the view ${shown}`} why={why} onRun={() => setName(view.name)}>✎</ActionButton>
          <ActionButton compact label={`Delete the view ${shown}`} why={why} onRun={remove}>✕</ActionButton>
        </span>
      )}
    </li>
  );
}

/** Most workspaces whose projects are offered. */
const MOST_PLACES = 20;

/** The project of a view, as a request names it. */
function projectOf(view: SavedView | undefined): string {
  return view?.project_id == null ? '' : String(view.project_id);
}

interface Place {
  id: string;
  name: string;
}

/** The projects into which this user may put something, of workspaces that are shared. */
function useProjects(): readonly Place[] {
  const { api } = useApp();
  const me = useStore(s => s.me?.name ?? '');
  const open = useShared(null, MOST_PLACES).filter(one => one.may !== 'read');
  const { data } = useLoaded(open.length ? `projects ${open.map(one => one.id).join()}` : null, async signal => {
    const lists = await Promise.all(open.map(async one => {
      const found = await api.get<ProjectList>(`${workspacePath(one.id)}/projects?limit=100`, signal);
      return found.items.map(project => ({ id: String(project.id), name: `${workspaceName(one, me)} / ${nameText(project.name, 60)}` }));
    }));
    return lists.flat();
  });
  return data ?? [];
}

function SaveForm({ table, request, current, taken, why, onSaved }: {
  table: RunTable; request: TableRequest; current: SavedView | undefined; taken(name: string): boolean; why: string | null; onSaved(name: string): void;
}): ReactElement {
  const { api, confirm, notify } = useApp();
  const act = useAct();
  const [name, setName] = useState(current?.name ?? '');
  const [project, setProject] = useState(projectOf(current));
  const offered = useProjects();
  const wanted = name.trim();
  const none = why ?? (wanted ? null : 'Enter a name.');
  const save = async (): Promise<void> => {
    if (none) return;
    const shown = nameText(wanted, 60);
    const asked = { title: `Replace the view “${shown}”?`, body: 'It gets the filter, order and columns that are shown now.', yes: 'Replace', danger: true };
    if (taken(wanted) && !sameName(wanted, current?.name ?? '') && !(await confirm(asked))) return;
    let kept = wanted;
    const done = await act(async () => { kept = (await api.replace<SavedView>('saved-views', keptOf(table, wanted, request, project))).name; });
    if (!done) return;
    notify(`Saved the view ${nameText(kept, 60)}`);
    onSaved(kept);
  };
  return (
    <form className="det-run-save" onSubmit={event => { event.preventDefault(); void save(); }}>
      <input className="det-input" aria-label="Name of the view" placeholder="Name" value={name} maxLength={200} onChange={event => setName(event.target.value)} />
      {(offered.length > 0 || project !== '') && (
        <select className="det-input" aria-label="Who has the view" value={project} onChange={event => setProject(event.target.value)}>
          <option value="">mine alone</option>
          {offered.map(one => <option key={one.id} value={one.id}>{one.name}</option>)}
          {project !== '' && !offered.some(one => one.id === project) && <option value={project}>{nameText(current?.project ?? project, 60)}</option>}
        </select>
      )}
      <ActionButton label={current && current.name === wanted ? 'Save again' : 'Save view'} primary why={none} onRun={save} />
    </form>
  );
}

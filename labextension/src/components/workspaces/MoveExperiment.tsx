/** Move an experiment or a model to another workspace or project, and so to other readers. */

import { ReactElement, useId, useState } from 'react';

import { ApiError, asApiError } from '../../state/api';
import { useApp, useStore } from '../../state/context';
import type { ExperimentView, MoveExperiment as Wanted, ProjectList, WorkspaceList } from '../../state/wire';
import { Dialog } from '../admin/Dialog';
import { ErrorBanner, Loading, useLoaded } from '../common';
import { nameText } from '../common/text';
import { workspaceName, workspacePath } from './model';

/** The project for what names none. */
const NOWHERE = 'Uncategorized';
/** Most workspaces and projects to choose from: the oldest. */
const MOST = 1000;

export function MoveExperiment({ experiment: e, onClose, onMoved }: {
  experiment: ExperimentView; onClose: () => void; onMoved: (view: ExperimentView) => void;
}): ReactElement {
  const { api, notify } = useApp();
  const move = async (wanted: Wanted): Promise<void> => {
    const moved = await api.post<ExperimentView>(`experiments/${e.id}/move`, wanted);
    notify(`Experiment ${e.id} lies in ${nameText(moved.workspace, 120)}, project ${nameText(moved.project, 120)}.`, 'good');
    onMoved(moved);
  };
  return <Move what={`experiment ${e.id}`} of={e} projects about="Those in which you are an editor. Its members see the experiment from then on." onClose={onClose} onMove={move} />;
}

/** The dialog. `projects`: whether it lies in one of them, too. */
export function Move({ what, of, projects: within = false, about, onClose, onMove }: {
  what: string; of: { owner: string; workspace_id: number | null; project_id?: number | null }; projects?: boolean; about: string;
  onClose: () => void; onMove: (wanted: Wanted) => Promise<void>;
}): ReactElement {
  const { api } = useApp();
  const me = useStore(s => s.me);
  const id = useId();
  const [workspace, setWorkspace] = useState(of.workspace_id === null ? '' : String(of.workspace_id));
  const [project, setProject] = useState(of.project_id ? String(of.project_id) : '');
  const [error, setError] = useState<ApiError | null>(null);
  const [busy, setBusy] = useState(false);
  const [keep, setKeep] = useState(false);
  const places = useLoaded('places', signal => api.get<WorkspaceList>(`workspaces?limit=${MOST}`, signal));
  const open = places.data?.items.filter(one => one.may !== 'read') ?? [];
  const chosen = open.find(one => String(one.id) === workspace) ?? null;
  const projects = useLoaded(chosen === null || !within ? null : `projects ${chosen.id}`, signal => api.get<ProjectList>(`${workspacePath(chosen!.id)}/projects?limit=${MOST}`, signal));
  const offered = projects.data && !projects.loading ? projects.data.items.filter(one => one.name !== NOWHERE) : [];
  // Of one's own personal workspace, which is made when it is needed, or of a chosen one.
  const wanted: Wanted = { workspace: chosen ? String(chosen.id) : '', project: offered.some(one => String(one.id) === project) ? project : '', keep_storage: keep };
  const move = async (): Promise<void> => {
    if (busy) return;
    setBusy(true);
    setError(null);
    try {
      await onMove(wanted);
    } catch (caught) {
      setError(asApiError(caught));
      setBusy(false);
    }
  };
  const storage = error?.status === 409 && /storage/.test(error.message);
  return (
    <Dialog title={`Move ${what}`} onClose={onClose}>
      <form className="det-edits" aria-label={`Move ${what}`} onSubmit={event => { event.preventDefault(); void move(); }}>
        {!places.data && !places.error && <Loading what="Loading the workspaces" />}
        {places.error && <ErrorBanner error={places.error} onRetry={places.reload} />}
        <div className="det-edits-one">
          <label htmlFor={`${id}-w`}>Workspace</label>
          <select id={`${id}-w`} className="det-input" value={chosen ? String(chosen.id) : ''} onChange={event => { setWorkspace(event.target.value); setError(null); setKeep(false); }}>
            {!open.some(one => one.personal && one.owner === of.owner) && <option value="">Personal of {nameText(of.owner, 60)}</option>}
            {open.map(one => <option key={one.id} value={one.id}>{workspaceName(one, me?.name ?? '')}</option>)}
          </select>
          <small className="det-soft">{about}</small>
        </div>
        {within && (
          <div className="det-edits-one">
            <label htmlFor={`${id}-p`}>Project</label>
            <select id={`${id}-p`} className="det-input" value={wanted.project} onChange={event => setProject(event.target.value)}>
              <option value="">The one for what names none</option>
              {offered.map(one => <option key={one.id} value={one.id}>{nameText(one.name, 120)}</option>)}
            </select>
          </div>
        )}
        {error && <ErrorBanner error={error} />}
        {(storage || keep) && (
          <label className="det-adm-check"><input type="checkbox" checked={keep} onChange={event => setKeep(event.target.checked)} /> Leave its checkpoints where they are stored</label>
        )}
        <div className="det-dialog-buttons det-edits-buttons">
          <button type="button" className="det-button" onClick={onClose}>Cancel</button>
          <button type="submit" className="det-button det-primary" aria-disabled={busy || undefined} aria-busy={busy || undefined}>Move</button>
        </div>
      </form>
    </Dialog>
  );
}

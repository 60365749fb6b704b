/** Move a model to another workspace, and so to other readers. */

import { ReactElement, useId, useState } from 'react';

import { ApiError, asApiError } from '../../../state/api';
import { useApp, useStore } from '../../../state/context';
import type { ModelView, MoveModel as Move, WorkspaceList } from '../../../state/wire';
import { Dialog } from '../../admin/Dialog';
import { ErrorBanner, Loading, useLoaded } from '../../common';
import { nameText } from '../../common/text';
import { workspaceName } from '../../workspaces/model';
import { referenceTo } from '../model';
import { modelPath } from '../paths';

/** Most workspaces to choose from: the oldest. */
const MOST = 1000;

export function MoveModel({ model, onClose, onMoved }: {
  model: ModelView; onClose: () => void; onMoved: (view: ModelView) => void;
}): ReactElement {
  const { api, notify } = useApp();
  const me = useStore(s => s.me);
  const id = useId();
  const [workspace, setWorkspace] = useState(model.workspace_id === null ? '' : String(model.workspace_id));
  const [error, setError] = useState<ApiError | null>(null);
  const [busy, setBusy] = useState(false);
  const places = useLoaded('places', signal => api.get<WorkspaceList>(`workspaces?limit=${MOST}`, signal));
  const open = places.data?.items.filter(one => one.may !== 'read') ?? [];
  const chosen = open.some(one => String(one.id) === workspace) ? workspace : '';
  const name = nameText(model.name, 80);
  const move = async (): Promise<void> => {
    if (busy) return;
    setBusy(true);
    setError(null);
    try {
      const moved = await api.post<ModelView>(`${modelPath(referenceTo(model))}/move`, { workspace: chosen } satisfies Move);
      notify(`Model ${name} lies in ${nameText(moved.workspace || 'your personal workspace', 120)}.`, 'good');
      onMoved(moved);
    } catch (caught) {
      setError(asApiError(caught));
      setBusy(false);
    }
  };
  return (
    <Dialog title={`Move model ${name}`} onClose={onClose}>
      <form className="det-edits" aria-label={`Move model ${name}`} onSubmit={event => { event.preventDefault(); void move(); }}>
        {!places.data && !places.error && <Loading what="Loading the workspaces" />}
        {places.error && <ErrorBanner error={places.error} onRetry={places.reload} />}
        <div className="det-edits-one">
          <label htmlFor={`${id}-w`}>Workspace</label>
          <select id={`${id}-w`} className="det-input" value={chosen} onChange={event => { setWorkspace(event.target.value); setError(null); }}>
            {!open.some(one => one.personal && one.owner === model.owner) && <option value="">Personal of {nameText(model.owner, 60)}</option>}
            {open.map(one => <option key={one.id} value={one.id}>{workspaceName(one, me?.name ?? '')}</option>)}
          </select>
          <small className="det-soft">Its members see the model and the checkpoints of its versions from then on.</small>
        </div>
        {error && <ErrorBanner error={error} />}
        <div className="det-dialog-buttons det-edits-buttons">
          <button type="button" className="det-button" onClick={onClose}>Cancel</button>
          <button type="submit" className="det-button det-primary" aria-disabled={busy || undefined} aria-busy={busy || undefined}>Move</button>
        </div>
      </form>
    </Dialog>
  );
}

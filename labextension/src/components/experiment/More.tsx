/** What is seldom done with an experiment: edit what people wrote about it, continue it after its end, move it, archive it. */

import { ReactElement, useState } from 'react';

import { useApp } from '../../state/context';
import { isOver } from '../../state/states';
import type { ExperimentView, UserView } from '../../state/wire';
import { Menu, type Action } from '../common';
import { useAct } from '../common/load';
import { closed, ownersAlone } from '../view/actions';
import { useTeams } from '../workspaces/load';
import { MoveExperiment } from '../workspaces/MoveExperiment';
import { Continue } from './Continue';

export function More({ experiment: e, me, onEdit, onSaved }: {
  experiment: ExperimentView; me: UserView | null; onEdit: () => void; onSaved: (view: ExperimentView) => void;
}): ReactElement {
  const { api } = useApp();
  const act = useAct();
  const [moving, setMoving] = useState(false);
  const [continuing, setContinuing] = useState(false);
  const teams = useTeams();
  const archived = Boolean(e.archived_at);
  const archive = async (): Promise<void> => {
    await act(async () => onSaved(await api.post<ExperimentView>(`experiments/${e.id}/edit`, { archived: !archived })));
  };
  const actions = (): Action[] => [
    { key: 'edit', label: 'Edit …', why: closed(me, e), run: onEdit },
    ...(isOver(e.state) && !e.unmanaged ? [{ key: 'continue', label: 'Continue …', why: closed(me, e), run: () => setContinuing(true) }] : []),
    // Who works alone has nowhere to move it to.
    ...(teams ? [{ key: 'move', label: 'Move …', why: ownersAlone(me, e), run: () => setMoving(true) }] : []),
    ...(isOver(e.state) ? [{ key: 'archive', label: archived ? 'Unarchive' : 'Archive', why: ownersAlone(me, e), run: archive }] : [])
  ];
  return (
    <>
      <Menu label={`More actions of experiment ${e.id}`} actions={actions} />
      {continuing && <Continue experiment={e} onClose={() => setContinuing(false)} onContinued={view => { setContinuing(false); onSaved(view); }} />}
      {moving && <MoveExperiment experiment={e} onClose={() => setMoving(false)} onMoved={view => { setMoving(false); onSaved(view); }} />}
    </>
  );
}

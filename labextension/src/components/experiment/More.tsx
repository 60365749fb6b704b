/** What is seldom done with an experiment: edit what people wrote about it, continue, move, share, archive or delete it. */

import { ReactElement, useState } from 'react';

import { useApp } from '../../state/context';
import { isOver } from '../../state/states';
import type { ExperimentView, UserView } from '../../state/wire';
import { Dialog } from '../admin/Dialog';
import { Menu, type Action } from '../common';
import { useAct } from '../common/loading/load';
import { nameText } from '../common/text';
import { closed, ownersAlone } from '../view/actions';
import { Sharing } from '../workspaces/Sharing';
import { useTeams } from '../workspaces/load';
import { MoveExperiment } from '../workspaces/MoveExperiment';
import { Continue } from './Continue';

export function More({ experiment: e, me, onEdit, onSaved }: {
  experiment: ExperimentView; me: UserView | null; onEdit: () => void; onSaved: (view: ExperimentView) => void;
}): ReactElement {
  const { api, confirm, navigate, notify } = useApp();
  const act = useAct();
  const [moving, setMoving] = useState(false);
  const [sharing, setSharing] = useState(false);
  const [continuing, setContinuing] = useState(false);
  const teams = useTeams();
  const archived = Boolean(e.archived_at);
  const archive = async (): Promise<void> => {
    await act(async () => onSaved(await api.post<ExperimentView>(`experiments/${e.id}/edit`, { archived: !archived })));
  };
  const remove = async (): Promise<void> => {
    const body = 'Its trials, metrics, logs, checkpoints and event files are removed. This cannot be undone.';
    if (!(await confirm({ title: `Delete experiment ${e.id}?`, body, yes: 'Delete', danger: true }))) return;
    let left = false;
    if (!(await act(async () => { left = Boolean((await api.del<{ left?: unknown } | undefined>(`experiments/${e.id}`))?.left); }))) return;
    notify(left ? `Experiment ${e.id} is being deleted: some of its files are still removed by a task.` : `Experiment ${e.id} was deleted.`, 'good');
    navigate({ kind: 'runs', table: 'experiments' });
  };
  const actions = (): Action[] => [
    { key: 'edit', label: 'Edit …', why: closed(me, e), run: onEdit },
    ...(isOver(e.state) && !e.unmanaged ? [{ key: 'continue', label: 'Continue …', why: closed(me, e), run: () => setContinuing(true) }] : []),
    // Who works alone has nowhere to move it to.
    ...(teams ? [{ key: 'move', label: 'Move …', why: ownersAlone(me, e), run: () => setMoving(true) }] : []),
    { key: 'share', label: 'Share …', run: () => setSharing(true) },
    ...(isOver(e.state)
      ? [
        { key: 'archive', label: archived ? 'Unarchive' : 'Archive', why: ownersAlone(me, e), run: archive },
        { key: 'delete', label: 'Delete …', why: ownersAlone(me, e), danger: true, run: remove }
      ]
      : [])
  ];
  return (
    <>
      <Menu label={`More actions of experiment ${e.id}`} actions={actions} />
      {sharing && (
        <Dialog title={`Share experiment ${e.id}`} onClose={() => setSharing(false)}>
          <Sharing
            base={`experiments/${e.id}`} name={`experiment ${e.id}`} own={ownersAlone(me, e)}
            about={`Readers see its trials, metrics, output, code and checkpoints. Writers also pause, end, edit and archive it. Only ${nameText(e.owner, 60)} and administrators share or delete it.`}
          />
        </Dialog>
      )}
      {continuing && <Continue experiment={e} onClose={() => setContinuing(false)} onContinued={view => { setContinuing(false); onSaved(view); }} />}
      {moving && <MoveExperiment experiment={e} onClose={() => setMoving(false)} onMoved={view => { setMoving(false); onSaved(view); }} />}
    </>
  );
}

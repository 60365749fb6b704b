/** The checkpoints of an experiment or a trial with what may be done with each, and what keeps it. */

import { ReactElement, ReactNode, useMemo, useState } from 'react';

import { useApp, useStore } from '../../state/context';
import type { CheckpointView, ExperimentView, GcPreview, Pin } from '../../state/wire';
import { ActionButton, formatBytes, formatTime, Menu, useLoaded, type Action } from '../common';
import { useAct } from '../common/loading/load';
import { nameText, visible } from '../common/text';
import { Register } from '../models/dialogs/Register';
import { closed, readOnly } from '../view/actions';
import { CheckpointList, inTrash } from '../view/CheckpointList';
import { pinText, pinWord } from './pins';
import { Retention } from './Retention';

export function Checkpoints({ items, over, experiment: e, ofTrials, reload }: {
  items: readonly CheckpointView[];
  /** Whether none will follow. */
  over: boolean;
  /** Null until it is loaded. */
  experiment: ExperimentView | null;
  ofTrials?: boolean;
  reload: () => void;
}): ReactElement {
  const { api } = useApp();
  const me = useStore(s => s.me);
  const [registering, setRegistering] = useState<CheckpointView | null>(null);
  const [asking, setAsking] = useState(false);
  // What keeps each is part of the preview; that nothing says so does not keep the list from being shown.
  const key = e && items.length ? `${e.id} ${items.length} ${items.filter(item => item.state !== 'COMPLETED').length} ${e.state}` : null;
  const kept = useLoaded(key, signal => api.get<GcPreview>(`experiments/${e!.id}/gc`, signal));
  const pins = useMemo(() => new Map((kept.data?.items ?? []).map(item => [item.uuid, item.pins])), [kept.data]);
  const changed = (): void => {
    reload();
    kept.reload();
  };
  const why = e ? closed(me, e) : 'Its experiment is not loaded yet.';
  return (
    <>
      <CheckpointList
        items={items} over={over} metric={e?.metric ?? ''} smallerIsBetter={e?.smaller_is_better ?? true} ofTrials={ofTrials}
        tools={e && ofTrials && items.length > 0 && <ActionButton label="What would be deleted? …" onRun={() => setAsking(true)} />}
        more={item => <Acts item={item} pins={pins.get(item.uuid) ?? NONE} why={why} onRegister={() => setRegistering(item)} onChanged={changed} />}
        note={item => noteOf(item, pins.get(item.uuid) ?? NONE)}
      />
      {registering && <Register checkpoint={registering} metric={e?.metric ?? ''} onClose={() => { setRegistering(null); kept.reload(); }} />}
      {asking && e && <Retention experiment={e} why={why} onClose={() => setAsking(false)} onApplied={changed} />}
    </>
  );
}

const NONE: readonly Pin[] = [];

function noteOf(item: CheckpointView, pins: readonly Pin[]): ReactNode {
  if (inTrash(item)) return <span className="det-soft">In the trash: can be restored until {formatTime(item.trash_until)}.</span>;
  if (item.removing) return <span className="det-soft">Being removed{item.removal_failure ? `; the last attempt: ${visible(item.removal_failure)}` : ''}.</span>;
  if (!pins.length || item.state === 'DELETED') return null;
  return (
    <span className="det-chips">
      <span className="det-soft">Kept:</span>
      {pins.map((pin, i) => <span key={i} className="det-chip" title={pinText(pin)}>{pin.kind === 'version' && pin.reason ? nameText(pin.reason, 80) : pinWord(pin)}</span>)}
    </span>
  );
}

function Acts({ item, pins, why, onRegister, onChanged }: {
  item: CheckpointView; pins: readonly Pin[]; why: string | null; onRegister: () => void; onChanged: () => void;
}): ReactElement | null {
  const { api, confirm, notify } = useApp();
  const me = useStore(s => s.me);
  const act = useAct();
  const path = `checkpoints/${encodeURIComponent(item.uuid)}`;
  const at = `checkpoint of trial ${item.trial_id} at step ${item.steps_completed}`;
  const does = async (work: () => Promise<unknown>, done: string): Promise<void> => {
    if (!(await act(work))) return;
    notify(done, 'good');
    onChanged();
  };
  if (inTrash(item)) {
    return <ActionButton label={`Undelete the ${at}`} why={why} onRun={() => does(() => api.post(`${path}/undelete`), 'The checkpoint was restored.')}>Undelete<span className="det-hidden"> the {at}</span></ActionButton>;
  }
  if (item.state === 'DELETED') return null;
  const bookmarked = pins.some(pin => pin.kind === 'bookmark');
  const remove = async (): Promise<void> => {
    const question = { title: 'Delete this checkpoint?', body: `${nameText(item.uuid, 60)}, ${formatBytes(item.size)}. It goes to the trash, and can be restored for some days.`, yes: 'Delete', danger: true };
    if (await confirm(question)) await does(() => api.del(path), 'The checkpoint went to the trash.');
  };
  const actions = (): Action[] => [
    bookmarked
      ? { key: 'unbookmark', label: 'Remove the bookmark', why: readOnly(me), run: () => does(() => api.del(`${path}/bookmark`), 'The bookmark was removed.') }
      : { key: 'bookmark', label: 'Bookmark', why: readOnly(me), run: () => does(() => api.replace(`${path}/bookmark`, {}), 'Bookmarked: it is kept until you remove the bookmark.') },
    { key: 'delete', label: 'Delete …', danger: true, why: why ?? (pins.length ? `Kept: ${pins.map(pinText).join('; ')}.` : null), run: remove }
  ];
  return (
    <>
      {item.state === 'COMPLETED' && <ActionButton label={`Register the ${at}`} why={readOnly(me)} onRun={onRegister}>Register …<span className="det-hidden"> the {at}</span></ActionButton>}
      <Menu label={`More actions of the ${at}`} actions={actions} />
    </>
  );
}

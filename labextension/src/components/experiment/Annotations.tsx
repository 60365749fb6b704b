/** What people wrote about an experiment: description and notes, and a form to change them, the name and the labels. */

import { FormEvent, ReactElement, useEffect, useRef, useState } from 'react';

import { useApp } from '../../state/context';
import { asApiError } from '../../state/api';
import type { EditExperiment, ExperimentView } from '../../state/wire';
import { useLoaded } from '../common';
import { nameText } from '../common/text';
import { Changed, NOTES, NotesText } from '../workspaces/Notes';

/** Characters of the description that are shown. */
const DESCRIPTION = 2000;

export function Annotations({ experiment: e, editing, onClose, onSaved }: {
  experiment: ExperimentView; editing: boolean; onClose: () => void; onSaved(view: ExperimentView): void;
}): ReactElement | null {
  const { api, navigate, notify } = useApp();
  const [theirs, setTheirs] = useState<string | null>(null);
  // Neither the snapshot nor the stream has the notes: they are loaded, and again when somebody has changed something.
  const full = useLoaded(`${e.id} ${e.edited_at ?? ''}`, signal => api.get<ExperimentView>(`experiments/${e.id}`, signal));
  const notes = full.data?.notes ?? '';
  const save = async (changes: EditExperiment): Promise<void> => {
    try {
      onSaved(await api.post<ExperimentView>(`experiments/${e.id}/edit`, changes));
      setTheirs(null);
      onClose();
    } catch (error) {
      const { message, hint, status } = asApiError(error);
      const before = changes.notes_before;
      const now = status === 409 && typeof before === 'string' ? (await api.get<ExperimentView>(`experiments/${e.id}`).catch(() => null))?.notes ?? '' : before;
      if (typeof now === 'string' && now !== before) setTheirs(now);
      else notify(nameText(`Edit experiment ${e.id}: ${message}${hint ? ` (${hint})` : ''}`, 600), 'bad');
    }
  };
  if (editing && full.data) {
    const cancel = (): void => { setTheirs(null); onClose(); };
    return <EditForm experiment={e} notes={notes} theirs={theirs} onSave={save} onTaken={() => setTheirs(null)} onCancel={cancel} />;
  }
  const from = full.data?.forked_from ?? null;
  if (!e.description && !notes && from === null) return null;
  return (
    <div className="det-annotations">
      {from !== null && (
        <p className="det-about">
          Forked from <button type="button" className="det-link" onClick={() => navigate({ kind: 'experiment', id: from })}>experiment {from}</button>
          {' · '}
          <button type="button" className="det-link" onClick={() => navigate({ kind: 'comparison', trials: [], experiments: [from, e.id], view: 'tab=config' })}>What differs</button>
        </p>
      )}
      {e.description && <p className="det-description">{nameText(e.description, DESCRIPTION)}</p>}
      {notes && <NotesText text={notes} />}
    </div>
  );
}

/** `theirs`: what somebody else has made of the notes meanwhile, or null. */
function EditForm({ experiment: e, notes, theirs, onSave, onTaken, onCancel }: {
  experiment: ExperimentView; notes: string; theirs: string | null; onSave(changes: EditExperiment): Promise<void>; onTaken(): void; onCancel(): void;
}): ReactElement {
  const [before, setBefore] = useState({ name: e.name, description: e.description ?? '', labels: e.labels.join(', '), notes });
  const [now, setNow] = useState(before);
  const first = useRef<HTMLInputElement>(null);
  useEffect(() => first.current?.focus(), []);
  const field = (key: keyof typeof before) => ({
    className: 'det-input', value: now[key],
    onChange: (event: { target: { value: string } }) => setNow({ ...now, [key]: event.target.value })
  });
  const send = (replaced: string): void => {
    const labels = now.labels.split(',').map(label => label.trim()).filter(Boolean);
    // Only what was changed: somebody else may be changing the rest.
    const changes = {
      ...(now.name !== before.name && { name: now.name }),
      ...(now.description !== before.description && { description: now.description }),
      ...(now.labels !== before.labels && { labels }),
      ...(now.notes !== before.notes && { notes: now.notes, notes_before: replaced })
    };
    void onSave(changes);
  };
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (theirs === null) send(before.notes);
  };
  const take = (): void => {
    setBefore({ ...before, notes: theirs! });
    setNow({ ...now, notes: theirs! });
    onTaken();
  };
  return (
    <form className="det-annotations det-edit" aria-label={`Edit experiment ${e.id}`} onSubmit={submit}>
      <label>Name<input ref={first} required maxLength={1000} {...field('name')} /></label>
      <label>Labels, separated by commas<input {...field('labels')} /></label>
      <label>Description<input maxLength={10_000} {...field('description')} /></label>
      <label>Notes, in Markdown<textarea rows={6} maxLength={NOTES} {...field('notes')} /></label>
      {theirs !== null && <Changed theirs={theirs} onReplace={() => send(theirs)} onTake={take} />}
      <div className="det-annotations-actions">
        <button type="submit" className="det-button det-primary" aria-disabled={theirs !== null || undefined}>Save</button>
        <button type="button" className="det-button" onClick={onCancel}>Cancel</button>
      </div>
    </form>
  );
}

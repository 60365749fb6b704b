/** What people wrote about an experiment: description and notes, and a form to change them, the name and the labels. */

import { FormEvent, ReactElement, useEffect, useRef, useState } from 'react';

import { useApp } from '../../state/context';
import { asApiError } from '../../state/api';
import { isOver } from '../../state/states';
import type { ExperimentView, UserView } from '../../state/wire';
import { ActionButton, useLoaded } from '../common';
import { nameText } from '../common/text';
import { closed, ownersAlone } from '../view/actions';

/** Characters of the texts that are shown. */
const DESCRIPTION = 2000;
const NOTES = 100_000;

export function Annotations({ experiment: e, me, onSaved }: {
  experiment: ExperimentView; me: UserView | null; onSaved(view: ExperimentView): void;
}): ReactElement {
  const { api, navigate, notify } = useApp();
  const [editing, setEditing] = useState(false);
  // Neither the snapshot nor the stream has the notes: they are loaded, and again when somebody has changed something.
  const full = useLoaded(`${e.id} ${e.edited_at ?? ''}`, signal => api.get<ExperimentView>(`experiments/${e.id}`, signal));
  const notes = full.data?.notes ?? '';
  const why = closed(me, e);
  const save = async (changes: object, what: string): Promise<boolean> => {
    try {
      onSaved(await api.post<ExperimentView>(`experiments/${e.id}/edit`, changes));
      return true;
    } catch (error) {
      const { message, hint } = asApiError(error);
      notify(nameText(`${what} experiment ${e.id}: ${message}${hint ? ` (${hint})` : ''}`, 600), 'bad');
      return false;
    }
  };
  if (editing) {
    const done = async (changes: object): Promise<void> => {
      if (await save(changes, 'Edit')) setEditing(false);
    };
    return <EditForm experiment={e} notes={notes} onSave={done} onCancel={() => setEditing(false)} />;
  }
  const archived = e.archived_at !== null && e.archived_at !== undefined;
  return (
    <div className="det-annotations">
      {full.data?.forked_from != null && (
        <p className="det-about">
          Forked from <button type="button" className="det-link" onClick={() => navigate({ kind: 'experiment', id: full.data!.forked_from! })}>experiment {full.data.forked_from}</button>
        </p>
      )}
      {e.description && <p className="det-description">{nameText(e.description, DESCRIPTION)}</p>}
      {notes && <div className="det-notes" role="note" aria-label="Notes" tabIndex={0}>{lines(notes)}</div>}
      <div className="det-annotations-actions">
        <ActionButton label="Edit" why={why ?? (full.data ? null : 'It is being loaded.')} onRun={() => setEditing(true)} />
        {isOver(e.state) && (
          <ActionButton
            label={archived ? 'Unarchive' : 'Archive'} why={ownersAlone(me, e)}
            onRun={async () => void (await save({ archived: !archived }, archived ? 'Unarchive' : 'Archive'))}
          />
        )}
      </div>
    </div>
  );
}

/** Text of several lines; characters that would change how others are shown are made visible. */
function lines(text: string): string {
  return text.slice(0, NOTES).split(/\r?\n/).map(line => nameText(line, NOTES)).join('\n');
}

function EditForm({ experiment: e, notes, onSave, onCancel }: {
  experiment: ExperimentView; notes: string; onSave(changes: object): Promise<void>; onCancel(): void;
}): ReactElement {
  const before = { name: e.name, description: e.description ?? '', labels: e.labels.join(', '), notes };
  const [now, setNow] = useState(before);
  const first = useRef<HTMLInputElement>(null);
  useEffect(() => first.current?.focus(), []);
  const field = (key: keyof typeof before) => ({
    className: 'det-input', value: now[key],
    onChange: (event: { target: { value: string } }) => setNow({ ...now, [key]: event.target.value })
  });
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    const labels = now.labels.split(',').map(label => label.trim()).filter(Boolean);
    // Only what was changed: somebody else may be changing the rest.
    const changes = {
      ...(now.name !== before.name && { name: now.name }),
      ...(now.description !== before.description && { description: now.description }),
      ...(now.labels !== before.labels && { labels }),
      ...(now.notes !== before.notes && { notes: now.notes, notes_before: before.notes })
    };
    void onSave(changes);
  };
  return (
    <form className="det-annotations det-edit" aria-label={`Edit experiment ${e.id}`} onSubmit={submit}>
      <label>Name<input ref={first} required maxLength={1000} {...field('name')} /></label>
      <label>Labels, separated by commas<input {...field('labels')} /></label>
      <label>Description<input maxLength={10_000} {...field('description')} /></label>
      <label>Notes<textarea rows={6} maxLength={NOTES} {...field('notes')} /></label>
      <div className="det-annotations-actions">
        <button type="submit" className="det-button det-primary">Save</button>
        <button type="button" className="det-button" onClick={onCancel}>Cancel</button>
      </div>
    </form>
  );
}

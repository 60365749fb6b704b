/** Notes in Markdown, and their editor: what somebody else wrote meanwhile is shown, never replaced unseen. */

import { FormEvent, ReactElement, useEffect, useRef, useState } from 'react';

import { ApiError, asApiError } from '../../state/api';
import { ErrorBanner } from '../common';
import { visible } from '../common/text';
import { Markdown } from '../view/Markdown';

/** Characters of notes. */
export const NOTES = 100_000;

export function NotesText({ text, level = 1 }: { text: string; level?: number }): ReactElement {
  return (
    <div className="det-model-notes" role="note" aria-label="Notes" tabIndex={0}>
      <Markdown text={text.slice(0, NOTES)} level={level} />
    </div>
  );
}

/**
 * An editor of notes. `save` gets the text and what it replaces; `current` asks for the notes as they are now, after a
 * refusal: if they are not those that were opened, somebody else has changed them.
 */
export function NotesEditor({ label, notes, save, current, onCancel }: {
  label: string;
  notes: string;
  save(text: string, before: string): Promise<void>;
  current(): Promise<string>;
  onCancel(): void;
}): ReactElement {
  const [text, setText] = useState(notes);
  const [before, setBefore] = useState(notes);
  const [theirs, setTheirs] = useState<string | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const [busy, setBusy] = useState(false);
  const field = useRef<HTMLTextAreaElement>(null);
  useEffect(() => field.current?.focus(), []);
  const send = async (replaced: string): Promise<void> => {
    if (busy) return;
    setBusy(true);
    setError(null);
    try {
      await save(text, replaced);
    } catch (caught) {
      const refused = asApiError(caught);
      const now = refused.status === 409 ? await current().catch(() => replaced) : replaced;
      if (now !== replaced) {
        setBefore(now);
        setTheirs(now);
      } else setError(refused);
    } finally {
      setBusy(false);
    }
  };
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (theirs === null) void send(before);
  };
  return (
    <form className="det-edits det-edits-framed" aria-label={label} onSubmit={submit}>
      <div className="det-edits-one">
        <label htmlFor="det-notes">Notes</label>
        <textarea
          id="det-notes" ref={field} className="det-input" rows={10} maxLength={NOTES} value={text} aria-describedby="det-notes-about"
          onChange={event => setText(event.target.value)}
        />
        <small id="det-notes-about" className="det-soft">Markdown. Everybody who may see it reads them.</small>
      </div>
      {theirs !== null && (
        <Changed
          theirs={theirs}
          onReplace={() => { setTheirs(null); void send(before); }}
          onTake={() => { setText(theirs); setTheirs(null); field.current?.focus(); }}
        />
      )}
      {error && <ErrorBanner error={error} />}
      <div className="det-dialog-buttons det-edits-buttons">
        <button type="button" className="det-button" onClick={onCancel}>Cancel</button>
        <button type="submit" className="det-button det-primary" aria-disabled={busy || theirs !== null || undefined} aria-busy={busy || undefined}>Save</button>
      </div>
    </form>
  );
}

/** What somebody else has written since the notes were opened, and what may be done about it. */
export function Changed({ theirs, onReplace, onTake }: { theirs: string; onReplace: () => void; onTake: () => void }): ReactElement {
  return (
    <div className="det-notes-changed" data-tone="warn" role="alert">
      <p><strong>Somebody has changed the notes since you opened them.</strong> Nothing was saved. Now they are:</p>
      <pre tabIndex={0} aria-label="The notes as they are now">{theirs ? visible(theirs.slice(0, NOTES)) : '(empty)'}</pre>
      <div className="det-controls">
        <button type="button" className="det-button" onClick={onTake}>Go on from theirs</button>
        <button type="button" className="det-button det-danger" onClick={onReplace}>Replace theirs by mine</button>
      </div>
    </div>
  );
}

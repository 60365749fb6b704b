/** Confirmation dialogs and notifications above the page. */

import { useCallback, useMemo, useRef, useState, type ReactElement } from 'react';

import { ConfirmDialog } from '../components/common';
import { visible } from '../components/common/text';
import type { AppContext, Question } from '../state/context';

const NOTICE_MS = 6000;
const BAD_MS = 15_000;

interface Note {
  id: number;
  text: string;
  tone: 'good' | 'bad';
}

export interface Overlay {
  confirm: AppContext['confirm'];
  notify: AppContext['notify'];
  element: ReactElement;
}

export function useOverlay(): Overlay {
  const [asked, setAsked] = useState<{ question: Question; answer: (yes: boolean) => void } | null>(null);
  const [notes, setNotes] = useState<Note[]>([]);
  const last = useRef(0);
  const drop = useCallback((id: number) => setNotes(old => old.filter(note => note.id !== id)), []);
  const confirm = useCallback(
    (question: Question) => new Promise<boolean>(answer => setAsked({ question, answer })),
    []
  );
  const notify = useCallback(
    (text: string, tone: 'good' | 'bad' = 'good') => {
      const id = ++last.current;
      setNotes(old => [...old.slice(-3), { id, text, tone }]);
      window.setTimeout(() => drop(id), tone === 'bad' ? BAD_MS : NOTICE_MS);
    },
    [drop]
  );
  const element = useMemo(() => (
    <>
      <div className="det-hub-notes" aria-live="polite">
        {notes.map(note => (
          <div key={note.id} className="det-banner" data-tone={note.tone} role={note.tone === 'bad' ? 'alert' : undefined}>
            <span>{visible(note.text)}</span>
            <button type="button" className="det-button det-compact" aria-label="Dismiss" onClick={() => drop(note.id)}>
              ✕
            </button>
          </div>
        ))}
      </div>
      {asked && (
        <ConfirmDialog
          question={asked.question}
          onAnswer={yes => {
            setAsked(null);
            asked.answer(yes);
          }}
        />
      )}
    </>
  ), [notes, asked, drop]);
  return useMemo(() => ({ confirm, notify, element }), [confirm, notify, element]);
}

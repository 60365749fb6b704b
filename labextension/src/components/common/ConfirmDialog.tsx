/** Ask for confirmation. */

import { ReactElement, useEffect, useId, useRef } from 'react';

import type { Question } from '../../state/context';
import { visible } from './text';

/** A modal dialog; Escape and a click outside mean no. The focus goes to "Cancel" and returns at the end. */
export function ConfirmDialog({ question, onAnswer }: {
  question: Question; onAnswer: (yes: boolean) => void;
}): ReactElement {
  const dialog = useRef<HTMLDialogElement>(null);
  const no = useRef<HTMLButtonElement>(null);
  const id = useId();
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    const el = dialog.current!;
    if (typeof el.showModal === 'function') el.showModal();
    else el.setAttribute('open', '');
    no.current?.focus();
    return () => before?.focus?.();
  }, []);
  return (
    <dialog
      ref={dialog} className="det-app det-dialog" aria-labelledby={`${id}-t`} aria-describedby={`${id}-b`}
      onCancel={event => { event.preventDefault(); onAnswer(false); }}
      onClick={event => { if (event.target === dialog.current) onAnswer(false); }}
    >
      <h2 id={`${id}-t`}>{visible(question.title)}</h2>
      <p id={`${id}-b`}>{visible(question.body)}</p>
      <div className="det-dialog-buttons">
        <button ref={no} type="button" className="det-button" onClick={() => onAnswer(false)}>Cancel</button>
        <button
          type="button" className={`det-button ${question.danger ? 'det-danger' : ''} det-primary`}
          onClick={() => onAnswer(true)}
        >
          {question.yes}
        </button>
      </div>
    </dialog>
  );
}

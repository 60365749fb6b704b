/** A modal dialog of the browser's own: it keeps the focus inside, closes by Escape and gives the focus back. */

import { useEffect, useId, useRef, type ReactElement, type ReactNode } from 'react';

export function Dialog({ title, onClose, children }: {
  title: string; onClose: () => void; children: ReactNode;
}): ReactElement {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const el = dialog.current!;
    const before = document.activeElement;
    if (typeof el.showModal === 'function') el.showModal();
    else el.setAttribute('open', '');
    // The browser takes the first button, which closes; what is typed at once belongs into the first field.
    el.querySelector<HTMLElement>('input:not(:disabled, [type=hidden], [type=checkbox], [type=radio]), textarea:not(:disabled)')?.focus();
    return () => {
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={dialog} className="det-app det-dialog det-adm-dialog" aria-labelledby={id}
      onCancel={event => { event.preventDefault(); onClose(); }}
    >
      <header>
        <h2 id={id}>{title}</h2>
        <button type="button" className="det-button det-compact" aria-label="Close" onClick={onClose}>✕</button>
      </header>
      {children}
    </dialog>
  );
}

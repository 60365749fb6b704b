/** The keys of a table, in a dialog. */

import { ReactElement, useEffect, useRef } from 'react';

import { HELP } from './keys';

export function KeysHelp({ onClose }: { onClose(): void }): ReactElement {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    const el = dialog.current!;
    if (typeof el.showModal === 'function') el.showModal();
    else el.setAttribute('open', '');
    return () => before?.focus?.();
  }, []);
  return (
    <dialog
      ref={dialog} className="det-app det-dialog" aria-label="Keys" onCancel={event => { event.preventDefault(); onClose(); }}
      onClick={event => { if (event.target === dialog.current) onClose(); }}
    >
      <h2>Keys</h2>
      <table className="det-run-keys">
        <tbody>{HELP.map(([key, what]) => <tr key={key}><th scope="row"><kbd>{key}</kbd></th><td>{what}</td></tr>)}</tbody>
      </table>
      <div className="det-dialog-buttons"><button type="button" className="det-button det-primary" autoFocus onClick={onClose}>Close</button></div>
    </dialog>
  );
}

/** Copies a text; says so. */

import { ReactElement } from 'react';

import { useApp } from '../../state/context';

export function CopyButton({ text, label = 'Copy', what }: { text: string; label?: string; what?: string }): ReactElement {
  const { notify } = useApp();
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text);
      notify(`${what ?? 'The text'} is in the clipboard.`, 'good');
    } catch {
      notify('The browser did not allow copying; select the text and copy it by hand.', 'bad');
    }
  };
  return (
    <button type="button" className="det-button" title={what ? `Copy ${what}` : undefined} onClick={() => void copy()}>{label}</button>
  );
}

/** Copy a text to the clipboard, with a notification. */

import { ReactElement } from 'react';

import { useApp } from '../../state/context';
import { visible } from './text';

export function CopyButton({ text, label = 'Copy', what }: { text: string; label?: string; what?: string }): ReactElement {
  const { notify } = useApp();
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text);
      notify(`Copied ${what ?? 'the text'}.`, 'good');
    } catch {
      notify('The browser does not allow copying: select the text and copy it manually.', 'bad');
    }
  };
  return (
    <button type="button" className="det-button" title={what ? `Copy ${what}` : undefined} onClick={() => void copy()}>{label}</button>
  );
}

/** A few lines of code that are there to be copied. */
export function Snippet({ text, what }: { text: string; what: string }): ReactElement {
  return (
    <div className="det-snippet">
      <pre tabIndex={0}><code>{visible(text)}</code></pre>
      <CopyButton text={text} what={what} />
    </div>
  );
}

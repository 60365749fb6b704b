/** Keys of a table. In JupyterLab only while the focus is in the table's view: all other keys are Lab's. */

import { RefObject, useEffect, useRef } from 'react';

export interface TableKeys {
  find(): void;
  move(by: number): void;
  select(): void;
  open(): void;
  help(): void;
  /** Nothing is selected any more. */
  clear(): void;
}

export const HELP: readonly (readonly [string, string])[] = [
  ['/', 'go to the filter'], ['j', 'next row'], ['k', 'row before'], ['x', 'select the row, or not'], ['Enter', 'open the row'],
  ['Escape', 'select none'], ['Shift + click', 'on a title: sort by it, too; on a box: select all between'], ['?', 'these keys']
];

const TYPING = 'input:not([type=checkbox]), textarea, select, [contenteditable]:not([contenteditable=false]), [role=textbox]';
/** Where Enter and the arrows have a meaning of their own. */
const OWN = 'button, a, input, select, textarea, summary, [role=menu], [role=dialog], [role=listbox], dialog';

export function useTableKeys(root: RefObject<HTMLElement>, everywhere: boolean, keys: TableKeys): void {
  const now = useRef(keys);
  now.current = keys;
  useEffect(() => {
    const target: HTMLElement | Document | null = everywhere ? document : root.current;
    if (!target) return;
    const onKey = (event: Event): void => {
      const pressed = event as KeyboardEvent;
      if (pressed.defaultPrevented || pressed.ctrlKey || pressed.metaKey || pressed.altKey || pressed.isComposing) return;
      const at = pressed.target instanceof Element ? pressed.target : null;
      if (at?.closest(TYPING) || at?.closest('[role=dialog], dialog, [role=menu]') || document.querySelector('dialog[open]')) return;
      const run = actionOf(pressed.key, at, now.current);
      if (!run) return;
      pressed.preventDefault();
      pressed.stopPropagation();
      run();
    };
    target.addEventListener('keydown', onKey);
    return () => target.removeEventListener('keydown', onKey);
  }, [root, everywhere]);
}

function actionOf(key: string, at: Element | null, keys: TableKeys): (() => void) | null {
  const own = at?.closest(OWN) != null;
  switch (key) {
    case '/': return keys.find;
    case '?': return keys.help;
    case 'j': return () => keys.move(1);
    case 'k': return () => keys.move(-1);
    case 'x': return keys.select;
    case 'Escape': return keys.clear;
    case 'Enter': return own ? null : keys.open;
    case 'ArrowDown': return own || !at?.closest('[role=grid]') ? null : () => keys.move(1);
    case 'ArrowUp': return own || !at?.closest('[role=grid]') ? null : () => keys.move(-1);
    default: return null;
  }
}

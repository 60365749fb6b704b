/** Which columns a table shows. */

import { KeyboardEvent, ReactElement, useEffect, useRef, useState } from 'react';

/** `always`: the key of the column that cannot be hidden. */
export function ColumnPicker<C extends { key: string; title: string }>({ columns, always, isShown, onChange, onReset }: {
  columns: readonly C[];
  always: string;
  isShown: (column: C) => boolean;
  onChange: (key: string, on: boolean) => void;
  onReset: () => void;
}): ReactElement {
  const [open, setOpen] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (!open) return;
    root.current?.querySelector<HTMLElement>('input')?.focus();
    const outside = (event: Event): void => {
      if (!root.current?.contains(event.target as Node)) setOpen(false);
    };
    document.addEventListener('pointerdown', outside, true);
    return () => document.removeEventListener('pointerdown', outside, true);
  }, [open]);
  const onKey = (event: KeyboardEvent): void => {
    if (event.key !== 'Escape' || !open) return;
    event.stopPropagation();
    setOpen(false);
    button.current?.focus();
  };
  const hidden = columns.filter(column => !isShown(column)).length;
  return (
    <div ref={root} className="det-picker" onKeyDown={onKey}>
      <button ref={button} type="button" className="det-button" aria-expanded={open} onClick={() => setOpen(!open)}>
        Columns{hidden ? ` (${hidden} hidden)` : ''}
      </button>
      {open && (
        <div className="det-picker-list" role="group" aria-label="Columns">
          {columns.map(column => (
            <label key={column.key}>
              <input
                type="checkbox" checked={isShown(column)} disabled={column.key === always}
                onChange={event => onChange(column.key, event.target.checked)}
              />
              <span className="det-ellipsis">{column.title}</span>
            </label>
          ))}
          <button type="button" className="det-link" onClick={onReset}>Default columns</button>
        </div>
      )}
    </div>
  );
}

/** A button that opens a part of the page below it; Escape and a press elsewhere close it. */

import { KeyboardEvent, ReactElement, ReactNode, useEffect, useRef, useState } from 'react';

export function Popover({ label, about, children, wide }: {
  label: ReactNode; about: string; wide?: boolean;
  /** What it holds; `close` closes it and gives the focus back. */
  children: (close: () => void) => ReactNode;
}): ReactElement {
  const [open, setOpen] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const close = (): void => {
    setOpen(false);
    button.current?.focus();
  };
  useEffect(() => {
    if (!open) return;
    root.current?.querySelector<HTMLElement>('.det-run-popover :is(input, button, select)')?.focus();
    const outside = (event: Event): void => {
      if (!root.current?.contains(event.target as Node)) setOpen(false);
    };
    document.addEventListener('pointerdown', outside, true);
    return () => document.removeEventListener('pointerdown', outside, true);
  }, [open]);
  const onKey = (event: KeyboardEvent): void => {
    if (event.key !== 'Escape' || !open) return;
    event.stopPropagation();
    close();
  };
  return (
    <div ref={root} className="det-picker" onKeyDown={onKey}>
      <button ref={button} type="button" className="det-button" aria-expanded={open} aria-haspopup="dialog" title={about} onClick={() => setOpen(!open)}>
        {label}
      </button>
      {open && <div className={`det-run-popover${wide ? ' det-run-wide' : ''}`} role="dialog" aria-label={about}>{children(close)}</div>}
    </div>
  );
}

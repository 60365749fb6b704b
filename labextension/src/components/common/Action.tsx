/** Buttons and menus whose disabled entries say why. */

import {
  KeyboardEvent, ReactElement, ReactNode, useEffect, useId, useLayoutEffect, useRef, useState
} from 'react';
import { createPortal } from 'react-dom';

export interface Action {
  key: string;
  label: string;
  /** Why it cannot be done now; then it is disabled. */
  why?: string | null;
  danger?: boolean;
  run(): void | Promise<void>;
}

/** A button. A disabled one keeps the focus and says why, in its tooltip and to screen readers. */
export function ActionButton({ label, why, danger, onRun, children, primary, compact }: {
  label: string;
  why?: string | null;
  danger?: boolean;
  primary?: boolean;
  /** Only the children (an icon) are shown; the label is for screen readers. */
  compact?: boolean;
  onRun: () => void | Promise<void>;
  children?: ReactNode;
}): ReactElement {
  const id = useId();
  const [busy, setBusy] = useState(false);
  const alive = useAlive();
  const click = async (): Promise<void> => {
    if (why || busy) return;
    setBusy(true);
    try {
      await onRun();
    } finally {
      if (alive.current) setBusy(false);
    }
  };
  const kind = `${primary ? ' det-primary' : ''}${danger ? ' det-danger' : ''}${compact ? ' det-compact' : ''}`;
  return (
    <>
      <button
        type="button" className={`det-button${kind}`} aria-disabled={why || busy ? true : undefined}
        aria-label={compact ? label : undefined} aria-busy={busy || undefined} aria-describedby={why ? id : undefined}
        title={why ? `${label}: ${why}` : compact ? label : undefined} onClick={() => void click()}
      >
        {children ?? label}
      </button>
      {why && <span id={id} className="det-hidden">{why}</span>}
    </>
  );
}

/** A button that opens a menu of actions, which are made when it opens. */
export function Menu({ label, actions, children }: {
  label: string; actions: () => readonly Action[]; children?: ReactNode;
}): ReactElement {
  const [at, setAt] = useState<DOMRect | null>(null);
  const button = useRef<HTMLButtonElement>(null);
  const close = (): void => {
    setAt(null);
    button.current?.focus();
  };
  return (
    <>
      <button
        ref={button} type="button" className="det-button det-compact" aria-haspopup="menu" aria-expanded={at !== null}
        aria-label={label} title={label}
        onClick={() => setAt(at ? null : button.current!.getBoundingClientRect())}
      >
        {children ?? '⋯'}
      </button>
      {at && createPortal(<MenuList label={label} at={at} actions={actions()} onClose={close} />, document.body)}
    </>
  );
}

function MenuList({ label, at, actions, onClose }: {
  label: string; at: DOMRect; actions: readonly Action[]; onClose: () => void;
}): ReactElement {
  const list = useRef<HTMLDivElement>(null);
  const id = useId();
  const [place, setPlace] = useState({ left: at.left, top: at.bottom + 2 });
  useLayoutEffect(() => {
    const el = list.current!;
    const left = Math.max(4, Math.min(at.left, window.innerWidth - el.offsetWidth - 4));
    const below = at.bottom + 2 + el.offsetHeight <= window.innerHeight;
    setPlace({ left, top: below ? at.bottom + 2 : Math.max(4, at.top - el.offsetHeight - 2) });
    items(el)[0]?.focus();
  }, [at]);
  useEffect(() => {
    const outside = (event: Event): void => {
      if (!list.current?.contains(event.target as Node)) onClose();
    };
    document.addEventListener('pointerdown', outside, true);
    window.addEventListener('resize', onClose);
    return () => {
      document.removeEventListener('pointerdown', outside, true);
      window.removeEventListener('resize', onClose);
    };
  }, [onClose]);
  const onKey = (event: KeyboardEvent): void => {
    const all = items(list.current!);
    const now = all.indexOf(document.activeElement as HTMLElement);
    const to = { ArrowDown: now + 1, ArrowUp: now - 1, Home: 0, End: all.length - 1 }[event.key];
    event.stopPropagation();
    if (to !== undefined) all[(to + all.length) % all.length]?.focus();
    else if (event.key === 'Escape' || event.key === 'Tab') onClose();
    else return;
    event.preventDefault();
  };
  const choose = (action: Action): void => {
    if (action.why) return;
    onClose();
    void action.run();
  };
  return (
    <div ref={list} role="menu" aria-label={label} className="det-app det-menu" style={place} onKeyDown={onKey}>
      {actions.map(action => (
        <button
          key={action.key} type="button" role="menuitem" tabIndex={-1} aria-disabled={action.why ? true : undefined}
          className={`det-menu-item${action.danger ? ' det-danger' : ''}`}
          aria-describedby={action.why ? `${id}-${action.key}` : undefined} onClick={() => choose(action)}
        >
          {action.label}
          {action.why && <span id={`${id}-${action.key}`} className="det-why">{action.why}</span>}
        </button>
      ))}
    </div>
  );
}

function items(list: HTMLElement): HTMLElement[] {
  return [...list.querySelectorAll<HTMLElement>('[role=menuitem]')];
}

function useAlive(): { current: boolean } {
  const alive = useRef(true);
  useEffect(() => {
    alive.current = true;
    return () => { alive.current = false; };
  }, []);
  return alive;
}

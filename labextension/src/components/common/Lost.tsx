/** A lost connection: the reason, and when it is retried. */

import { ReactElement, useEffect, useRef, useState } from 'react';

import type { Link } from '../../state/follow';
import { nameText } from './text';
import { Coded } from './Coded';

export type Lost = Link & { kind: 'lost' };

/** Longest reason that is shown: a proxy may have written it. */
const LONGEST = 160;

/** The reason in one line without a full stop. */
export function reasonOf(lost: Lost): string {
  return nameText(lost.error.message, LONGEST).replace(/[.\s]+$/, '');
}

/** The lost state of a link; while it is reconnecting, the previous one, so that the text does not flicker. */
export function useLost(link: Link): Lost | null {
  const last = useRef<Lost | null>(null);
  if (link.kind === 'lost') last.current = link;
  else if (link.kind === 'opening') last.current &&= { ...last.current, retryAt: 0 };
  else last.current = null;
  return last.current;
}

/** "Trying again in 5 s.", hidden from screen readers, which would read each second aloud. */
export function TryingAgain({ lost }: { lost: Lost }): ReactElement {
  return <span aria-hidden="true" className="det-num">Trying again <Seconds key={lost.retryAt} to={lost.retryAt} /></span>;
}

function Seconds({ to }: { to: number }): ReactElement {
  const [left, setLeft] = useState(() => secondsTo(to));
  useEffect(() => {
    if (left < 1) return;
    const timer = window.setTimeout(() => setLeft(secondsTo(to)), 1000);
    return () => window.clearTimeout(timer);
  }, [left, to]);
  return <>{left > 0 ? `in ${left} s.` : '…'}</>;
}

function secondsTo(time: number): number {
  return Math.ceil((time - Date.now()) / 1000);
}

/** The master's hint, if there is one. */
export function LostHint({ lost }: { lost: Lost }): ReactElement | null {
  return lost.error.hint ? <div className="det-soft"><Coded text={nameText(lost.error.hint, LONGEST)} /></div> : null;
}

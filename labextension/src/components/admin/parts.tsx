/** The frame that the admin views share: a heading with tools, a small table, a name that is a link. */

import type { ReactElement, ReactNode } from 'react';

import { useApp, type Place } from '../../state/context';
import { formatAge, formatTime, useNow } from '../common';

export function View({ title, lead, tools, children }: {
  title: string; lead?: ReactNode; tools?: ReactNode; children: ReactNode;
}): ReactElement {
  return (
    <section className="det-adm">
      <header className="det-adm-head">
        <div>
          <h1 tabIndex={-1}>{title}</h1>
          {lead && <p className="det-soft">{lead}</p>}
        </div>
        {tools && <div className="det-adm-tools">{tools}</div>}
      </header>
      {children}
    </section>
  );
}

/** A plain table for what is short; it scrolls sideways by itself. */
export function Sheet({ label, head, children }: { label: string; head: ReactNode; children: ReactNode }): ReactElement {
  return (
    <div className="det-adm-scroll" tabIndex={0} role="region" aria-label={label}>
      <table className="det-adm-sheet">
        <thead>
          <tr>{head}</tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}

/** A link to a view, where the host has addresses; else a button that looks like one. */
export function Go({ to, children, title }: { to: Place; children: ReactNode; title?: string }): ReactElement {
  const { navigate, address } = useApp();
  const href = address(to);
  if (href === null) {
    return <button type="button" className="det-link" title={title} onClick={() => navigate(to)}>{children}</button>;
  }
  return (
    <a
      href={href} title={title}
      onClick={event => {
        if (event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
        event.preventDefault();
        navigate(to);
      }}
    >
      {children}
    </a>
  );
}

/** How long ago, with the moment as its title. */
export function Ago({ time }: { time: number | null | undefined }): ReactElement {
  const now = useNow();
  if (!time) return <>–</>;
  const age = formatAge(time, now);
  return (
    <time dateTime={new Date(time * 1000).toISOString()} title={formatTime(time)}>
      {age === 'now' ? 'just now' : `${age} ago`}
    </time>
  );
}

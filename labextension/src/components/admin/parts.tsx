/** Parts of the list views: a frame with a heading and tools, a small table, links. */

import type { ReactElement, ReactNode } from 'react';

import { useApp, type Place } from '../../state/context';
import { formatAgo, formatTime, useNow } from '../common';

export function View({ title, summary, tools, children }: {
  title: string; /** A line below the title. */
  summary?: ReactNode; tools?: ReactNode; children: ReactNode;
}): ReactElement {
  return (
    <section className="det-adm">
      <header className="det-adm-head">
        <div>
          <h1 tabIndex={-1}>{title}</h1>
          {summary && <p className="det-soft">{summary}</p>}
        </div>
        {tools && <div className="det-adm-tools">{tools}</div>}
      </header>
      {children}
    </section>
  );
}

/** A short table; it scrolls sideways on narrow pages. */
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

/** A link to a view; a button where the host has no addresses. */
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

/** How long ago, with the time as its title. */
export function Ago({ time }: { time: number | null | undefined }): ReactElement {
  const now = useNow();
  if (!time) return <>–</>;
  return (
    <time dateTime={new Date(time * 1000).toISOString()} title={formatTime(time)}>
      {formatAgo(time, now)}
    </time>
  );
}

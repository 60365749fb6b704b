/** Placeholders for empty, loading and failed views. */

import type { ReactElement, ReactNode } from 'react';

import type { ApiError } from '../../state/api';
import { visible } from './text';
import { Coded } from './Coded';

/** Nothing to show, and what to do about it. */
export function EmptyState({ title, children }: { title: string; children?: ReactNode }): ReactElement {
  return (
    <div className="det-empty">
      <p className="det-empty-title">{title}</p>
      {children && <div>{children}</div>}
    </div>
  );
}

/** Still loading. */
export function Loading({ what = 'Loading' }: { what?: string }): ReactElement {
  return <div className="det-empty" role="status">{what} …</div>;
}

/** An error with its hint and a button to retry. */
export function ErrorBanner({ error, onRetry, what, children }: {
  error: Pick<ApiError, 'message' | 'hint'> & Partial<Pick<ApiError, 'problems'>>;
  onRetry?: () => void;
  /** What failed, such as "Kill". */
  what?: string;
  children?: ReactNode;
}): ReactElement {
  return (
    <div className="det-banner" data-tone="bad" role="alert">
      <div>
        {what && <strong>{what}: </strong>}
        <Coded text={error.message} />
        {error.problems?.map((p, i) => <div key={i}>{p.path && <code>{visible(p.path)}: </code>}<Coded text={p.message} /></div>)}
        {error.hint && <div className="det-soft"><Coded text={error.hint} /></div>}
        {children}
      </div>
      {onRetry && <button type="button" className="det-button" onClick={onRetry}>Try again</button>}
    </div>
  );
}

/** Something to know, not an error. */
export function Notice({ tone = 'off', children }: { tone?: 'off' | 'paused' | 'bad'; children: ReactNode }): ReactElement {
  return <div className="det-banner" data-tone={tone} role="status">{children}</div>;
}

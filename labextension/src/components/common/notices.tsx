/** What is shown where there is nothing to show, or where something went wrong. */

import type { ReactElement, ReactNode } from 'react';

import type { ApiError } from '../../state/api';
import { visible } from './text';
import { Coded } from './Coded';

/** Says that there is nothing, and what to do about it. */
export function EmptyState({ title, children }: { title: string; children?: ReactNode }): ReactElement {
  return (
    <div className="det-empty">
      <p className="det-empty-title">{title}</p>
      {children && <div>{children}</div>}
    </div>
  );
}

/** Says that it is still being loaded. */
export function Loading({ what = 'Loading' }: { what?: string }): ReactElement {
  return <div className="det-empty" role="status">{what} …</div>;
}

/** What went wrong, the hint and a way to try again. */
export function ErrorBanner({ error, onRetry, what, children }: {
  error: Pick<ApiError, 'message' | 'hint'> & Partial<Pick<ApiError, 'problems'>>;
  onRetry?: () => void;
  /** What was tried, such as "Kill". */
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

/** Shown instead of a view that does not exist or cannot be loaded. */

import type { ReactElement } from 'react';

import type { ApiError } from '../../state/api';
import { ErrorBanner } from '../common';

export function Missing({ error, what, onRetry }: { error: ApiError; what: string; onRetry: () => void }): ReactElement {
  const gone = error.status === 404;
  return (
    <section className="det-missing">
      <h1 tabIndex={-1}>{gone ? `${what} not found` : what}</h1>
      {gone && <p>It was deleted, belongs to someone else, or does not exist.</p>}
      <ErrorBanner error={error} onRetry={onRetry} />
    </section>
  );
}

/** In place of a view that cannot be had: it is not there (any more), or nobody answers. */

import type { ReactElement } from 'react';

import type { ApiError } from '../../state/api';
import { ErrorBanner } from '../common';

export function Missing({ error, what, onRetry }: { error: ApiError; what: string; onRetry: () => void }): ReactElement {
  const gone = error.status === 404;
  return (
    <section className="det-missing">
      <h1 tabIndex={-1}>{gone ? `${what} is not here` : what}</h1>
      {gone && <p>It was deleted, it is somebody else’s, or it never was.</p>}
      <ErrorBanner error={error} onRetry={onRetry} />
    </section>
  );
}

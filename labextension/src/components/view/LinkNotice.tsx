/** A notice that the view is not live. */

import { ReactElement, useEffect, useState } from 'react';

import type { Link } from '../../state/follow';
import { reasonOf, TryingAgain, useLost } from '../common';

/** A shorter break is not shown. */
const PATIENCE_MS = 2000;

export function LinkNotice({ link, onRetry }: { link: Link; onRetry: () => void }): ReactElement | null {
  const [late, setLate] = useState(false);
  const lost = useLost(link);
  const broken = link.kind === 'lost' || (late && link.kind === 'opening');
  useEffect(() => {
    if (!broken) {
      setLate(false);
      return;
    }
    const timer = window.setTimeout(() => setLate(true), PATIENCE_MS);
    return () => window.clearTimeout(timer);
  }, [broken]);
  if (!broken || !late) return null;
  return (
    <div className="det-banner" data-tone="paused" role="status">
      <div>
        Not live: {lost ? reasonOf(lost) : 'reconnecting'}. Showing the last known state.
        {lost && <> <TryingAgain lost={lost} /></>}
      </div>
      <button type="button" className="det-button" onClick={onRetry}>Retry now</button>
    </div>
  );
}

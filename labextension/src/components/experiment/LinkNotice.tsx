/** Says when what is shown may be old. */

import { ReactElement, useEffect, useState } from 'react';

import type { Link } from '../../state/follow';

/** A break shorter than this is healed before anybody would read of it. */
const PATIENCE_MS = 2000;

export function LinkNotice({ link, onRetry }: { link: Link; onRetry: () => void }): ReactElement | null {
  const [late, setLate] = useState(false);
  const lost = link.kind === 'lost' || (late && link.kind === 'opening');
  useEffect(() => {
    if (!lost) {
      setLate(false);
      return;
    }
    const timer = window.setTimeout(() => setLate(true), PATIENCE_MS);
    return () => window.clearTimeout(timer);
  }, [lost]);
  if (!lost || !late) return null;
  const why = link.kind === 'lost' ? link.error.message : 'opening the stream again';
  return (
    <div className="det-banner" data-tone="paused" role="status">
      <div>Not live: {why}. What you see is the last that was heard; it goes on by itself.</div>
      <button type="button" className="det-button" onClick={onRetry}>Try now</button>
    </div>
  );
}

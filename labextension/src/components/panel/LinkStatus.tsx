/** How the connection to the cluster stands, when it is not simply there. */

import { ReactElement, useEffect, useState } from 'react';

import { useApp, useStore } from '../../state/context';
import { ErrorBanner } from '../common';

export function LinkStatus(): ReactElement | null {
  const { store } = useApp();
  const link = useStore(s => s.link);
  const ready = useStore(s => s.ready);
  const problem = useStore(s => s.problem);
  if (!ready && problem) return <ErrorBanner error={problem} onRetry={store.retry} what="No cluster" />;
  if (link.kind !== 'lost') return null;
  return (
    <div className="det-banner" data-tone="paused" role="status">
      <span title={link.error.message}>Connection lost, trying again <Countdown to={link.retryAt} /></span>
      <button type="button" className="det-button" onClick={store.retry}>Now</button>
    </div>
  );
}

function Countdown({ to }: { to: number }): ReactElement {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = window.setTimeout(() => setNow(Date.now()), 1000);
    return () => window.clearTimeout(timer);
  }, [now, to]);
  const left = Math.ceil((to - now) / 1000);
  return <span aria-hidden="true">{left > 1 ? `in ${left} s` : '…'}</span>;
}

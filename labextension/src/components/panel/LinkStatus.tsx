/** Shown while there is no connection to the cluster. */

import type { ReactElement } from 'react';

import { useApp, useStore } from '../../state/context';
import { Coded, ErrorBanner, LostHint, reasonOf, TryingAgain, useLost } from '../common';

export function LinkStatus(): ReactElement | null {
  const { store } = useApp();
  const lost = useLost(useStore(s => s.link));
  const ready = useStore(s => s.ready);
  const problem = useStore(s => s.problem);
  if (!ready && problem) {
    return (
      <ErrorBanner error={problem} onRetry={store.retry} what="No connection">
        {lost && <div><TryingAgain lost={lost} /></div>}
      </ErrorBanner>
    );
  }
  if (!lost) return null;
  return (
    <div className="det-banner" data-tone="paused" role="status">
      <div>
        Connection lost: <Coded text={reasonOf(lost)} />. <TryingAgain lost={lost} />
        <LostHint lost={lost} />
      </div>
      <button type="button" className="det-button" onClick={store.retry}>Retry now</button>
    </div>
  );
}

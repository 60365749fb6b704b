/** The status bar's item: free slots and the user's active work. A click opens the panel. */

import type { ReactElement } from 'react';

import { reasonOf, useLost } from '../components/common';
import { useStore } from '../state/context';

export function StatusItem({ onClick }: { onClick: () => void }): ReactElement | null {
  const ready = useStore(s => s.ready);
  const lost = useLost(useStore(s => s.link));
  const free = useStore(s => (s.cluster?.slots_total ?? 0) - (s.cluster?.slots_used ?? 0));
  const total = useStore(s => s.cluster?.slots_total ?? 0);
  const running = useStore(
    s => s.experiments.filter(e => e.state === 'ACTIVE').length + s.tasks.filter(t => t.state === 'ACTIVE').length
  );
  const text = !ready ? 'detlab: –' : `${free}/${total} slots free · ${running} active`;
  return (
    <button
      type="button" className="det-status" onClick={onClick}
      title={lost ? `Connection lost: ${reasonOf(lost)}` : 'Show the detlab panel'}
    >
      {text}{lost ? ' · ⚠ not connected' : ''}
    </button>
  );
}

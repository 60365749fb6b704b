/** The view of one trial. */

import type { ReactElement } from 'react';

import { EmptyState } from '../common';

export function TrialView({ id }: { id: number; tab?: 'metrics' | 'logs' | 'checkpoints' }): ReactElement {
  return <EmptyState title={`Trial ${id}`} />;
}

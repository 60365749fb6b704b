/** The view of one experiment. */

import type { ReactElement } from 'react';

import { EmptyState } from '../common';

export function ExperimentView({ id }: { id: number }): ReactElement {
  return <EmptyState title={`Experiment ${id}`} />;
}

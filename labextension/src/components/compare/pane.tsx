/** What the panes of a comparison share. */

import type { ReactElement } from 'react';

import type { RunComparison } from '../../state/wire';
import type { CompareOptions } from './link';
import type { Side } from './model';

/** What a pane gets. */
export interface PaneProps {
  data: RunComparison;
  sides: readonly Side[];
  options: CompareOptions;
  onOptions: (change: Partial<CompareOptions>) => void;
  /** Grows when curves have to be loaded again. */
  round: number;
  /** Leave a run out; absent where it is the only one. */
  onDrop?: (side: Side) => void;
}

export function Labelled({ id, label, children }: { id: string; label: string; children: ReactElement }): ReactElement {
  return <span className="det-labelled"><label htmlFor={id}>{label}</label>{children}</span>;
}

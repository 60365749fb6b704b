/** Tabs of the tables of runs and of comparisons; a script of its own, which is loaded with the first of them. */

import type { ReactElement } from 'react';

import { CompareRuns } from '../../components/compare';
import { RunsPage } from '../../components/finding';
import type { Place } from '../../state/context';

export type RunsPlace = Place & { kind: 'runs' | 'comparison' };

export function RunsTab({ place }: { place: RunsPlace }): ReactElement {
  return (
    <div className="det-view-main">
      {place.kind === 'runs'
        ? <RunsPage table={place.table} query={place.query} />
        : <CompareRuns trials={place.trials} experiments={place.experiments} view={place.view} />}
    </div>
  );
}

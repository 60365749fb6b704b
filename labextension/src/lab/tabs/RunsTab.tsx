/** Tabs of the tables of runs, of one run, and of comparisons; a script of its own, which is loaded with the first of them. */

import type { ReactElement } from 'react';

import { CompareRuns } from '../../components/compare';
import { RunsPage } from '../../components/finding';
import { RunPage, TrackedPage } from '../../components/runs';
import type { Place } from '../../state/context';

export type RunsPlace = Place & { kind: 'runs' | 'tracked' | 'run' | 'comparison' };

export function RunsTab({ place }: { place: RunsPlace }): ReactElement {
  return place.kind === 'run' ? <RunPage id={place.id} tab={place.tab} /> : <div className="det-view-main"><Shown place={place} /></div>;
}

function Shown({ place }: { place: Exclude<RunsPlace, { kind: 'run' }> }): ReactElement {
  switch (place.kind) {
    case 'runs': return <RunsPage table={place.table} query={place.query} />;
    case 'tracked': return <TrackedPage query={place.query} />;
    case 'comparison': return <CompareRuns {...place} />;
  }
}

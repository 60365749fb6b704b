/** Tabs of an experiment, a trial and a task; a script of its own, which is loaded with the first of them. */

import type { ReactElement } from 'react';

import { ExperimentView } from '../../components/experiment/ExperimentView';
import { TaskView } from '../../components/trial/TaskView';
import { TrialView } from '../../components/trial/TrialView';
import type { Place } from '../../state/context';

export type WorkPlace = Place & { kind: 'experiment' | 'trial' | 'task' };

export function ExperimentTab({ place }: { place: WorkPlace }): ReactElement {
  switch (place.kind) {
    case 'experiment': return <ExperimentView id={place.id} tab={place.tab} />;
    case 'trial': return <TrialView id={place.id} tab={place.tab} />;
    case 'task': return <TaskView id={place.id} />;
  }
}

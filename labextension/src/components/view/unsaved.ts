/** What a pause may cost: running trials that have no checkpoint yet. */

import type { Api } from '../../state/api';
import type { Question } from '../../state/context';
import type { ExperimentView, TrialView } from '../../state/wire';

const PAGE = 2000;
/** Trials named in the question. */
const MOST_NAMED = 5;

/** The ids of an experiment's running trials without a checkpoint. */
export async function unsavedTrials(api: Api, e: ExperimentView): Promise<number[]> {
  const unsaved: number[] = [];
  let running = e.trials['RUNNING'] ?? 0;
  let after: number | null = 0;
  while (running > 0 && after !== null) {
    const page: { items: TrialView[]; next: number | null } = await api.get(
      `experiments/${e.id}/trials?limit=${PAGE}${after ? `&after=${after}` : ''}`
    );
    const now = page.items.filter(trial => trial.allocation_state === 'RUNNING');
    unsaved.push(...now.filter(trial => trial.latest_checkpoint === null).map(trial => trial.id));
    running -= now.length;
    after = page.items.length ? page.next : null;
  }
  return unsaved;
}

/** The question before a pause that may lose work, or null where nothing is known to be lost. */
export async function pauseQuestion(api: Api, e: ExperimentView): Promise<Question | null> {
  let unsaved: number[];
  try {
    unsaved = await unsavedTrials(api, e);
  } catch {
    return null; // the pause itself reports what is wrong
  }
  if (!unsaved.length) return null;
  const named = unsaved.slice(0, MOST_NAMED).join(', ');
  const more = unsaved.length > MOST_NAMED ? ` and ${unsaved.length - MOST_NAMED} more` : '';
  const [subject, verb, starts] = unsaved.length === 1 ? ['Trial', 'has', 'it starts'] : ['Trials', 'have', 'they start'];
  return {
    title: `Pause experiment ${e.id}?`,
    body: `${subject} ${named}${more} ${verb} no checkpoint yet. Unless the code saves one when it is asked to stop, ${starts} over from step 0 when the experiment is resumed.`,
    yes: 'Pause',
    danger: true
  };
}

/** Reload when somebody changed a model, or rights to it. */

import { useReloadOn } from '../common/loading/load';
import { useRechecked } from '../common/loading/rights';

/** The kind of the events that the master sends of models, their versions and labels. */
const KIND = 'model';

export function useModelEvents(reload: () => void): void {
  useReloadOn(KIND, reload);
  useRechecked(reload);
}

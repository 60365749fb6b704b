/** Reload when somebody changed a model. */

import { useReloadOn } from '../common/load';

/** The kind of the events that the master sends of models, their versions and labels. */
const KIND = 'model';

export function useModelEvents(reload: () => void): void {
  useReloadOn(KIND, reload);
}

/** Why a checkpoint is kept, in words. */

import type { Pin } from '../../state/wire';
import { nameText } from '../common/text';

const WORDS: Record<Pin['kind'], string> = {
  resume: 'needed to resume', search: 'needed by the search', rung: 'on a rung of the search', parent: 'parent of a trial', warm_start: 'another trial starts from it',
  version: 'registered', evaluation: 'being evaluated', bookmark: 'bookmarked'
};

/** One or two words. */
export function pinWord(pin: Pin): string {
  return WORDS[pin.kind] ?? nameText(pin.kind, 40);
}

/** The word and the master's sentence. */
export function pinText(pin: Pin): string {
  return pin.reason ? `${pinWord(pin)}: ${nameText(pin.reason, 200)}` : pinWord(pin);
}

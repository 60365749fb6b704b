/** What of a user's, group's, project's or experiment's bytes counts, and how near it is to its quota. */

import type { StorageUse } from '../../state/wire';
import { formatBytes, formatPercent } from '../common';

/** From here on people are told, so that they can act before it bites. */
const NEAR = 0.8;

/** All bytes that are there now, with the trash. */
export function heldOf(use: StorageUse): number {
  return use.checkpoint_bytes + use.other_bytes + use.trash_bytes;
}

export function nearLimit(use: Pick<StorageUse, 'used' | 'limit'>): boolean {
  return use.limit !== null && use.used >= NEAR * use.limit;
}

/** `81 % of 1.0 GiB`. */
export function limitWords(use: Pick<StorageUse, 'used' | 'limit'>): string {
  if (use.limit === null) return '–';
  if (use.used >= use.limit) return `full: ${formatBytes(use.used)} of ${formatBytes(use.limit)}`;
  return `${formatPercent(use.used / use.limit)} of ${formatBytes(use.limit)}`;
}

/** What is stored, what keeps it, and what goes. */

export { Checkpoints } from './Checkpoints';
export { StoragePage } from './StoragePage';
export { StorageWarning } from './Warning';

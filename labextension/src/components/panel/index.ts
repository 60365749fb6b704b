/** The panel and its parts. */

export { FilteredWork } from './Archived';
export { Cluster } from './Cluster';
export { LinkStatus } from './LinkStatus';
export { Panel } from './Panel';
export { Queue } from './Queue';
export * from './work';

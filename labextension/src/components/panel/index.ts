/** The panel and its parts. */

export { Cluster } from './Cluster';
export { LinkStatus } from './LinkStatus';
export { Panel } from './Panel';
export { Queue } from './Queue';
export { WorkList } from './WorkList';
export * from './work';

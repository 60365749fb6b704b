/** Tables of runs over all experiments, with filters, columns and saved views. */

export { RunsPage } from './RunsPage';
export type { RunTable } from './request';

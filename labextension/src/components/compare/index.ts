/** Trials and experiments side by side. */

export { CompareRuns } from './CompareRuns';
export { compareLink } from './link';

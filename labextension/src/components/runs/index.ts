/** Runs that no cluster started: their table, and the page of one. */

export { RunPage } from './RunPage';
export { ProjectRuns, TrackedPage } from './TrackedPage';

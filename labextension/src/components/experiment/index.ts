/** The main-area view of an experiment. */

export { ExperimentView, type ExperimentTab } from './ExperimentView';

/** The form of new experiments and notebook runs. */

export { ExperimentForm, type FormProps, type Section } from './ExperimentForm';
export type { Schema } from './schema';
export { forkText } from './forking';
export { EXPERIMENT_SECTIONS, experimentText, RUN_SECTIONS, RUN_TEXT } from './starting';

/** The main-area views of trials and user tasks. */

export { FailureCard } from '../view/FailureCard';
export { TaskView } from './TaskView';
export { TrialView, type TrialTab } from './TrialView';

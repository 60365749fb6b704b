/** Steering of searches: the bar in the tab of an experiment, and acts on one trial. */

export { Steering } from './Steering';
export { notSteered, trialActs } from './acts';

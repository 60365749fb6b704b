/** The queue's jobs, quotas and pools, as panel and hub page share them. */

export { JobWhy } from './JobWhy';
export { allOf, allWaiting, beside, byPool, formatUntil, jobOf, ranked, schedulerWord, whyOf } from './lanes';
export { NODE_VERBS, steerNode, type NodeVerb } from './nodeactions';
export { CloudNotes, useInstances, usePools } from './Pools';
export { QuotaItems, usedWords, useQuotas, whose } from './Quotas';

/** Jobs of the queue, quotas and pools: parts that the panel and the hub page share. */

export { JobWhy } from './JobWhy';
export { allOf, allWaiting, neighbours, byPool, formatUntil, jobOf, ranked, schedulerWord, whyOf } from './lanes';
export { NODE_VERBS, changeNode, type NodeVerb } from './nodeactions';
export { BatchNotes, CloudNotes, useInstances, usePools } from './Pools';
export { QuotaItems, usedWords, useQuotas, whose } from './Quotas';

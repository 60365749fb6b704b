/** The queue by pool, and the neighbours of a job in its queue. */

import type { JobView, PoolView, QueueItem } from '../../state/wire';

/** The job id of a queue entry; null if the caller may not know it. */
export function jobOf(item: QueueItem): string | null {
  return item.task_id ?? (item.experiment_id === null ? null : String(item.experiment_id));
}

/** The id for `jobs/…/why`: of the trial, else of the job. */
export function whyOf(item: QueueItem): string | null {
  return item.trial_id === null ? jobOf(item) : `trial-${item.trial_id}`;
}

/** Queue entries by pool. Pools keep the operator's order where it is known; entries keep theirs. */
export function byPool(items: readonly QueueItem[], pools: readonly PoolView[] = []): { name: string; items: QueueItem[] }[] {
  const found = new Map<string, QueueItem[]>(pools.map(pool => [pool.name, []]));
  for (const item of items) found.set(item.pool, [...(found.get(item.pool) ?? []), item]);
  return [...found].map(([name, own]) => ({ name, items: own })).filter(one => one.items.length > 0);
}

/** Entries of a queue that the master sends at most; a shorter queue is complete. */
const MOST_SENT = 200;

/**
 * How many entries a pool's queue has: of a long `queue` (of all pools) the master sends only the first ones, and the
 * pool knows more. Of a short one it would only repeat entries that have left: it is read less often than the queue.
 */
export function allOf(pool: PoolView | undefined, items: readonly QueueItem[], queue: readonly QueueItem[]): number {
  return queue.length < MOST_SENT ? items.length : Math.max(pool?.tasks_waiting ?? 0, items.length);
}

/** How many entries the queues of all pools have. */
export function allWaiting(items: readonly QueueItem[], pools: readonly PoolView[]): number {
  const names = new Set([...pools.map(pool => pool.name), ...items.map(item => item.pool)]);
  return [...names].reduce(
    (sum, name) => sum + allOf(pools.find(pool => pool.name === name), items.filter(item => item.pool === name), items), 0
  );
}

/** Whether a pool has one queue per priority. */
export function ranked(pool: PoolView | undefined): boolean {
  return pool === undefined || pool.scheduler === 'priority';
}

export interface Neighbours {
  /** The next job ahead, with which this one may swap; null if there is none. */
  ahead: JobView | null;
  behind: JobView | null;
}

/**
 * The neighbours with which a job may swap positions. Administrators move any job; users only their own, past each other.
 */
export function neighbours(jobs: readonly JobView[], id: string, byPriority: boolean, all: boolean): Neighbours {
  const me = jobs.find(job => job.id === id);
  if (!me) return { ahead: null, behind: null };
  const line = jobs
    .filter(job => job.pool === me.pool && (!byPriority || job.priority === me.priority))
    .filter(job => job.id === id || (all ? !/^place /.test(job.id) : job.mine))
    .sort((a, b) => a.order - b.order);
  const at = line.indexOf(me);
  return { ahead: line[at - 1] ?? null, behind: line[at + 1] ?? null };
}

const WORDS: Record<string, string> = { priority: 'by priority', fair_share: 'fair share', round_robin: 'round robin' };

/** The scheduler of a pool in words. */
export function schedulerWord(pool: PoolView): string {
  const word = WORDS[pool.scheduler] ?? pool.scheduler;
  return pool.scheduler === 'priority' && pool.preemption ? `${word}, with preemption` : word;
}

/** A time in the future: `less than a minute`, `5 min`, `1 h 59 min`, `3 d 4 h`. */
export function formatUntil(seconds: number): string {
  const minutes = Math.floor(seconds / 60);
  if (minutes < 1) return 'less than a minute';
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  const days = Math.floor(hours / 24);
  return hours % 24 ? `${days} d ${hours % 24} h` : `${days} d`;
}

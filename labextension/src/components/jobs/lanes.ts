/** The queue by pools, and what stands beside a job in its line. */

import type { JobView, PoolView, QueueItem } from '../../state/wire';

/** What the routes of jobs call the job of something that waits; null: it is not told. */
export function jobOf(item: QueueItem): string | null {
  return item.task_id ?? (item.experiment_id === null ? null : String(item.experiment_id));
}

/** What `jobs/…/why` is asked for: a trial alone, else its job. */
export function whyOf(item: QueueItem): string | null {
  return item.trial_id === null ? jobOf(item) : `trial-${item.trial_id}`;
}

/** What waits, by pool: pools in the operator's order where that is known, else as they come; items in theirs. */
export function byPool(items: readonly QueueItem[], pools: readonly PoolView[] = []): { name: string; items: QueueItem[] }[] {
  const found = new Map<string, QueueItem[]>(pools.map(pool => [pool.name, []]));
  for (const item of items) found.set(item.pool, [...(found.get(item.pool) ?? []), item]);
  return [...found].map(([name, own]) => ({ name, items: own })).filter(one => one.items.length > 0);
}

/** How many wait in a pool: the master sends only the first of them. The pool may have been asked for before the queue. */
export function allOf(pool: PoolView | undefined, items: readonly QueueItem[]): number {
  return Math.max(pool?.tasks_waiting ?? 0, items.length);
}

/** How many wait in all pools. */
export function allWaiting(items: readonly QueueItem[], pools: readonly PoolView[]): number {
  const names = new Set([...pools.map(pool => pool.name), ...items.map(item => item.pool)]);
  return [...names].reduce(
    (sum, name) => sum + allOf(pools.find(pool => pool.name === name), items.filter(item => item.pool === name)), 0
  );
}

/** Whether a pool's jobs stand in one line for each priority. */
export function ranked(pool: PoolView | undefined): boolean {
  return pool === undefined || pool.scheduler === 'priority';
}

export interface Beside {
  /** The job ahead of which this one may be put; null: there is none. */
  ahead: JobView | null;
  behind: JobView | null;
}

/**
 * The neighbours with which a job may change places. Administrators move any job; others only among their own, and what
 * stands between them stays where it is.
 */
export function beside(jobs: readonly JobView[], id: string, byPriority: boolean, all: boolean): Beside {
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

/** How a pool is scheduled, for people. */
export function schedulerWord(pool: PoolView): string {
  const word = WORDS[pool.scheduler] ?? pool.scheduler;
  return pool.scheduler === 'priority' && pool.preemption ? `${word}, with preemption` : word;
}

/** A time to come: `less than a minute`, `5 min`, `1 h 59 min`, `3 d 4 h`. */
export function formatUntil(seconds: number): string {
  const minutes = Math.floor(seconds / 60);
  if (minutes < 1) return 'less than a minute';
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  const days = Math.floor(hours / 24);
  return hours % 24 ? `${days} d ${hours % 24} h` : `${days} d`;
}

import { screen, within } from '@testing-library/react';
import { expect, test } from 'vitest';

import type { PoolView } from '../../state/wire';
import { show } from '../../testing/app';
import { overview, waiting } from '../../testing/fixtures';
import { Queue } from './Queue';

function pool(name: string, tasks_waiting: number): PoolView {
  return {
    name, description: '', scheduler: 'priority', preemption: false, fitting: 'best', heterogeneous: false, priority: 42, patience: 0,
    share_by: 'user', usage_half_life: null, min_run: null, evict_after: null, price: 0,
    slots_per_device: 1, enforces: [], elastic: false, takes: [], agents: 1, agents_away: 0, agents_closed: 0, slots_total: 2, slots_used: 1, tasks_running: 1,
    tasks_waiting, slots_waiting: tasks_waiting, batch: null
  };
}

const few = [waiting(1, { pool: 'fair' }), waiting(2, { pool: 'fair' }), waiting(1, { pool: 'prio', allocation_id: 'p' })];
const pools = { items: [pool('fair', 250), pool('prio', 0)] };
const answers = { overview: overview({ queue: few }), pools };

test('of a long queue it says how many wait in a pool, not how many of them the master sent', async () => {
  const fair = Array.from({ length: 199 }, (_, i) => waiting(i + 1, { pool: 'fair' }));
  show(<Queue filter="" />, { overview: overview({ queue: [...fair, few[2]!] }), pools });
  const list = await screen.findByRole('list', { name: 'Queue' });
  expect(await within(list).findByText('250 queued')).toBeTruthy();
  expect(within(list).getByText('1 queued')).toBeTruthy();
  expect(list.textContent).toContain('and 51 more');
});

test('of a short queue, which is complete, it counts no entry twice that has left since the pool was read', async () => {
  show(<Queue filter="" />, answers);
  const list = await screen.findByRole('list', { name: 'Queue' });
  expect(await within(list).findByText('2 queued')).toBeTruthy();
  expect(list.textContent).not.toContain('more');
});

test('with a filter the queue counts what was found', async () => {
  show(<Queue filter="fair" />, answers);
  const list = await screen.findByRole('list', { name: 'Queue' });
  expect(await within(list).findByText('2 queued')).toBeTruthy();
  expect(list.textContent).not.toContain('more');
});

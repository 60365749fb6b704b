import { screen, waitFor, within } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { beforeEach, expect, test } from 'vitest';

import type { JobView, PoolView, QuotaView } from '../../state/wire';
import { show, type Shown } from '../../testing/app';
import { agent, NOW, overview, waiting } from '../../testing/fixtures';
import { Nodes, Queue as HubQueue, Quotas } from '../admin';
import { Panel } from '../panel';
import { neighbours, byPool, formatUntil, whyOf } from './lanes';

const HOSTILE = '<img src=x onerror="window.hurt=1">\u202e';
const ADMIN = { name: 'ada', scopes: ['custom:detlab:admin'], admin: true };

function job(id: string, order: number, over: Partial<JobView> = {}): JobView {
  return {
    shortened: [],
    id, kind: 'experiment', name: `search ${id}`, owner: 'ada', mine: true, pool: 'default', state: 'queued', order, priority: 42,
    weight: 1, max_slots: null, slots_held: 0, slots_wanted: 1, tasks_waiting: 1, submitted_at: NOW, moved: false, reason: '',
    estimated_start: null, ...over
  };
}

function pool(name: string, over: Partial<PoolView> = {}): PoolView {
  return {
    name, description: '', scheduler: 'priority', preemption: false, fitting: 'best', heterogeneous: false, priority: 42, patience: 0,
    share_by: 'user', usage_half_life: null, min_run: null, evict_after: null, price: 0,
    slots_per_device: 1, enforces: [], elastic: false, takes: [], agents: 1, agents_away: 0, agents_closed: 0, slots_total: 2, slots_used: 1, tasks_running: 1,
    tasks_waiting: 1, slots_waiting: 1, batch: null, ...over
  };
}

function quota(over: Partial<QuotaView> = {}): QuotaView {
  return { kind: 'user', name: 'ada', slots: 4, held: 4, waiting: 2, set_by: 'root', set_at: NOW, ...over };
}

const why = {
  job: job('2', 2), waiting: 1,
  items: [{
    trial_id: 11, task_id: null, slots: 1, pool: 'default', place: 2, ahead: 1, waiting_since: NOW, reason: 'no_free_slots',
    detail: `0 of 4 free ${HOSTILE}`, hints: [{ change: 'slots', value: '1', text: 'would start now with 1 slot' }],
    estimated_start: NOW + 7300
  }]
};
const answers = {
  'jobs/trial-11/why': why, 'POST jobs/2': job('2', 1), pools: { items: [pool('default'), pool('fair', { scheduler: 'fair_share' })] },
  jobs: { items: [job('1', 1), job('2', 2), job('place 3', 3, { mine: false, owner: 'another user', name: '' })] }
};

function panel(over = {}, more: Record<string, unknown> = {}): Shown {
  return show(<Panel />, { overview: overview(over), ...answers, ...more });
}

beforeEach(() => localStorage.clear());

test('a job changes places with the next one that one may move; what nobody is told of is none of them', () => {
  const line = [job('1', 1), job('b', 2, { mine: false, owner: 'ben' }), job('2', 3), job('3', 4, { priority: 50 }), job('place 5', 5, { mine: false })];
  const ids = (id: string, ranked: boolean, all: boolean): (string | undefined)[] => {
    const { ahead, behind } = neighbours(line, id, ranked, all);
    return [ahead?.id, behind?.id];
  };
  expect(ids('2', true, false)).toEqual(['1', undefined]);
  expect(ids('2', true, true)).toEqual(['b', undefined]);
  expect(ids('2', false, false)).toEqual(['1', '3']);
  expect(ids('3', false, true)).toEqual(['2', undefined]);
  expect(ids('gone', false, true)).toEqual([undefined, undefined]);
});

test('what waits is told by pool, in the order of the pools', () => {
  const items = [waiting(1, { pool: 'b' }), waiting(1, { pool: 'a' }), waiting(2, { pool: 'b' })];
  expect(byPool(items).map(one => [one.name, one.items.length])).toEqual([['b', 2], ['a', 1]]);
  expect(byPool(items, [pool('a'), pool('empty'), pool('b')]).map(one => one.name)).toEqual(['a', 'b']);
  expect(whyOf(waiting(1, { trial_id: null, experiment_id: null, task_id: 'shell-1' }))).toBe('shell-1');
  expect(whyOf(waiting(1, { trial_id: null, experiment_id: null }))).toBeNull();
});

test('a time to come is told in words', () => {
  expect([20, 300, 7200, 7300, 3 * 86_400 + 3600].map(formatUntil)).toEqual(['less than a minute', '5 min', '2 h', '2 h 1 min', '3 d 1 h']);
});

test('the reason opens the evidence, the estimated start, and the ways to change the place', async () => {
  const shown = panel();
  await userEvent.click(await screen.findByRole('button', { name: 'needs 1 slot' }));
  const entry = screen.getByRole('list', { name: 'Queue' });
  await within(entry).findByText('would start now with 1 slot');
  expect(entry.textContent).toContain('<img src=x');
  expect(entry.querySelector('img')).toBeNull();
  expect(entry.textContent).toContain('2 in pool default, behind 1 task of other jobs');
  expect(entry.textContent).toContain('in 2 h 1 min at the latest');
  await userEvent.click(await within(entry).findByRole('button', { name: 'Ahead of search 1' }));
  await waitFor(() => expect(shown.api.bodies).toContainEqual({ ahead_of: '1' }));
  expect(within(entry).getByRole('button', { name: 'Move behind' }).getAttribute('aria-disabled')).toBe('true');
  const field = within(entry).getByLabelText(/Priority/);
  await userEvent.clear(field);
  await userEvent.type(field, '7{Enter}');
  await waitFor(() => expect(shown.api.bodies).toContainEqual({ priority: 7 }));
});

test('the hub page’s queue does not say a name that is the kind twice', async () => {
  const item = waiting(1, { kind: 'notebook', name: 'notebook', experiment_id: null, trial_id: null, task_id: 'notebook-1' });
  show(<HubQueue />, { overview: overview({ queue: [item] }), ...answers, 'jobs/notebook-1/why': why });
  const sheet = await screen.findByRole('region', { name: 'Queue' });
  await userEvent.click(within(sheet).getByRole('button', { name: 'needs 1 slot' }));
  await within(sheet).findByText('would start now with 1 slot');
  expect(sheet.textContent?.match(/notebook/g)).toHaveLength(1);
});

test('of somebody else’s only place, size and age are told, and alike neighbours are one entry', async () => {
  const other = { mine: false, owner: 'another user', name: '', experiment_id: null, trial_id: null, reason: '' };
  panel({ queue: [waiting(1, { ...other, allocation_id: 'a' }), waiting(2, { ...other, allocation_id: 'b' })] });
  const queue = await screen.findByRole('list', { name: 'Queue' });
  expect(await within(queue).findByText('1–2')).toBeTruthy();
  expect(queue.textContent).toContain('2 trials');
  expect(within(queue).queryByRole('button')).toBeNull();
});

test('an administrator drains a node from the panel, and sees what an elastic pool lacks', async () => {
  const error = { time: NOW, times: 3, doing: 'launch', trouble: 'credentials', message: 'no credentials', hint: 'set them' };
  const cloud = {
    name: 'cloud', min_instances: 0, max_instances: 2, wanted: 1, held_back: 'after an error it is tried again in 30 s', errors: [error],
    instances: [{ id: 'i-1', agent_id: 'cloud-1', state: 'pending', agent_state: 'lost', launched_at: NOW - 70, spot: false }]
  };
  const shown = panel({ me: ADMIN }, {
    pools: { items: [pool('default'), pool('cloud', { elastic: true, agents: 0 })] }, instances: { items: [cloud] },
    'POST agents/node-1/drain': agent('node-1', { enabled: false, mode: 'draining' })
  });
  const nodes = await screen.findByRole('list', { name: 'Nodes' });
  await within(nodes).findByText(/Launching an instance failed: no credentials/);
  expect(nodes.textContent).toContain('cloud-1 is launching: pending for 1 min');
  expect(nodes.textContent).toContain('1 more agent requested: after an error');
  await userEvent.click(screen.getByRole('button', { name: 'Actions of node node-1' }));
  await userEvent.click(screen.getByRole('menuitem', { name: 'Drain …' }));
  await within(nodes).findByText('draining');
  expect(shown.done).toContain('confirm Drain node-1?');
});

test('who does not administrate steers no node and asks for no instances', async () => {
  const shown = panel({}, { pools: { items: [pool('default'), pool('cloud', { elastic: true, agents: 0 })] } });
  await screen.findByText(/No agents now/);
  expect(screen.queryByRole('button', { name: /Actions of node/ })).toBeNull();
  expect(shown.api.asked.filter(path => /instances|GET jobs$/.test(path))).toEqual([]);
});

test('of a pool that a batch system places, the panel and the hub page tell what its nodes do', async () => {
  const partitions = [
    { name: 'gpu', default: true, up: true, time_limit: '2-00:00:00', idle: 1, allocated: 3, other: 2 },
    { name: HOSTILE, default: false, up: false, time_limit: '', idle: 0, allocated: 0, other: 1 }
  ];
  const batch = { name: 'Slurm', slots: 24, slots_per_node: 4, partitions };
  const pools = { items: [pool('slurm', { batch, slots_total: 24, slots_used: 6 })] };
  const speaker = agent('login-1', { pool: 'slurm', slots: [] });
  const first = panel({ agents: [speaker] }, { pools });
  const nodes = await screen.findByRole('list', { name: 'Nodes' });
  await within(nodes).findByText(/Slurm places these tasks in its own queue/);
  expect(nodes.textContent).toContain('Partition gpu (default): 1 node idle, 3 in use, 2 unavailable, time limit 2-00:00:00');
  expect(nodes.textContent).toContain('it takes no jobs');
  expect(nodes.textContent).toContain('6/24 in use or queued');
  expect(nodes.textContent).not.toContain('0/0 slots free');
  expect(nodes.querySelector('img')).toBeNull();
  first.unmount();
  show(<Nodes title="Nodes" />, { overview: overview({ agents: [speaker] }), pools });
  expect(await screen.findAllByText(/Slurm places these tasks/)).toHaveLength(2);
  expect(screen.queryByText(/only tasks that need none run here/)).toBeNull();
});

test('a quota and its use are in the panel and above the hub page’s queue', async () => {
  const first = panel({}, { quotas: { items: [quota({ name: 'ada' }), quota({ kind: 'group', name: HOSTILE, held: 1 })] } });
  const list = await screen.findByRole('list', { name: 'Quotas' });
  expect(list.textContent).toContain('you4 of 4 slots in use, 2 queued');
  expect(list.querySelector('img')).toBeNull();
  first.unmount();
  show(<HubQueue />, { overview: overview(), quotas: { items: [quota()] } });
  await screen.findByText('Your quota: 4 of 4 slots in use, 2 queued');
});

test('an administrator sets and removes quotas', async () => {
  const name = 'vision & co';
  const shown = show(<Quotas />, {
    overview: overview({ me: ADMIN }), 'GET quotas': { items: [quota({ kind: 'group', name })] }, 'PUT quotas': { items: [] },
    'DELETE quotas': { items: [] }
  });
  await screen.findByRole('region', { name: 'Quotas' });
  await userEvent.type(screen.getByLabelText('Name'), 'ben');
  await userEvent.type(screen.getByLabelText('Slots'), '-1');
  expect(screen.getByRole('button', { name: 'Set quota' }).getAttribute('aria-disabled')).toBe('true');
  await userEvent.clear(screen.getByLabelText('Slots'));
  await userEvent.type(screen.getByLabelText('Slots'), '3{Enter}');
  await waitFor(() => expect(shown.api.bodies).toContainEqual({ kind: 'user', name: 'ben', slots: 3 }));
  await userEvent.click(screen.getByRole('button', { name: /^Remove …/ }));
  await waitFor(() => expect(shown.api.asked).toContain('DELETE quotas?kind=group&name=vision%20%26%20co&what=slots'));
});

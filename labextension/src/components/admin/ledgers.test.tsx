import { screen, waitFor, within } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { expect, test } from 'vitest';

import { ApiError } from '../../state/api';
import type { MasterLogLine, PoolView, UsageRow } from '../../state/wire';
import { show } from '../../testing/app';
import { Audit, placeOf } from './Audit';
import { AllWork } from './AllWork';
import { experiment, holding, HOSTILE, overview, task, waiting } from './fixtures';
import { Limits } from './Limits';
import { MasterLog } from './MasterLog';
import { summaryOf, Queue } from './Queue';
import { Quotas } from './Quotas';
import { Service } from './Service';
import { axis, byPerson, daysBetween, MOST_BANDS, OTHERS, stack } from './usage/slothours';
import { Tokens } from './Tokens';
import { Usage } from './usage/Usage';

const row = (day: string, user: string, hours: number, kind = 'trial', cost = 0): UsageRow => ({ day, user, kind, slot_hours: hours, cost });

test('slot-hours are stacked by day and person, the small ones together', () => {
  const rows = [row('2026-02-27', 'ada', 2), row('2026-03-01', 'ada', 1, 'command'), row('2026-03-01', 'ben', 5)];
  const found = stack(rows, '2026-02-27', '2026-03-01');
  expect(found.days).toEqual(['2026-02-27', '2026-02-28', '2026-03-01']);
  expect(found.bands).toEqual(['ben', 'ada']);
  expect(found.hours).toEqual([[0, 0, 5], [2, 0, 1]]);
  expect(found.totals).toEqual([2, 0, 6]);
  const many = Array.from({ length: MOST_BANDS + 3 }, (_, i) => row('2026-03-01', `u${i}`, i + 1));
  const crowd = stack(many, '2026-03-01', '2026-03-01');
  expect(crowd.bands).toHaveLength(MOST_BANDS + 1);
  expect(crowd.bands.at(-1)).toBe(OTHERS);
  expect(crowd.hours.flat().reduce((a, b) => a + b)).toBe(crowd.totals[0]);
});

test('days cross the ends of months and of summer time', () => {
  expect(daysBetween('2026-03-28', '2026-03-31')).toEqual(['2026-03-28', '2026-03-29', '2026-03-30', '2026-03-31']);
  expect(daysBetween('2026-03-02', '2026-03-01')).toEqual([]);
});

test('the axis ends at a round number above the highest bar', () => {
  for (const most of [0, 0.003, 0.9, 1, 7, 24, 99.5, 1234]) {
    const { top, marks } = axis(most);
    expect(top).toBeGreaterThanOrEqual(most);
    expect(marks.length).toBeLessThanOrEqual(6);
    expect(marks.at(-1)).toBeCloseTo(top);
  }
});

test('shares add up', () => {
  const people = byPerson([row('2026-03-01', 'ada', 3), row('2026-03-01', 'ada', 3, 'command'), row('2026-03-01', 'ben', 2)]);
  expect(people.map(one => [one.user, one.hours, one.share])).toEqual([['ada', 6, 0.75], ['ben', 2, 0.25]]);
});

test('usage shows a chart and a table, and asks for other days', async () => {
  const today = Date.parse('2026-03-10T12:00:00Z');
  const answer = { first: '2026-02-09', last: '2026-03-10', items: [row('2026-03-09', HOSTILE, 4), row('2026-03-10', 'ben', 1)] };
  const shown = show(<Usage today={today} />, { overview: overview(), usage: answer });
  const table = await screen.findByRole('region', { name: 'Slot-hours by user' });
  expect(within(table).getByText(HOSTILE)).toBeTruthy();
  expect(within(table).getByText('80 %')).toBeTruthy();
  expect(screen.getByRole('img').getAttribute('aria-label')).toContain('most on 2026-03-09');
  expect(shown.api.asked).toContain('GET usage?first=2026-02-09&last=2026-03-10');
  await userEvent.click(screen.getByRole('button', { name: '7 days' }));
  await waitFor(() => expect(shown.api.asked).toContain('GET usage?first=2026-03-04&last=2026-03-10'));
});

test('costs are beside the hours where something has a price', async () => {
  const items = [row('2026-03-01', 'ada', 4, 'trial', 10), row('2026-03-01', 'ada', 1, 'command', 0.5), row('2026-03-01', 'ben', 1)];
  show(<Usage />, { overview: overview(), usage: { first: '2026-03-01', last: '2026-03-02', items, currency: 'EUR' } });
  const table = await screen.findByRole('region', { name: 'Slot-hours by user' });
  expect(within(table).getByText('Cost (EUR)')).toBeTruthy();
  expect(within(table).getAllByText('10.50')).toHaveLength(2);
});

test('no usage says so', async () => {
  show(<Usage />, { overview: overview(), usage: { first: '2026-03-01', last: '2026-03-02', items: [] } });
  expect(await screen.findByText('No slots were used in this period.')).toBeTruthy();
});

test('a token is revoked after a question, and the list asked for again', async () => {
  const items = [
    { id: 'abc123abc123', kind: 'agent', subject: 'node-1', created_at: 1e9, expires_at: null },
    { id: 'def456def456', kind: 'task', subject: '12.uuid.1', created_at: 1e9, expires_at: 2e9 }
  ];
  const shown = show(<Tokens />, { overview: overview(), tokens: () => ({ items }), 'DELETE tokens/abc123abc123': items[0] });
  await userEvent.click(await screen.findByRole('button', { name: 'Revoke … abc123abc123' }));
  await waitFor(() => expect(shown.api.asked.filter(one => one === 'GET tokens')).toHaveLength(2));
  expect(shown.done).toContain('confirm Revoke the node token abc123abc123?');
  await userEvent.selectOptions(screen.getByLabelText('Kind'), 'task');
  expect(screen.queryByText('abc123abc123')).toBeNull();
});

test('the audit log pages and filters by the master', async () => {
  const item = (id: number) => ({ id, time: 1e9, actor: 'ada', action: 'task.create', subject: 'task command-1', detail: HOSTILE });
  const shown = show(<Audit />, {
    overview: overview(),
    'GET audit?limit=100': { items: [item(9), item(8)], next: 8 },
    'GET audit?limit=100&before=8': { items: [item(7)], next: null },
    'GET audit?limit=100&actor=ada': { items: [item(9)], next: null }
  });
  expect(await screen.findAllByText(HOSTILE)).toHaveLength(2);
  await userEvent.click(screen.getByRole('button', { name: 'Older' }));
  await waitFor(() => expect(screen.getAllByText(HOSTILE)).toHaveLength(3));
  expect(screen.queryByRole('button', { name: 'Older' })).toBeNull();
  await userEvent.click(screen.getAllByRole('button', { name: 'ada' })[0]!);
  await waitFor(() => expect(shown.api.asked).toContain('GET audit?limit=100&actor=ada'));
  await userEvent.type(screen.getByLabelText('User'), 'x');
  expect(await screen.findByText('no answer for audit?limit=100&actor=adax')).toBeTruthy();
});

test('limits tell their value and who is near them', async () => {
  const limit = { name: 'queued_jobs', setting: 'queued_jobs', value: 40, most: 40, unit: 'jobs', about: 'Jobs of a user', users: [] };
  const mallory = { user: HOSTILE, used: 40, hits: 12, last_hit: 1 };
  show(<Limits />, {
    overview: overview(),
    'GET limits': {
      items: [
        { ...limit, users: [mallory] },
        { ...limit, name: 'upload', value: null, most: null, about: 'Bytes of a day', users: [] }
      ],
      exempt_users: ['ada']
    }
  });
  expect(await screen.findByText(HOSTILE)).toBeTruthy();
  expect(screen.getByText(/40 of 40, hit 12 times/)).toBeTruthy();
  expect(screen.getByText('40 jobs')).toBeTruthy();
  expect(screen.getAllByText('none').length).toBe(2);
  expect(screen.getByText(/Exempt:.*ada/)).toBeTruthy();
});

test('the log shows refused access alone', async () => {
  const refused = { id: 3, time: 1, actor: 'mallory', action: 'access.refused', subject: 'GET trials/7', detail: '12 times; not theirs' };
  show(<Audit />, {
    overview: overview(),
    'GET audit?limit=100': { items: [], next: null },
    'GET audit?limit=100&action=access.refused': { items: [refused], next: null }
  });
  expect(await screen.findByText('The audit log is empty.')).toBeTruthy();
  await userEvent.click(screen.getByLabelText('Refused requests only'));
  expect(await screen.findByText('GET trials/7')).toBeTruthy();
  expect(screen.getByText('12 times; not theirs')).toBeTruthy();
});

test('subjects of the log lead to their views', () => {
  expect(placeOf('experiment 12')).toEqual({ kind: 'experiment', id: 12 });
  expect(placeOf('task command-1')).toEqual({ kind: 'task', id: 'command-1' });
  expect(placeOf('experiment x')).toBeNull();
  expect(placeOf('agent node-1')).toBeNull();
});

test('the work of all users, with the slots held by each, filtered by user and word', async () => {
  const work = {
    experiments: [experiment(), experiment({ id: 13, owner: 'ben', name: 'mnist', state: 'COMPLETED' })],
    tasks: [task({ name: HOSTILE })], queue: [waiting()], agents: [holding('node-1', { '0': '12.u.1', '1': '12.v.1' })]
  };
  show(<AllWork />, { overview: overview(work) });
  const people = await screen.findByRole('region', { name: 'Users' });
  expect(within(people).getAllByRole('row').map(one => one.textContent)).toEqual([
    'UserSlots heldExperimentsTasksWaiting', 'ada2101', 'ben0010'
  ]);
  const table = screen.getByRole('grid', { name: "All users' work" });
  expect(table.textContent).toContain('digits');
  expect(table.textContent).toContain(HOSTILE);
  expect(table.textContent).not.toContain('mnist');
  await userEvent.click(screen.getByLabelText('Show ended'));
  expect(table.textContent).toContain('mnist');
  await userEvent.click(within(people).getByRole('button', { name: 'ada' }));
  expect(table.textContent).not.toContain('mnist');
  await userEvent.type(screen.getByRole('searchbox'), 'nothing like it');
  expect(await screen.findByText('No work matches the filter.')).toBeTruthy();
});

test('the queue tells places, priorities and reasons', async () => {
  const second = waiting({
    allocation_id: 'b', place: 2, mine: true, task_id: 'command-1', trial_id: null, kind: 'command', priority: 7, slots: 1, reason: ''
  });
  show(<Queue />, { overview: overview({ queue: [waiting(), second] }) });
  const table = await screen.findByRole('region', { name: 'Queue' });
  const head = within(table).getAllByRole('columnheader').map(one => one.textContent);
  const column = (name: string): (string | null)[] => within(table).getAllByRole('row').slice(1)
    .map(row => within(row).getAllByRole('cell')[head.indexOf(name)]!.textContent);
  expect(column('Position')).toEqual(['1', '2']);
  expect(column('Owner')).toEqual(['ada', 'you']);
  expect(column('Slots')).toEqual(['4', '1']);
  expect(column('Priority')).toEqual(['42', '7']);
  expect(column('Why')).toEqual(['▸needs 4 slots, 2 are free', '▸not considered yet']);
});

test('the queue tells pools and weights only where they differ', async () => {
  const heads = (): (string | null)[] => screen.getAllByRole('columnheader').map(one => one.textContent);
  const { unmount } = show(<Queue />, { overview: overview({ queue: [waiting(), waiting({ allocation_id: 'b' })] }) });
  await screen.findByRole('region', { name: 'Queue' });
  expect(heads()).not.toContain('Pool');
  expect(heads()).not.toContain('Weight');
  unmount();
  const other = waiting({ allocation_id: 'b', pool: HOSTILE, weight: 2.5 });
  show(<Queue />, { overview: overview({ queue: [waiting(), other] }) });
  const table = await screen.findByRole('region', { name: 'Queue' });
  expect(heads()).toEqual(expect.arrayContaining(['Pool', 'Weight']));
  expect(within(table).getByText('default')).toBeTruthy();
  expect(table.textContent).toContain('2.5');
});

test('the queue says how many wait, not how many of them the master sent', async () => {
  const pool = { name: 'default', scheduler: 'priority', preemption: false, tasks_waiting: 1234 } as PoolView;
  const own = Array.from({ length: 200 }, (_, i) => waiting({ allocation_id: `m${i}`, mine: true }));
  const few = [waiting(), ...own.slice(0, 2)];
  const others = Array.from({ length: 198 }, (_, i) => waiting({ allocation_id: `o${i}` }));
  show(<Queue />, { overview: overview({ queue: [...others, ...own.slice(0, 2)] }), pools: { items: [pool] } });
  expect(await screen.findByText('1234 requests queued, 2 of them yours')).toBeTruthy();
  expect(summaryOf(own, [pool])).toBe('1234 requests queued, 200 or more of them yours');
  expect(summaryOf(few, [pool])).toBe('3 requests queued, 2 of them yours'); // complete: the pool was read before
});

test('an empty queue says what is free', async () => {
  show(<Queue />, { overview: overview() });
  expect(await screen.findByText(/2 of 4 slots free/)).toBeTruthy();
});

test('the service names unhealthy components, and a failed request can be tried again', async () => {
  let refuse = true;
  const view = { ok: false, version: '0.1.0', started_at: 1e9, items: [{ name: 'hub', ok: false, detail: HOSTILE }] };
  show(<Service />, {
    overview: overview(), service: () => (refuse ? new ApiError(503, { code: 'x', message: 'not now' }) : view)
  });
  await screen.findByText('not now');
  refuse = false;
  await userEvent.click(screen.getByRole('button', { name: 'Try again' }));
  expect(await screen.findByText('1 component unhealthy.')).toBeTruthy();
  expect(screen.getByText(HOSTILE)).toBeTruthy();
});

test('caps of cost are listed with what is used of them, as text', async () => {
  const cap = { cost: 500, used: 12.5, reached: false, set_by: 'root', set_at: 1e9 };
  const costs = [{ ...cap, kind: 'user', name: '<img src=x onerror=alert(1)>' }, { ...cap, kind: 'experiment', name: '12', used: 500, reached: true }];
  const { container } = show(<Quotas />, { overview: overview(), quotas: { items: [], storage: [], workspaces: [], costs, currency: 'EUR' }, limits: { items: [], exempt_users: [] } });
  const table = await screen.findByRole('region', { name: 'Caps of cost' });
  expect(table.textContent).toContain('Cap (EUR)');
  expect(table.textContent).toContain('<img src=x');
  expect(within(table).getByText('500.00', { selector: 'b' }).title).toBe('It is reached');
  expect(within(table).getByRole('button', { name: 'experiment 12' })).toBeTruthy();
  expect(container.querySelector('img')).toBeNull();
  expect(screen.getByText('No quotas of slots.')).toBeTruthy();
});

test('the master log has its newest lines, follows, and asks for a level and a text', async () => {
  const line = (id: number, text: string, level = 'info'): MasterLogLine => ({ id, at: 1e9 + id, level, logger: 'detlab_hub.web', text });
  const shown = show(<MasterLog />, {
    overview: overview(),
    'master/logs?limit=1000&level=info': { items: [line(7, HOSTILE), line(8, 'Traceback\n  at once', 'error')], last: 8, dropped: 0 },
    'master/logs?limit=1000&level=info&after=8': { items: [line(9, 'and more')], last: 9, dropped: 0 },
    'master/logs?limit=1000&level=info&after=9': { items: [], last: 2, dropped: 0 },
    'master/logs?limit=1000&level=info&after=0': { items: [line(1, 'begun anew')], last: 2, dropped: 0 },
    'master/logs?limit=1000&level=warning&search=hook': { items: [], last: 2, dropped: 0 }
  });
  const log = await screen.findByRole('log', { name: 'The master\'s log' });
  expect(log.textContent).toContain('ERROR detlab_hub.web: Traceback\n  at once');
  expect(document.querySelector('main img')).toBeNull();
  await waitFor(() => expect(log.textContent).toContain('and more'), { timeout: 5000 });
  await screen.findByText(/The master has been restarted/, undefined, { timeout: 5000 });
  await waitFor(() => expect(log.textContent).toContain('begun anew'));
  expect(log.textContent).not.toContain('and more');
  await userEvent.click(screen.getByRole('button', { name: 'Follow' }));
  await userEvent.selectOptions(screen.getByRole('combobox', { name: 'Level' }), 'warning');
  await userEvent.type(screen.getByRole('searchbox'), 'hook');
  await screen.findByText('No line fits.');
  expect(shown.api.asked).toContain('GET master/logs?limit=1000&level=warning&search=hook');
}, 20_000);

import { screen, waitFor, within } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import axe from 'axe-core';
import { expect, it } from 'vitest';

import { schedule } from '../../harness/told';
import { ApiError } from '../../state/api';
import { overview, task } from '../../testing/fixtures';
import { show } from '../../testing/app';
import { cronWords, SchedulesPage } from './SchedulesPage';

const HOSTILE = '<img src=x onerror="window.hurt=1">\u202e\u001b[31m';

it('says when each runs, what became of the last run, and why one was not started, as text', async () => {
  const items = [
    schedule(1, { owner: 'ada', name: HOSTILE, skipped: 2, last_task: 'nb-1', last_task_state: 'ERROR' }),
    schedule(2, { owner: 'ada', state: 'disabled', reason: HOSTILE, next_at: null, last_task: null, last_task_state: null }),
    schedule(3, { owner: 'ben', cron: '', after_experiment: 12, next_at: null, note: 'quota of ben: 4 of 4 slots are held', noted_at: 1 })
  ];
  const { container, done } = show(<SchedulesPage />, { overview: overview(), schedules: { items, next: null } });
  const table = await screen.findByRole('region', { name: 'Schedules' });
  expect(table.textContent).toContain('Monday to Friday at 06:00');
  expect(table.textContent).toContain('Europe/Berlin');
  expect(table.textContent).toContain('⟨U+202E⟩');
  expect(table.textContent).toContain('Not started: quota of ben');
  expect(within(table).getByRole('columnheader', { name: 'Owner' })).toBeTruthy();
  expect(document.querySelector('img')).toBeNull();
  expect((await axe.run(container)).violations).toEqual([]);
  await userEvent.click(within(table).getByRole('button', { name: /failed.*nb-1/ }));
  await userEvent.click(within(table).getByRole('button', { name: 'experiment 12' }));
  expect(done.filter(one => one.startsWith('navigate'))).toEqual(['navigate {"kind":"task","id":"nb-1"}', 'navigate {"kind":"experiment","id":12}']);
});

it('pauses, resumes, runs and deletes; a refusal is told', async () => {
  const items = [schedule(1, { owner: 'ada' }), schedule(2, { owner: 'ada', state: 'paused' })];
  const { api, done } = show(<SchedulesPage />, {
    overview: overview(), schedules: { items, next: null }, 'POST schedules/1/pause': items[0], 'POST schedules/2/resume': items[1],
    'POST schedules/1/run': { task: task('nb-9'), created: true, warnings: [] }, 'POST schedules/2/run': new ApiError(409, { message: 'its run before has not ended' }), 'DELETE schedules/2': items[1]
  });
  await screen.findByRole('region', { name: 'Schedules' });
  const choose = async (id: number, item: string): Promise<void> => {
    await userEvent.click(screen.getByRole('button', { name: `Actions of schedule ${id}, nightly` }));
    await userEvent.click(screen.getByRole('menuitem', { name: item }));
  };
  await choose(1, 'Pause');
  await choose(2, 'Resume');
  await choose(2, 'Run now');
  await waitFor(() => expect(done).toContain('notify its run before has not ended'));
  await choose(1, 'Run now');
  await waitFor(() => expect(done).toContain('navigate {"kind":"task","id":"nb-9"}'));
  await choose(2, 'Delete …');
  await waitFor(() => expect(api.asked).toEqual(expect.arrayContaining(['POST schedules/1/pause', 'POST schedules/2/resume', 'DELETE schedules/2'])));
  expect(done.some(one => one.startsWith('confirm Delete schedule'))).toBe(true);
});

it('tells how one is made where there is none', async () => {
  show(<SchedulesPage />, { overview: overview(), schedules: { items: [], next: null } });
  expect((await screen.findByText('No schedules yet.')).parentElement!.textContent).toContain('det notebook run nightly.ipynb --cron');
});

it('reads the usual times, and leaves others as they are', () => {
  const words: Record<string, string> = {
    '0 6 * * 1-5': 'Monday to Friday at 06:00', '30 2 * * *': 'every day at 02:30', '*/10 * * * *': 'every 10 minutes', '5 * * * *': 'every hour at minute 5', '0 0 1 * *': 'on day 1 of every month at 00:00',
    '0 9 * * 0': 'every Sunday at 09:00', '@daily': 'every day at 00:00', '*/7 * * * *': '', '0 0 13 * fri': '', '0 6 * 1 *': '', '0 6 1 * 1': ''
  };
  expect(Object.fromEntries(Object.keys(words).map(cron => [cron, cronWords(cron)]))).toEqual(words);
});

import { act, screen, waitFor, within } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import axe from 'axe-core';
import { describe, expect, it } from 'vitest';

import { show, type Shown } from '../../testing/app';
import { experiment, overview } from '../../testing/fixtures';
import type { AlertList, AlertView } from '../../state/wire';
import { AlertBell } from './AlertBell';

const HOSTILE = '<img src=x onerror="window.hurt=1">\u202e\u001b[31m';

function alert(id: number, over: Partial<AlertView> = {}): AlertView {
  return {
    id, kind: 'completed', level: 'info', title: `experiment ${id} has completed`, text: '', experiment_id: id, trial_id: null,
    run_id: null, held_back: 0, created_at: 1, read: false, ...over
  };
}

async function bell(first: AlertList, later: AlertList = first): Promise<Shown> {
  let asked = 0;
  const answers = {
    overview: overview({ experiments: [experiment(1)] }), alerts: () => (asked++ ? later : first), 'POST alerts/read': { unread: 0 }
  };
  const shown = show(<AlertBell />, answers);
  await screen.findByRole('button', { name: /Alerts/ });
  return shown;
}

describe('the bell', () => {
  it('counts what is unread, lists it as text and marks it as read', async () => {
    const first = { items: [alert(2, { title: HOSTILE, text: HOSTILE, kind: 'alert', held_back: 3 }), alert(1, { read: true })], unread: 1, next: null };
    const { api, done, container } = await bell(first, { ...first, unread: 0, items: first.items.map(one => ({ ...one, read: true })) });
    await userEvent.click(screen.getByRole('button', { name: 'Alerts: 1 unread' }));
    const list = screen.getByRole('list', { name: 'Alerts' });
    expect(within(list).getAllByRole('listitem')).toHaveLength(2);
    expect(document.querySelector('img')).toBeNull();
    expect(list.textContent).toContain('⟨U+202E⟩');
    expect(list.textContent).toContain('3 more came too fast');
    expect((await axe.run(container)).violations).toEqual([]);
    await userEvent.click(screen.getByRole('button', { name: 'experiment 1 has completed' }));
    expect(done).toContain('navigate {"kind":"experiment","id":1}');
    expect(screen.queryByRole('list', { name: 'Alerts' })).toBeNull(); // what it opened is not under it
    expect(api.bodies).toEqual([]); // it was read already
    await userEvent.click(screen.getByRole('button', { name: 'Alerts: 1 unread' }));
    await userEvent.click(screen.getByRole('button', { name: 'Mark all as read' }));
    await screen.findByRole('button', { name: 'Alerts' });
    expect(api.bodies).toContainEqual({ upto: 2 });
    await userEvent.keyboard('{Escape}');
    expect(screen.queryByRole('list', { name: 'Alerts' })).toBeNull();
  });

  it('marks as read the one that is opened', async () => {
    const { api } = await bell({ items: [alert(3), alert(2)], unread: 2, next: null });
    await userEvent.click(screen.getByRole('button', { name: 'Alerts: 2 unread' }));
    await userEvent.click(screen.getByRole('button', { name: 'experiment 2 has completed' }));
    await waitFor(() => expect(api.bodies).toContainEqual({ ids: [2] }));
  });

  it('is closed by a click beside it, not by one in it', async () => {
    await bell({ items: [alert(1)], unread: 0, next: null });
    await userEvent.click(screen.getByRole('button', { name: 'Alerts' }));
    await userEvent.click(screen.getByRole('listitem'));
    expect(screen.getByRole('list', { name: 'Alerts' })).toBeTruthy();
    await userEvent.click(document.body);
    expect(screen.queryByRole('list', { name: 'Alerts' })).toBeNull();
  });

  it('notifies of what is new since it was opened, and of nothing older', async () => {
    const { api, done } = await bell(
      { items: [alert(1)], unread: 1, next: null }, { items: [alert(2, { level: 'error' }), alert(1)], unread: 2, next: null }
    );
    expect(done.filter(one => one.startsWith('notify'))).toEqual([]);
    await waitFor(() => expect(api.streams).not.toEqual([]));
    act(() => api.say(api.streams[0]!, { id: 9, kind: 'experiment', time: 1, experiment_id: 1, trial_id: null, task_id: null, data: experiment(1) }));
    await waitFor(() => expect(done).toContain('notify experiment 2 has completed'), { timeout: 5000 });
    expect(done.filter(one => one.startsWith('notify'))).toHaveLength(1);
  });

  it('is not there where the master has no alerts', async () => {
    show(<AlertBell />, { overview: overview({}) });
    await act(async () => { await Promise.resolve(); });
    expect(screen.queryByRole('button')).toBeNull();
  });

  it('says that it has stopped counting', async () => {
    await bell({ items: [alert(1)], unread: 100, next: null });
    expect(screen.getByRole('button', { name: 'Alerts: 99+ unread' })).toBeTruthy();
  });
});

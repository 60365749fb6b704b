/** Storage: who holds what, what a policy would delete, and what keeps a checkpoint. */

import { screen, waitFor, within } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import axe from 'axe-core';
import { describe, expect, test } from 'vitest';

import { checkpoint, experiment, HOSTILE } from '../../harness/fixtures';
import * as made from '../../harness/registry';
import { ApiError } from '../../state/api';
import type { CheckpointView } from '../../state/wire';
import { show, type Shown } from '../../testing/app';
import { NOW, overview } from '../../testing/fixtures';
import { Checkpoints, StoragePage, StorageWarning } from '.';
import { pinText } from './pins';
import { Retention } from './Retention';
import { limitWords, nearLimit } from './use';

const USAGE = (by: 'user' | 'group' | 'project' | 'experiment') => ({ [`storage/usage?by=${by}`]: made.storage(by) });

async function serious(shown: Shown): Promise<string[]> {
  const found = await axe.run(shown.container, { resultTypes: ['violations'], rules: { region: { enabled: false }, 'color-contrast': { enabled: false } } });
  return found.violations.map(one => `${one.id}: ${one.nodes[0]!.html}`);
}

describe('the page', () => {
  test('shows bars, the quota and its warning, and sums by others', async () => {
    const shown = show(<StoragePage />, { overview: overview(), ...USAGE('user'), ...USAGE('experiment') });
    const table = await screen.findByRole('region', { name: 'Storage by user' });
    expect(within(table).getAllByRole('row')[1]!.textContent).toMatch(/^alice10\.7 GiB90 % of 10\.0 GiB2461\.6 GiB24\.6 GiB$/);
    expect(within(table).getAllByRole('img')[0]!.getAttribute('aria-label')).toBe('8.2 GiB of checkpoints, 839.7 MiB of code and outputs, 1.6 GiB in the trash');
    expect(screen.getByText(/ in \d+ checkpoints, code, outputs and the trash$/)).toBeTruthy();
    expect(screen.getByText(/You use 9\.0 GiB of your 10\.0 GiB/)).toBeTruthy();
    expect(await serious(shown)).toEqual([]);
    await userEvent.click(screen.getByRole('button', { name: 'Experiment' }));
    await userEvent.click(await screen.findByRole('button', { name: /^12 · digits/ }));
    expect(shown.done).toEqual(['navigate {"kind":"experiment","id":12}']);
    expect(screen.getByText('12 more with less are not listed.')).toBeTruthy();
  });

  test('says so when nothing is stored, and when it cannot be told', async () => {
    const { api } = show(<StoragePage />, { overview: overview(), 'storage/usage': { ...made.storage('user'), items: [], warnings: [] } });
    expect(await screen.findByText('Nothing is stored yet.')).toBeTruthy();
    api.answers['storage/usage'] = new ApiError(503, { message: 'the database is being recovered' });
    await userEvent.click(screen.getByRole('button', { name: 'Group' }));
    expect(await screen.findByText('the database is being recovered')).toBeTruthy();
  });

  test('names are text', async () => {
    const { container } = show(<StoragePage />, { overview: overview(), 'storage/usage': made.storage('user', true) });
    await screen.findByRole('table');
    expect(container.querySelector('img[src], script')).toBeNull();
    expect(container.textContent).toContain('⟨U+202E⟩');
  });

  test('the warning is seen elsewhere, too, and only if there is one', async () => {
    const { done } = show(<StorageWarning />, { overview: overview(), 'storage/usage': made.storage('user') });
    await userEvent.click(await screen.findByRole('button', { name: 'Storage' }));
    expect(done).toEqual(['navigate {"kind":"storage"}']);
    const quiet = show(<StorageWarning />, { overview: overview() });
    await waitFor(() => expect(quiet.api.asked).toContain('GET storage/usage?by=user&limit=1'));
    expect(quiet.container.textContent).toBe('');
  });
});

test.each([[0, 10, false, '0 % of 10 B'], [8, 10, true, '80 % of 10 B'], [10, 10, true, 'full: 10 B of 10 B'], [0, 0, true, 'full: 0 B of 0 B'], [5, null, false, '–']] as const)(
  'of %d with a quota of %d', (used, limit, near, words) => {
    expect(nearLimit({ used, limit })).toBe(near);
    expect(limitWords({ used, limit })).toBe(words);
  }
);

const OVER = experiment({ state: 'COMPLETED', ended_at: NOW });
const GC = 'experiments/12/gc';

describe('what would be deleted', () => {
  const asked = `${GC}?save_experiment_best=2&save_trial_best=1&save_trial_latest=1`;
  const answers = {
    overview: overview(), [GC]: made.gc(), [`${GC}?save_experiment_best=0&save_trial_best=1&save_trial_latest=1`]: made.gc(),
    [asked]: made.gc(2), [`POST ${GC}`]: { ...made.gc(2), applied: true }
  };
  const open = (over: Record<string, unknown> = {}, e = OVER, why: string | null = null): Shown =>
    show(<Retention experiment={e} why={why} onClose={() => undefined} onApplied={() => undefined} />, { ...answers, ...over });

  test('begins with the policy, previews another, and applies it after a question', async () => {
    const shown = open();
    expect((await screen.findByText('8 checkpoints would go')).closest('p')!.textContent).toBe('8 checkpoints would go, 14.0 MiB freed; 4 would stay (7.0 MiB).');
    const rows = within(screen.getByRole('region', { name: 'Checkpoints' })).getAllByRole('row');
    expect(rows[1]!.textContent).toMatch(/^104280.*goesmatches no rule$/);
    expect(rows.at(-1)!.textContent).toMatch(/staysregistered: version 3 of model digits$/);
    expect(await serious(shown)).toEqual([]);
    await userEvent.clear(screen.getByLabelText('Best of the experiment'));
    await userEvent.type(screen.getByLabelText('Best of the experiment'), '2');
    expect(await screen.findByText('6 checkpoints would go')).toBeTruthy();
    await waitFor(() => expect(screen.getByRole('button', { name: 'Apply …' }).getAttribute('aria-disabled')).toBeNull());
    await userEvent.click(screen.getByRole('button', { name: 'Apply …' }));
    await waitFor(() => expect(shown.api.bodies).toEqual([{ policy: { save_experiment_best: 2, save_trial_best: 1, save_trial_latest: 1 } }]));
    expect(shown.done).toEqual(['confirm Delete 6 checkpoints?', 'notify 6 checkpoints of experiment 12 went to the trash.']);
  });

  test.each(['-1', '1.5', 'x', ''])('%j is no number of checkpoints: nothing is asked for', async text => {
    const { api } = open();
    const field = await screen.findByLabelText('Best of each trial');
    await userEvent.clear(field);
    if (text) await userEvent.type(field, text);
    expect(field.getAttribute('aria-invalid')).toBe('true');
    expect(screen.getByRole('button', { name: 'Apply …' }).getAttribute('title')).toContain('Whole numbers');
    expect(api.asked.filter(one => one.includes('best=-') || one.includes('best=x') || one.includes('best=&') || one.includes('1.5'))).toEqual([]);
  });

  test('of a running experiment only the policy is changed', async () => {
    const { api } = open({ [`POST ${GC}`]: made.gc(2) }, experiment({ state: 'ACTIVE' }));
    expect((await screen.findByRole('button', { name: 'Change the policy …' })).getAttribute('aria-disabled')).toBe('true');
    await userEvent.clear(screen.getByLabelText('Best of the experiment'));
    await userEvent.type(screen.getByLabelText('Best of the experiment'), '2');
    await screen.findByText('6 checkpoints would go');
    await waitFor(() => expect(screen.getByRole('button', { name: 'Change the policy …' }).getAttribute('aria-disabled')).toBeNull());
    await userEvent.click(screen.getByRole('button', { name: 'Change the policy …' }));
    await waitFor(() => expect(api.bodies).toHaveLength(1));
  });

  test('whoever may not change the experiment may look', async () => {
    open({}, OVER, 'Read-only: ada can allow you.');
    expect((await screen.findByRole('button', { name: 'Apply …' })).getAttribute('title')).toContain('Read-only');
  });
});

describe('the checkpoints', () => {
  const items: CheckpointView[] = [
    { ...checkpoint(2), state: 'COMPLETED' }, { ...checkpoint(8), state: 'COMPLETED' }, { ...checkpoint(3), state: 'DELETED', trash_until: NOW + 3600 }, { ...checkpoint(4), state: 'DELETED', trash_until: null },
    { ...checkpoint(6), state: 'DELETED', trash_until: NOW - 60 }
  ];
  const list = (over: Record<string, unknown> = {}, e = OVER): Shown => show(
    <Checkpoints items={items} over experiment={e} ofTrials reload={() => undefined} />, { overview: overview(), [GC]: made.gc(), ...over }
  );
  const row = (at: number): HTMLElement => screen.getByText(items[at]!.uuid).closest('li')!;

  test('say what keeps them, and which can be restored', async () => {
    const shown = list();
    await waitFor(() => expect(row(1).textContent).toContain('Kept:version 3 of model digits'));
    expect(row(0).textContent).toContain('bookmarked');
    expect(row(2).textContent).toContain('In the trash: can be restored until');
    expect([2, 3, 4].map(at => row(at).textContent!.includes('files deleted'))).toEqual([false, true, true]);
    expect(within(row(2)).getByRole('button', { name: /^Undelete/ })).toBeTruthy();
    for (const gone of [3, 4]) expect(within(row(gone)).queryByRole('button', { name: /Undelete|Register|More/ })).toBeNull();
    expect(await serious(shown)).toEqual([]);
  });

  test('are restored, bookmarked, released and deleted', async () => {
    const [two, eight, three] = items.map(item => item.uuid);
    const { api, done } = list({ [`POST checkpoints/${three}/undelete`]: items[2], [`DELETE checkpoints/${two}/bookmark`]: { items: [] }, [`PUT checkpoints/${eight}/bookmark`]: { items: [] } });
    await screen.findByText('bookmarked');
    await userEvent.click(within(row(2)).getByRole('button', { name: /^Undelete/ }));
    await userEvent.click(within(row(0)).getByRole('button', { name: /^More actions/ }));
    expect(screen.getByRole('menuitem', { name: /^Delete/ }).getAttribute('aria-disabled')).toBe('true');
    await userEvent.click(screen.getByRole('menuitem', { name: 'Remove the bookmark' }));
    await userEvent.click(within(row(1)).getByRole('button', { name: /^More actions/ }));
    await userEvent.click(screen.getByRole('menuitem', { name: 'Bookmark' }));
    await waitFor(() => expect(done).toHaveLength(3));
    expect(api.asked.filter(one => !one.startsWith('GET') && !one.startsWith('STREAM'))).toEqual([`POST checkpoints/${three}/undelete`, `DELETE checkpoints/${two}/bookmark`, `PUT checkpoints/${eight}/bookmark`]);
  });

  test('are listed also where nothing says what keeps them', async () => {
    const { api } = list({ [GC]: new ApiError(404, { message: 'no such route' }) });
    await waitFor(() => expect(api.asked).toContain(`GET ${GC}`));
    expect(row(0).textContent).not.toContain('Kept');
    await userEvent.click(within(row(0)).getByRole('button', { name: /^Register/ }));
    expect(await screen.findByRole('dialog', { name: 'Register a checkpoint' })).toBeTruthy();
  });
});

test('a pin of a kind that is not known yet is shown as it is', () => {
  expect(pinText({ kind: 'moon' as never, reason: HOSTILE.name })).toContain('moon: <script>');
  expect(pinText({ kind: 'rung', reason: '' })).toBe('on a rung of the search');
});

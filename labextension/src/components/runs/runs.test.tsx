/** Runs that no cluster started: the table, one run, deletion, and what it does with hostile names. */

import { screen, waitFor, within } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { describe, expect, it } from 'vitest';

import { ofRun } from '../../harness/artifacts';
import { run } from '../../harness/tracked';
import { show } from '../../testing/app';
import { overview } from '../../testing/fixtures';
import type { RunView } from '../../state/wire';
import { readRuns, trialOf, writeRuns } from './model';
import { RunPage } from './RunPage';
import { TrackedPage } from './TrackedPage';

const page = (items: RunView[]): unknown => ({ items, next: null });

describe('the table of runs', () => {
  it('teaches where there is none', async () => {
    show(<TrackedPage />, { overview: overview(), runs: page([]) });
    expect(await screen.findByText(/det\.init\(project=/)).toBeTruthy();
    expect(screen.getByRole('button', { name: 'Copy' })).toBeTruthy();
  });

  it('shows state, group and newest values, and opens one', async () => {
    const { done } = show(<TrackedPage />, { overview: overview(), runs: page([run(0), run(3)]) });
    const rows = within(await screen.findByRole('grid', { name: 'Runs' })).getAllByRole('row');
    expect(rows).toHaveLength(3);
    expect(rows[2]!.textContent).toContain('failed');
    await userEvent.click(within(rows[2]!).getByRole('button', { name: /^baseline 3/ }));
    expect(done.at(-1)).toContain(run(3).id);
  });

  it('asks the master for a state, and keeps it in the address', async () => {
    const { api } = show(<TrackedPage query="group=a%26b" />, { overview: overview(), runs: page([run(1)]) });
    await screen.findByRole('grid');
    expect(api.asked.some(one => one.startsWith('GET runs?group=a%26b&limit=100'))).toBe(true);
    await userEvent.selectOptions(screen.getByRole('combobox', { name: 'State' }), 'FAILED');
    await waitFor(() => expect(api.asked.some(one => one.includes('status=FAILED&group=a%26b'))).toBe(true));
  });

  it('deletes one that is mine, after a question', async () => {
    const one = run(1);
    const { api, done } = show(<TrackedPage />, { overview: overview(), runs: page([one, { ...run(2), may: 'read' }]), [`DELETE runs/${one.id}`]: {} });
    await userEvent.click(await screen.findByRole('button', { name: /^Actions of baseline 1/ }));
    await userEvent.click(screen.getByRole('menuitem', { name: /Delete/ }));
    await waitFor(() => expect(api.asked).toContain(`DELETE runs/${one.id}`));
    expect(done.some(line => line.startsWith('confirm Delete run'))).toBe(true);
    await userEvent.click(screen.getByRole('button', { name: /^Actions of baseline 2/ }));
    expect(screen.getByRole('menuitem', { name: /Delete/ }).getAttribute('aria-disabled')).toBe('true');
  });

  it('has a deleted one back, or removes it for good', async () => {
    const one = { ...run(1), deleted: true };
    const { api } = show(<TrackedPage query="status=DELETED" />, { overview: overview(), runs: page([one]), [`POST runs/${one.id}/restore`]: {}, [`DELETE runs/${one.id}?forever=true`]: {} });
    for (const [name, path] of [['Restore', `POST runs/${one.id}/restore`], ['Remove for good …', `DELETE runs/${one.id}?forever=true`]] as const) {
      await userEvent.click(await screen.findByRole('button', { name: /^Actions of baseline 1/ }));
      await userEvent.click(screen.getByRole('menuitem', { name }));
      await waitFor(() => expect(api.asked).toContain(path));
    }
    expect(api.asked.some(path => path.startsWith('GET runs?deleted=true&limit=100'))).toBe(true);
  });

  it('compares those that are chosen', async () => {
    const { done } = show(<TrackedPage />, { overview: overview(), runs: page([run(1), run(2), run(3)]) });
    expect((await screen.findByRole('button', { name: 'Compare' })).getAttribute('aria-disabled')).toBe('true');
    for (const i of [1, 3]) await userEvent.click(screen.getByRole('checkbox', { name: new RegExp(`^Choose baseline ${i}`) }));
    await userEvent.click(screen.getByRole('button', { name: 'Compare (2)' }));
    expect(done.at(-1)).toBe(`navigate ${JSON.stringify({ kind: 'comparison', trials: [], experiments: [], runs: [run(1).id, run(3).id] })}`);
  });

  it('reads what it writes', () => {
    const wanted = { status: 'FAILED', group: 'a&b=c', job: 'é' };
    expect(readRuns(writeRuns(wanted))).toEqual(wanted);
  });
});

describe('one run', () => {
  const answers = (one: RunView): Record<string, unknown> => ({ overview: overview(), [`runs/${one.id}`]: one, [`runs/${one.id}/curves`]: { items: [], next: null }, [`runs/${one.id}/files`]: { items: [], next: null } });

  it('says why it failed, and asks for its curves by name', async () => {
    const one = run(3);
    const { api } = show(<RunPage id={one.id} />, answers(one));
    expect((await screen.findByText(/Why it ended/)).textContent).toContain('expected 64 features');
    await waitFor(() => expect(api.asked.some(path => path.includes('name=loss') && !path.includes('system'))).toBe(true));
    expect(api.streams).not.toContain(`runs/${one.id}/stream`);
  });

  it('is looked at again when the master says that there is more', async () => {
    const one = run(0);
    const { api } = show(<RunPage id={one.id} />, answers(one));
    await waitFor(() => expect(api.streams).toContain(`runs/${one.id}/stream`));
    const before = api.asked.filter(path => path === `GET runs/${one.id}`).length;
    api.say(`runs/${one.id}/stream`, { status: 'RUNNING', heard_at: 1 });
    await waitFor(() => expect(api.asked.filter(path => path === `GET runs/${one.id}`).length).toBe(before + 1));
  });

  it('has the artifacts that it made and used', async () => {
    const one = run(1);
    show(<RunPage id={one.id} tab="artifacts" />, { ...answers(one), [`runs/${one.id}/artifacts`]: { items: ofRun(), next: null } });
    expect(await screen.findByRole('button', { name: 'cats:v1' })).toBeTruthy();
  });

  it('shows hostile settings as text', async () => {
    const one = run(0, true);
    const { container } = show(<RunPage id={one.id} tab="config" />, answers(one));
    await screen.findByText('Parameter');
    expect(container.querySelector('img, script, svg, a[href^="javascript"]')).toBeNull();
    expect(container.textContent).toContain('⟨U+202E⟩');
  });

  it('knows the trial that it is', () => {
    expect(trialOf({ ...run(0), id: (255).toString(16).padStart(32, '0') })).toBe(255);
    expect(trialOf(run(0))).toBeNull();
  });
});

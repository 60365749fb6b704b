/** What people wrote about an experiment: shown as text, edited field by field, archived. */

import { fireEvent, screen, waitFor } from '@testing-library/react';
import { describe, expect, it } from 'vitest';

import { show, type Shown } from '../../testing/app';
import { experiment } from '../../testing/fixtures';
import type { ExperimentView } from '../../state/wire';
import { Annotations } from './Annotations';

const HOSTILE = '<img src=x onerror="window.hurt=1">\u202e';
const ME = { name: 'ada', scopes: ['custom:detlab:write'], admin: false };

function open(over: Partial<ExperimentView> = {}): Shown & { saved: ExperimentView[] } {
  const saved: ExperimentView[] = [];
  const e = experiment(7, { description: 'wide', labels: ['a', 'b'], ...over });
  const shown = show(
    <Annotations experiment={{ ...e, notes: null }} me={ME} onSaved={view => saved.push(view)} />,
    { 'experiments/7': e, 'POST experiments/7/edit': (body: object) => ({ ...e, ...body }) }
  );
  return { ...shown, saved };
}

describe('annotations', () => {
  it('say what it is a fork of, and lead there', async () => {
    const { done } = open({ forked_from: 3 });
    fireEvent.click(await screen.findByRole('button', { name: 'experiment 3' }));
    expect(done).toEqual(['navigate {"kind":"experiment","id":3}']);
  });

  it('show description and notes as text, line by line', async () => {
    open({ notes: `one\n${HOSTILE}`, description: HOSTILE });
    const notes = await screen.findByRole('note', { name: 'Notes' });
    expect(notes.textContent).toMatch(/^one\n<img src=x onerror/);
    expect(notes.textContent).not.toContain('\u202e');
    expect(document.querySelector('img')).toBeNull();
    expect((window as { hurt?: number }).hurt).toBeUndefined();
  });

  it('send only what was changed', async () => {
    const { api, saved } = open({ notes: 'old' });
    await screen.findByText('old');
    fireEvent.click(screen.getByRole('button', { name: 'Edit' }));
    fireEvent.change(screen.getByLabelText(/Labels/), { target: { value: 'a, c ,' } });
    fireEvent.change(screen.getByLabelText('Notes'), { target: { value: 'new\nlines' } });
    fireEvent.click(screen.getByRole('button', { name: 'Save' }));
    await waitFor(() => expect(saved).toHaveLength(1));
    expect(api.bodies).toEqual([{ labels: ['a', 'c'], notes: 'new\nlines', notes_before: 'old' }]);
    expect(screen.queryByRole('form')).toBeNull();
  });

  it('keep the form open when the master refuses', async () => {
    const { api, saved } = open({ notes: 'old' });
    await screen.findByText('old');
    fireEvent.click(screen.getByRole('button', { name: 'Edit' }));
    delete api.answers['POST experiments/7/edit'];
    fireEvent.change(screen.getByLabelText('Name'), { target: { value: 'other' } });
    fireEvent.click(screen.getByRole('button', { name: 'Save' }));
    await waitFor(() => expect(api.asked).toContain('POST experiments/7/edit'));
    expect(saved).toEqual([]);
    expect((screen.getByLabelText('Name') as HTMLInputElement).value).toBe('other');
  });

  it('archive what has ended, and nothing else', async () => {
    const { api, unmount } = open({ state: 'COMPLETED' });
    fireEvent.click(await screen.findByRole('button', { name: 'Archive' }));
    await waitFor(() => expect(api.bodies).toEqual([{ archived: true }]));
    unmount();
    open({ state: 'ACTIVE' });
    expect(screen.queryByRole('button', { name: 'Archive' })).toBeNull();
  });

  it('change nothing for a user who may only look', async () => {
    open({ may: 'read', owner: 'eve', state: 'COMPLETED' });
    await screen.findByText('wide');
    for (const name of ['Edit', 'Archive']) {
      expect(screen.getByRole('button', { name }).getAttribute('aria-disabled')).toBe('true');
    }
  });
});

/** What people wrote about an experiment: shown as text, edited field by field, archived. */

import { fireEvent, screen, waitFor } from '@testing-library/react';
import { describe, expect, it } from 'vitest';

import { ApiError } from '../../state/api';
import { show, type Shown } from '../../testing/app';
import { experiment } from '../../testing/fixtures';
import type { ExperimentView } from '../../state/wire';
import { useState, type ReactElement } from 'react';

import { Annotations } from './Annotations';
import { More } from './More';

const HOSTILE = '<img src=x onerror="window.hurt=1">\u202e';
const ME = { name: 'ada', scopes: ['custom:detlab:write'], admin: false };

function Annotated({ e, onSaved }: { e: ExperimentView; onSaved: (view: ExperimentView) => void }): ReactElement {
  const [editing, setEditing] = useState(false);
  return (
    <>
      <More experiment={e} me={ME} onEdit={() => setEditing(true)} onSaved={onSaved} />
      <Annotations experiment={{ ...e, notes: null }} editing={editing} onClose={() => setEditing(false)} onSaved={onSaved} />
    </>
  );
}

function choose(name: string): HTMLElement {
  fireEvent.click(screen.getByRole('button', { name: /^More actions/ }));
  return screen.getByRole('menuitem', { name: new RegExp(`^${name}`) });
}

function open(over: Partial<ExperimentView> = {}): Shown & { saved: ExperimentView[] } {
  const saved: ExperimentView[] = [];
  const e = experiment(7, { description: 'wide', labels: ['a', 'b'], ...over });
  const shown = show(
    <Annotated e={e} onSaved={view => saved.push(view)} />,
    { 'experiments/7': e, workspaces: { items: [], after: null }, 'POST experiments/7/edit': (body: object) => ({ ...e, ...body }) }
  );
  return { ...shown, saved };
}

describe('annotations', () => {
  it('say what it is a fork of, and lead there', async () => {
    const { done } = open({ forked_from: 3 });
    fireEvent.click(await screen.findByRole('button', { name: 'experiment 3' }));
    expect(done).toEqual(['navigate {"kind":"experiment","id":3}']);
  });

  it('lead to what differs from what it is a fork of', async () => {
    const { done } = open({ forked_from: 3 });
    fireEvent.click(await screen.findByRole('button', { name: 'What differs' }));
    expect(done).toEqual(['navigate {"kind":"comparison","trials":[],"experiments":[3,7],"view":"tab=config"}']);
  });

  it('show the description as text, and the notes as Markdown that runs nothing', async () => {
    open({ notes: `# one\n${HOSTILE} [x](javascript:alert(1)) <svg onload=alert(1)>`, description: HOSTILE });
    const notes = await screen.findByRole('note', { name: 'Notes' });
    expect(notes.textContent).toMatch(/^one<img src=x onerror/);
    expect(notes.querySelector('h2')!.textContent).toBe('one');
    expect(notes.querySelector('a, svg, script')).toBeNull();
    expect(notes.textContent).not.toContain('\u202e');
    expect(document.querySelector('img')).toBeNull();
    expect((window as { hurt?: number }).hurt).toBeUndefined();
  });

  it('send only what was changed', async () => {
    const { api, saved } = open({ notes: 'old' });
    await screen.findByText('old');
    fireEvent.click(choose('Edit'));
    fireEvent.change(screen.getByLabelText(/Labels/), { target: { value: 'a, c ,' } });
    fireEvent.change(screen.getByLabelText(/^Notes/), { target: { value: 'new\nlines' } });
    fireEvent.click(screen.getByRole('button', { name: 'Save' }));
    await waitFor(() => expect(saved).toHaveLength(1));
    expect(api.bodies).toEqual([{ labels: ['a', 'c'], notes: 'new\nlines', notes_before: 'old' }]);
    expect(screen.queryByRole('form')).toBeNull();
  });

  it('keep the form open when the master refuses', async () => {
    const { api, saved } = open({ notes: 'old' });
    await screen.findByText('old');
    fireEvent.click(choose('Edit'));
    delete api.answers['POST experiments/7/edit'];
    fireEvent.change(screen.getByLabelText('Name'), { target: { value: 'other' } });
    fireEvent.click(screen.getByRole('button', { name: 'Save' }));
    await waitFor(() => expect(api.asked).toContain('POST experiments/7/edit'));
    expect(saved).toEqual([]);
    expect((screen.getByLabelText('Name') as HTMLInputElement).value).toBe('other');
  });

  it('archive what has ended, and nothing else', async () => {
    const { api, unmount } = open({ state: 'COMPLETED' });
    fireEvent.click(choose('Archive'));
    await waitFor(() => expect(api.bodies).toEqual([{ archived: true }]));
    unmount();
    open({ state: 'ACTIVE' });
    choose('Edit');
    expect(screen.queryByRole('menuitem', { name: /^Archive/ })).toBeNull();
  });

  it('change nothing for a user who may only look', async () => {
    open({ may: 'read', owner: 'eve', state: 'COMPLETED' });
    await screen.findByText('wide');
    choose('Edit');
    for (const name of [/^Edit/, /^Archive/]) {
      expect(screen.getByRole('menuitem', { name }).getAttribute('aria-disabled')).toBe('true');
    }
  });

  it('replace nothing unseen that somebody else has written meanwhile', async () => {
    const { api, saved } = open({ notes: 'old' });
    await screen.findByText('old');
    fireEvent.click(choose('Edit'));
    fireEvent.change(screen.getByLabelText(/^Notes/), { target: { value: 'mine' } });
    const answer = api.answers['POST experiments/7/edit'];
    api.answers['POST experiments/7/edit'] = () => { throw new ApiError(409, { code: 'conflict', message: 'the notes of experiment 7 have been changed' }); };
    api.answers['experiments/7'] = { ...(api.answers['experiments/7'] as object), notes: 'of ben <b>' };
    fireEvent.click(screen.getByRole('button', { name: 'Save' }));
    const told = await screen.findByRole('alert');
    expect(told.textContent).toContain('of ben <b>');
    expect((screen.getByLabelText(/^Notes/) as HTMLTextAreaElement).value).toBe('mine');
    expect(saved).toEqual([]);
    api.answers['POST experiments/7/edit'] = answer;
    fireEvent.click(screen.getByRole('button', { name: 'Replace theirs by mine' }));
    await waitFor(() => expect(saved).toHaveLength(1));
    expect(api.bodies.at(-1)).toEqual({ notes: 'mine', notes_before: 'of ben <b>' });
  });
});

describe('an experiment that has ended', () => {
  const ended = (over: Partial<ExperimentView> = {}): ExperimentView => experiment(7, {
    state: 'COMPLETED', time_metric: 'batches', config: { searcher: { name: 'single', max_length: { epochs: 10 } }, max_restarts: 5 }, ...over
  });
  const shown = (e: ExperimentView, answer: unknown): Shown & { saved: ExperimentView[] } => {
    const saved: ExperimentView[] = [];
    const made = show(<More experiment={e} me={ME} onEdit={() => undefined} onSaved={view => saved.push(view)} />, {
      workspaces: { items: [], after: null }, 'POST experiments/7/continue': answer
    });
    return { ...made, saved };
  };

  it('goes on to a greater length in the unit that it has, and not to a smaller one', async () => {
    const { api, saved, done } = shown(ended(), experiment(7, { state: 'ACTIVE' }));
    fireEvent.click(choose('Continue'));
    const length = screen.getByLabelText('Train to (epochs)');
    fireEvent.change(length, { target: { value: '8' } });
    expect(length.getAttribute('aria-invalid')).toBe('true');
    fireEvent.click(screen.getByRole('button', { name: 'Continue' }));
    expect(api.bodies).toEqual([]);
    fireEvent.change(length, { target: { value: '20' } });
    fireEvent.click(screen.getByRole('button', { name: 'Continue' }));
    await waitFor(() => expect(saved).toHaveLength(1));
    expect(api.bodies).toMatchObject([{ config: { searcher: { max_length: { epochs: 20 } } }, from_earlier: false }]);
    expect(done.at(-1)).toContain('Experiment 7 goes on.');
  });

  it('is told that a checkpoint is gone, and goes on from an earlier one if asked to', async () => {
    const refused = new ApiError(409, { code: 'conflict', message: 'experiment 7 cannot go on: checkpoint 3f2b of trial 31 was collected or deleted', hint: 'det checkpoint undelete 3f2b' });
    let tries = 0;
    const { api } = shown(ended({ state: 'ERROR' }), () => { tries += 1; return tries === 1 ? refused : experiment(7); });
    fireEvent.click(choose('Continue'));
    expect(screen.queryByRole('checkbox')).toBeNull();
    fireEvent.click(screen.getByRole('button', { name: 'Continue' }));
    expect((await screen.findByRole('alert')).textContent).toContain('det checkpoint undelete 3f2b');
    fireEvent.click(screen.getByRole('checkbox', { name: /earlier checkpoint/ }));
    fireEvent.click(screen.getByRole('button', { name: 'Continue' }));
    await waitFor(() => expect(tries).toBe(2));
    const [first, second] = api.bodies as { from_earlier: boolean; idempotency_key: string }[];
    expect([first!.from_earlier, second!.from_earlier]).toEqual([false, true]);
    expect(first!.idempotency_key).not.toBe(second!.idempotency_key);
  });

  it('is not continued while it runs, by who may only read it, or where it is evaluated by hand', () => {
    const { unmount } = shown(ended({ state: 'ACTIVE' }), null);
    fireEvent.click(screen.getByRole('button', { name: /^More actions/ }));
    expect(screen.queryByRole('menuitem', { name: /^Continue/ })).toBeNull();
    unmount();
    const second = shown(ended({ unmanaged: true }), null);
    fireEvent.click(screen.getByRole('button', { name: /^More actions/ }));
    expect(screen.queryByRole('menuitem', { name: /^Continue/ })).toBeNull();
    second.unmount();
    shown(ended({ may: 'read', owner: 'ben' }), null);
    expect(choose('Continue').getAttribute('aria-disabled')).toBe('true');
  });
});

describe('sharing and deleting', () => {
  it('are in the menu: whom it is shared with, and deletion of one that has ended, after a question', async () => {
    const e = experiment(7, { state: 'COMPLETED', owner: 'ada', may: 'own' });
    const shown = show(<More experiment={e} me={ME} onEdit={() => undefined} onSaved={() => undefined} />, {
      workspaces: { items: [], after: null }, 'experiments/7/grants': { items: [] }, 'PUT experiments/7/grants': { items: [] }, 'DELETE experiments/7': { deleted: 7, left: null }
    });
    fireEvent.click(choose('Share'));
    fireEvent.change(await screen.findByRole('textbox', { name: 'Name' }), { target: { value: 'ben' } });
    fireEvent.click(screen.getByRole('button', { name: 'Share' }));
    await waitFor(() => expect(shown.api.bodies).toEqual([{ kind: 'user', name: 'ben', write: false }]));
    fireEvent.click(screen.getByRole('button', { name: 'Close' }));
    fireEvent.click(choose('Delete'));
    await waitFor(() => expect(shown.api.asked).toContain('DELETE experiments/7'));
    expect(shown.done[0]).toBe('notify user ben may read experiment 7');
    expect(shown.done).toContain('confirm Delete experiment 7?');
  });

  it('are not for those with whom it is shared, nor deletion while it runs', async () => {
    const theirs = experiment(7, { state: 'COMPLETED', owner: 'ben', may: 'write' });
    const first = show(<More experiment={theirs} me={ME} onEdit={() => undefined} onSaved={() => undefined} />, { workspaces: { items: [], after: null }, 'experiments/7/grants': { items: [] } });
    expect(choose('Delete').getAttribute('aria-disabled')).toBe('true');
    fireEvent.click(screen.getByRole('menuitem', { name: /^Share/ }));
    expect(await screen.findByText('It is shared with nobody.')).toBeTruthy();
    expect(screen.queryByRole('form', { name: 'Share it' })).toBeNull();
    first.unmount();
    show(<More experiment={experiment(8, { state: 'ACTIVE' })} me={ME} onEdit={() => undefined} onSaved={() => undefined} />, { workspaces: { items: [], after: null } });
    fireEvent.click(screen.getByRole('button', { name: /^More actions/ }));
    expect(screen.queryByRole('menuitem', { name: /^Delete/ })).toBeNull();
  });
});

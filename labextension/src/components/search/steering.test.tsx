/** Steering: what the bar sends, where errors are shown, what is left, what people did, and acts on one trial. */

import { fireEvent, screen, waitFor, within } from '@testing-library/react';
import { describe, expect, it } from 'vitest';

import { experiment, HOSTILE, overview, trial } from '../../harness/fixtures';
import { ApiError } from '../../state/api';
import type { ExperimentView, JournalEntry } from '../../state/wire';
import { show, type Shown } from '../../testing/app';
import { Steering, trialActs } from '.';

const ME = overview(0).me;
const TRIALS = [trial(0, 3), trial(1, 3), trial(17, 30)];
const entry = (seq: number, event: Record<string, unknown>): JournalEntry => ({ seq, at: 1e9 + seq, event: { author: 'bob', ...event }, decisions: [] });

function steering(over: Partial<ExperimentView> = {}, acts: JournalEntry[] = [], answers: Record<string, unknown> = {}): Shown & { learned: ExperimentView[] } {
  const e = { ...experiment(), id: 12, ...over };
  const learned: ExperimentView[] = [];
  const shown = show(
    <Steering experiment={e} trials={TRIALS} version={1} onLearn={view => learned.push(view)} />,
    { overview: overview(0), 'experiments/12': e, 'experiments/12/search/journal': { items: acts }, 'POST experiments/12/search': e, ...answers }
  );
  return { ...shown, learned };
}

async function opened(name: string, over: Partial<ExperimentView> = {}, acts: JournalEntry[] = [], answers: Record<string, unknown> = {}): Promise<ReturnType<typeof steering>> {
  const shown = steering(over, acts, answers);
  if (acts.length) await screen.findByText('What people did');
  await waitFor(() => expect(screen.getByRole('button', { name }).getAttribute('aria-disabled')).toBeNull());
  fireEvent.click(screen.getByRole('button', { name }));
  return shown;
}

describe('steering a search', () => {
  it('extends it by trials and units, and learns the answer', async () => {
    const shown = await opened('Extend…');
    const first = await screen.findByLabelText('Further trials');
    expect(document.activeElement).toBe(first);
    fireEvent.change(first, { target: { value: '8' } });
    fireEvent.change(screen.getByLabelText('Further units of batches'), { target: { value: '100' } });
    fireEvent.click(screen.getByRole('button', { name: 'Extend' }));
    await waitFor(() => expect(shown.learned).toHaveLength(1));
    expect(shown.api.bodies[0]).toMatchObject({ act: 'extend', trials: 8, units: 100 });
    expect((shown.api.bodies[0] as { idempotency_key: string }).idempotency_key).toHaveLength(32);
    expect(shown.done).toContain('notify Experiment 12: extended by 8 trials and 100 units');
    await waitFor(() => expect(screen.queryByLabelText('Further trials')).toBeNull());
    expect(document.activeElement).toBe(screen.getByRole('button', { name: 'Extend…' }));
  });

  it('adds a point that begins as the best trial', async () => {
    const { api } = await opened('Add point…');
    const text = await screen.findByLabelText<HTMLTextAreaElement>('Hyperparameters (YAML)');
    expect(text.value).toContain('optimizer: ');
    fireEvent.change(text, { target: { value: 'lr: 0.01\nlayers: {a: 3}' } });
    fireEvent.click(screen.getByRole('button', { name: 'Add' }));
    await waitFor(() => expect(api.bodies[0]).toMatchObject({ act: 'add', points: [{ lr: 0.01, layers: { a: 3 } }] }));
  });

  it('shows a mistake at its field, and sends nothing', async () => {
    const { api } = await opened('Add point…');
    const text = await screen.findByLabelText('Hyperparameters (YAML)');
    for (const [wrong, said] of [['lr: [', /not YAML/], ['3', /A mapping is needed/]] as const) {
      fireEvent.change(text, { target: { value: wrong } });
      fireEvent.click(screen.getByRole('button', { name: 'Add' }));
      const alert = await screen.findByText(said);
      expect(text.getAttribute('aria-describedby')).toBe(alert.id);
    }
    expect(api.bodies).toEqual([]);
  });

  it('shows the refusal of the master at the field that it names', async () => {
    const refused = new ApiError(422, { code: 'config.invalid', message: 'wrong', problems: [{ path: 'hyperparameters.lr', message: 'minval must be below maxval', severity: 'error', hint: null } as never] });
    await opened('Edit bounds…', {}, [], { 'POST experiments/12/search': refused });
    fireEvent.click(await screen.findByRole('button', { name: 'Save' }));
    const alert = await screen.findByRole('alert');
    expect(alert.textContent).toBe('lr: minval must be below maxval');
    expect(screen.getByLabelText(/hyperparameters block/).getAttribute('aria-invalid')).toBe('true');
  });

  it('begins to edit the bounds as they were edited last', async () => {
    const { api } = await opened('Edit bounds…', {}, [entry(3, { type: 'space_edited', space: { lr: { type: 'double', minval: 1, maxval: 2 } } })]);
    const text = await screen.findByLabelText<HTMLTextAreaElement>(/hyperparameters block/);
    expect(text.value).toBe('lr:\n  type: double\n  minval: 1\n  maxval: 2');
    fireEvent.click(screen.getByRole('button', { name: 'Save' }));
    await waitFor(() => expect(api.bodies[0]).toMatchObject({ act: 'bounds', hyperparameters: { lr: { maxval: 2 } } }));
  });

  it('changes the concurrency, and closes by Escape with the focus where it was', async () => {
    const { api } = await opened('Concurrency…', {}, [entry(3, { type: 'concurrency_set', limit: 8 })]);
    const field = await screen.findByLabelText<HTMLInputElement>('Trials at a time');
    expect(field.value).toBe('8');
    fireEvent.keyDown(field, { key: 'Escape' });
    expect(document.activeElement).toBe(screen.getByRole('button', { name: 'Concurrency…' }));
    fireEvent.click(screen.getByRole('button', { name: 'Concurrency…' }));
    fireEvent.change(await screen.findByLabelText('Trials at a time'), { target: { value: '0' } });
    fireEvent.click(screen.getByRole('button', { name: 'Change' }));
    await waitFor(() => expect(api.bodies[0]).toMatchObject({ act: 'concurrency', limit: 0 }));
  });

  it('retries failed trials where there are some', async () => {
    const { api } = await opened('Retry failed');
    await waitFor(() => expect(api.bodies[0]).toMatchObject({ act: 'retry' }));
  });

  it('retries failed trials after the end, too, as the command does', async () => {
    const { api } = await opened('Retry failed', { state: 'COMPLETED' });
    await waitFor(() => expect(api.bodies[0]).toMatchObject({ act: 'retry' }));
  });

  it.each([
    [{ may: 'read' as const }, /Read-only: alice can allow/],
    [{ state: 'COMPLETED' as const }, /The search is over/],
    [{ state: 'STOPPING_CANCELED' as const }, /stopping/]
  ])('offers no act where none is possible: %o', async (over, said) => {
    const { api } = steering(over);
    await waitFor(() => expect(screen.getAllByText(said).length).toBeGreaterThan(0));
    fireEvent.click(screen.getByRole('button', { name: 'Extend…' }));
    expect(screen.queryByRole('form')).toBeNull();
    expect(api.bodies).toEqual([]);
  });

  it('says what is left', async () => {
    steering({ budgets: [{ name: 'slot_hours', limit: 10, used: 4 }, { name: 'wall_clock', limit: 7200, used: 3600 }] });
    const list = await screen.findByRole('list', { name: 'Budgets' });
    await waitFor(() => expect(within(list).getByText('6 of 10 left')).toBeTruthy());
    const texts = within(list).getAllByRole('listitem').map(item => item.textContent);
    expect(texts).toEqual(['Trials32 of 64 left', 'Slot hours6 of 10 left', 'Wall-clock time1:00:00 of 2:00:00 left', 'Longest trial1000 batches']);
  });

  it.each([[12, 'epoch', '12 epochs'], [1, 'epoch', '1 epoch'], [3, 'batch', '3 batches'], [7, 'my_time', '7 my_time'], [2, null, '2 units']])(
    'says the longest trial in words: %s of %s', async (max_time, time_metric, said) => {
      steering({ max_time, time_metric });
      const list = await screen.findByRole('list', { name: 'Budgets' });
      expect(within(list).getByText(said)).toBeTruthy();
    });

  it('lists what people did, newest first, hostile text as text', async () => {
    const name = TRIALS[1]!.request_id;
    const acts = [
      entry(1, { type: 'extended', trials: 4, units: 1 }), entry(2, { type: 'points_added', points: [{ [HOSTILE.value]: 1 }] }),
      entry(3, { type: 'trials_retried', request_ids: [name, 'unknown-one'] }), entry(4, { type: 'concurrency_set' }),
      entry(5, { type: 'stop_requested', request_id: name }), entry(6, { type: 'promotion_requested', request_id: name, author: HOSTILE.value })
    ];
    const { container } = steering({}, acts);
    const list = await screen.findByRole('list', { name: /Acts on the search/ });
    const texts = (): string[] => within(list).getAllByRole('listitem').map(item => item.querySelector('span')!.textContent!);
    expect(texts()).toHaveLength(3);
    expect(texts()[0]).toContain('promoted trial 101');
    fireEvent.click(screen.getByRole('button', { name: 'Show all 6' }));
    expect(texts().slice(1)).toEqual([
      'bob stopped trial 101', 'bob removed the limit of trials at a time', 'bob retried failed trials 101, unknown-',
      expect.stringContaining('bob added 1 point: ') as string, 'bob extended it by 4 further trials and 1 further unit for the longest trials'
    ]);
    expect(container.querySelector('svg, img, script')).toBeNull();
  });
});

describe('the task of a custom search', () => {
  const shownWith = (task: object | ApiError, over: Partial<ExperimentView> = {}): Shown => (
    steering({ searcher: 'custom', search_task: 'command-1', ...over }, [], { 'tasks/command-1': task })
  );
  const group = (): Promise<HTMLElement> => screen.findByRole('group', { name: 'Task of the search class' });

  it('is shown with its state, why it waits, and its log', async () => {
    const { done } = shownWith({ id: 'command-1', state: 'ACTIVE', display_state: 'QUEUED', place: 2, pending_reason: 'needs a node', stage_message: '' });
    await waitFor(async () => expect((await group()).textContent).toContain('waits for a place (position 2): needs a node'));
    fireEvent.click(within(await group()).getByRole('button', { name: 'Log' }));
    expect(done).toContain('navigate {"kind":"task","id":"command-1"}');
  });

  it('may be of somebody else', async () => {
    shownWith(new ApiError(404, { message: 'there is no task' }));
    await waitFor(async () => expect(within(await group()).getByRole('button', { name: 'Log' }).getAttribute('aria-disabled')).toBe('true'));
  });

  it('is not there for other methods, and not yet for a new search', async () => {
    shownWith({}, { search_task: null });
    expect(await screen.findByText(/has not been made yet/)).toBeTruthy();
    steering({ searcher: 'random' });
    expect(screen.queryByRole('group', { name: 'Task of the search class' })).toBeNull();
  });
});

describe('where the trials are', () => {
  const replay = (standing: object[]): Record<string, unknown> => ({ 'experiments/12/search/replay': { at: 3, events: 3, standing, trials: [] } });

  it('is a table of rungs', async () => {
    const { api } = steering({}, [], replay([
      { where: 'rung 1 of 2, at epochs 1', counts: { running: 2, promoted: 1, stopped: 3 } },
      { where: 'rung 2 of 2, at epochs 4', counts: { running: 1, promoted: 0, finished: 0 } }
    ]));
    const table = await screen.findByRole('table', { name: 'Trials by rung' });
    expect(within(table).getAllByRole('row').map(row => [...row.children].map(cell => cell.textContent))).toEqual([
      ['Where', 'running', 'promoted', 'stopped', 'finished'],
      ['rung 1 of 2, at epochs 1', '2', '1', '3', '–'],
      ['rung 2 of 2, at epochs 4', '1', '–', '–', '–']
    ]);
    expect(api.asked).toContain('GET experiments/12/search/replay?only=standing');
  });

  it('names generations, and counts points where there are seeds', async () => {
    steering({ config: { searcher: { seeds: 2 } } as never }, [], replay([{ where: 'generation 3, of 10 trials', counts: { running: 4 } }]));
    expect(await screen.findByRole('table', { name: 'Points by generation' })).toBeTruthy();
  });
});

describe('acts on one trial', () => {
  const act = (over: Partial<ExperimentView>, of: Partial<ReturnType<typeof trial>>, answers = {}): { shown: Shown; acts: ReturnType<typeof trialActs> } => {
    const e = { ...experiment(), id: 12, ...over };
    const shown = show(<p />, { 'POST experiments/12/search': e, ...answers });
    return { shown, acts: trialActs(shown.app, { ...trial(29, 30), ...of }, e, ME, () => undefined) };
  };

  it('stops after a question, and promotes without one', async () => {
    const { shown, acts: [stop, promote] } = act({}, {});
    await stop!.run();
    await promote!.run();
    expect(shown.api.bodies).toMatchObject([{ act: 'stop', trial_ids: [129] }, { act: 'promote', trial_ids: [129] }]);
    expect(shown.done).toEqual(['confirm Stop trial 129?', 'notify Trial 129 is stopped.', 'notify Trial 129 is promoted.']);
  });

  it('names the rung to which a trial is promoted', async () => {
    const reply = { ...experiment(), id: 12, time_metric: 'epochs', promoted_to: 9 };
    const { shown, acts: [, promote] } = act({}, {}, { 'POST experiments/12/search': reply });
    await promote!.run();
    expect(shown.done).toEqual(['notify Trial 129 is promoted to 9 epochs.']);
  });

  it('tells the refusal', async () => {
    const { shown, acts: [, promote] } = act({}, {}, { 'POST experiments/12/search': new ApiError(409, { message: 'it is at no rung' }) });
    await promote!.run();
    expect(shown.done).toEqual(['notify Promote trial 129: it is at no rung']);
  });

  it('says why it is not possible', () => {
    const why = (over: Partial<ExperimentView>, of: object): (string | null | undefined)[] => act(over, of).acts.map(one => one.why);
    expect(why({}, {})).toEqual([null, null]);
    expect(why({ searcher: 'random' }, {})).toEqual([null, 'The method random has no rungs.']);
    expect(why({}, { state: 'COMPLETED' })[0]).toContain('has ended');
    expect(why({ may: 'read' }, {})[0]).toContain('Read-only');
  });
});

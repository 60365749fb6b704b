/** Trials and tasks: metrics by the stream, failure card, what cannot be opened says why. */

import { act, fireEvent, screen, waitFor } from '@testing-library/react';
import { describe, expect, it, vi } from 'vitest';

import { FixtureApi } from '../../harness/api';
import { BEGAN, experiment, FAILURE, HOSTILE, learning, metricsEvent, task, trial } from '../../harness/fixtures';
import { show } from '../../testing/app';
import { formatTime } from '../common';
import { FailureCard, failureText } from '../view/FailureCard';
import type { TrialView as TrialFacts } from '../../state/wire';
import { foldMetrics, Series } from './feed';
import { HparamsTab } from './HparamsTab';
import { attemptMarks, attemptsText } from './MetricsTab';
import { TaskView, whyClosed } from './TaskView';
import { TrialView } from './TrialView';

function open(element: JSX.Element, of: Partial<FixtureApi['of']> = {}): ReturnType<typeof show> & { fixtures: FixtureApi } {
  const fixtures = new FixtureApi({ trials: 20, curves: 20, points: 50, logs: 20, experiments: 2, ...of });
  return { ...show(element, {}, { api: fixtures }), fixtures };
}

describe('the fold of a trial', () => {
  it('keeps groups and names apart, and structured values out', () => {
    const series: Series = new Map();
    const event = metricsEvent(1, 5, 10, 0.5);
    expect(foldMetrics(series, event)).toBe(true);
    expect(foldMetrics(series, { ...event, data: { group: 'training', steps_completed: 10, run: 1, metrics: { validation_error: 1, text: 'x', deep: {} } } })).toBe(true);
    expect([...series.keys()]).toEqual(['validation_error']);
    expect([...series.get('validation_error')!.keys()]).toEqual(['validation', 'training']);
    expect(foldMetrics(series, event)).toBe(false);
  });
});

describe('the view of a trial', () => {
  it('of another closes its buttons when the role became less, and leaves when the trial is taken away', async () => {
    const { fixtures } = open(<TrialView id={116} />, { experiment: { owner: 'ben', may: 'write', state: 'ACTIVE' } });
    await screen.findByText('search metric');
    await waitFor(() => expect(screen.getByRole('button', { name: 'Kill' }).getAttribute('aria-disabled')).toBeNull());
    fixtures.of.experiment = { ...fixtures.of.experiment, may: 'read' };
    act(() => void document.dispatchEvent(new Event('visibilitychange')));
    await waitFor(() => expect(screen.getByRole('button', { name: 'Kill' }).getAttribute('aria-disabled')).toBe('true'));
    fixtures.of.refuse = { experiments: 404 };
    act(() => void document.dispatchEvent(new Event('visibilitychange')));
    await screen.findByRole('heading', { name: 'You can no longer see trial 116' });
    expect(screen.queryByText('search metric')).toBeNull();
  });

  it('shows a chart for each metric, the searched one first, and takes what the stream says', async () => {
    const { fixtures } = open(<TrialView id={116} />);
    await screen.findByText('search metric');
    const cards = screen.getAllByRole('heading', { level: 2 }).map(h => h.textContent);
    expect(cards).toEqual(['validation_errorsearch metric', 'accuracy', 'loss', 'lr']);
    const follow = encodeURIComponent(JSON.stringify([{ experiment: 12, trial: 116 }]));
    await waitFor(() => expect(fixtures.streams).toEqual([`stream?after=1&follow=${follow}`]));
    act(() => fixtures.say('stream', { ...metricsEvent(11, 116, 5000, 0.0042), data: { group: 'validation', steps_completed: 5000, run: 2, metrics: { validation_error: 0.0042, novel: 'Infinity' } } }));
    await screen.findByText('0.004200');
    expect(screen.getAllByRole('heading', { level: 2 }).map(h => h.textContent)).toContain('novel');
    await screen.findByText('∞');
    act(() => fixtures.say('stream', { ...metricsEvent(12, 116, 5000, 0), data: { group: 'cpu', steps_completed: 5000, run: 2, metrics: { cpu_util_simple: 7 } } }));
    await screen.findByText('cpu_util_simple');
    expect(screen.getAllByRole('heading', { level: 2 }).map(h => h.textContent).slice(-2)).toEqual(['novel', 'cpu_util_simple']);
    act(() => fixtures.say('stream', { ...metricsEvent(13, 999, 5000, 0.1) }));
    act(() => fixtures.say('stream', { id: 14, kind: 'trial', time: 0, experiment_id: 12, trial_id: 116, task_id: null, data: { ...trial(16, 20, { state: 'ERROR', failure: FAILURE, end_reason: 'error' }) } }));
    await screen.findByText('Out of memory');
  });

  it('marks where later attempts took over, and learns of one that begins while it is shown', async () => {
    const attempt = { agent_id: null, ended_at: null, reason: null };
    const attempts = [
      { ...attempt, run: 0, resume_step: null, started_at: 100 }, { ...attempt, run: 1, resume_step: 40, started_at: 160 },
      { ...attempt, run: 2, resume_step: null, started_at: null }
    ];
    expect(attemptsText(attempts)).toBe('Dotted lines: attempt 2 resumed at step 40, attempt 3 began anew.');
    expect(attemptMarks(attempts, 'steps', 100)).toEqual([40, 0]);
    expect(attemptMarks(attempts, 'time', 100)).toEqual([60]);
    expect(attemptMarks([], 'steps', 0)).toEqual([]);

    const { fixtures } = open(<TrialView id={116} />);
    await screen.findByText('search metric');
    expect(screen.queryByText(/^Dotted lines/)).toBeNull();
    const follow = encodeURIComponent(JSON.stringify([{ experiment: 12, trial: 116 }]));
    await waitFor(() => expect(fixtures.streams).toEqual([`stream?after=1&follow=${follow}`]));
    const known = await fixtures.get<TrialFacts>('trials/116');
    const get = fixtures.get.bind(fixtures);
    fixtures.get = async <T,>(path: string): Promise<T> => (path === 'trials/116' ? { ...known, attempts } as T : get<T>(path));
    const event = { id: 14, kind: 'trial' as const, time: 0, experiment_id: 12, trial_id: 116, task_id: null };
    act(() => fixtures.say('stream', { ...event, data: { ...known, run: known.run + 1, summary: {}, attempts: [] } }));
    await screen.findByText('Dotted lines: attempt 2 resumed at step 40, attempt 3 began anew.');
    act(() => fixtures.say('stream', { ...event, id: 15, data: { ...known, run: known.run + 1, summary: {}, attempts: [] } }));
    await screen.findByText(/^Dotted lines/);
  });

  it('says why it cannot be killed', async () => {
    open(<TrialView id={101} />);
    const kill = await screen.findByRole('button', { name: 'Kill' });
    expect(kill.getAttribute('aria-disabled')).toBe('true');
    expect(kill.title).toBe('Kill: The trial has ended (completed).');
  });

  it('says who evaluates it by hand, and that it has no output here', async () => {
    const fixtures = new FixtureApi({ trials: 20, curves: 20, points: 50, logs: 20, experiments: 2 });
    const get = fixtures.get.bind(fixtures);
    fixtures.get = async <T,>(path: string): Promise<T> => {
      const found = await get<object>(path);
      if (path === 'trials/116') return { ...found, asked_by: 'grace', asked_at: BEGAN, agent_id: null, slots: [] } as T;
      return ('experiment' in found ? { ...found, experiment: experiment({ unmanaged: true }) } : found) as T;
    };
    show(<TrialView id={116} />, {}, { api: fixtures });
    await screen.findByText('evaluated by grace');
    fireEvent.click(screen.getByRole('tab', { name: 'Logs' }));
    await screen.findByText('No output: it is evaluated by hand.');
  });

  it.each([['ACTIVE', 'drawn when it starts'], ['CANCELED', 'none: it ended before it started']] as const)(
    'says of a trial without a point that is %s: %s', (state, word) => {
      show(<HparamsTab trial={trial(0, 9, { state, hparams: {}, point_due: true })} />);
      expect(screen.getByText(`Hyperparameters: ${word}.`)).toBeTruthy();
    }
  );

  it('shows hostile text as text in every tab', async () => {
    const { container } = open(<TrialView id={116} />, { hostile: true });
    for (const tab of ['Logs', 'Media', 'Checkpoints', 'Hyperparameters', 'Metrics']) {
      fireEvent.click(await screen.findByRole('tab', { name: tab }));
      await waitFor(() => expect(screen.queryByText(/^Loading/)).toBeNull());
      expect(container.querySelector('script, img:not(.det-media-picture img)')).toBeNull();
      expect(container.textContent).not.toMatch(/[\u0000-\u0008\u001b\u202a-\u202e]/);
    }
    expect((window as { hacked?: number }).hacked).toBeUndefined();
  });
});

describe('the governance of a trial', () => {
  const governed = (): FixtureApi['of'] => ({ trials: 20, curves: 20, points: 50, logs: 20, experiments: 2, experiment: { governed: true } });

  it('is a tab where there is a policy: what is open, and what each source gave', async () => {
    open(<TrialView id={116} />, governed());
    fireEvent.click(await screen.findByRole('tab', { name: 'Governance' }));
    const may = await screen.findByRole('group', { name: 'What each source may train' });
    expect([...may.querySelectorAll('thead th')].map(cell => cell.textContent)).toEqual(['Parameters', 'trusted', 'web', 'partner']);
    const rows = [...may.querySelectorAll('tbody tr')].map(row => [...row.children].map(cell => cell.textContent));
    expect(rows[1]).toEqual(['blocks.0.* (12)', 'open', '× 0.1', 'closed']);
    expect(rows[6]).toEqual(['adapter.* (4)', 'closed', 'closed', 'open, isolated']);
    const gave = screen.getByRole('group', { name: 'What each source gave to each layer' });
    expect(gave.querySelectorAll('thead th')[2]!.textContent).toBe('web (30.0 % of samples)');
    expect([...gave.querySelectorAll('tbody tr')].map(row => row.children[3]!.textContent)).toEqual(['0', '0', '0', '0', '0', '< 0.1 %', '100.0 %']);
    expect(gave.textContent).toContain('… and 3 more');
  });

  it('is no tab without a policy', async () => {
    open(<TrialView id={116} />);
    await screen.findByRole('tab', { name: 'Hyperparameters' });
    expect(screen.queryByRole('tab', { name: 'Governance' })).toBeNull();
  });

  it('says what it waits for', async () => {
    const { fixtures } = open(<TrialView id={116} tab="governance" />, governed());
    const get = fixtures.get.bind(fixtures);
    fixtures.get = async <T,>(path: string): Promise<T> => (path.endsWith('/governance') ? { ...learning(116, 'web'), s_hash: '', groups: [], depth: null } as T : get<T>(path));
    await screen.findByText(/looked at its model|look at its model/);
  });

  it('shows hostile names as text', async () => {
    const { container } = open(<TrialView id={116} tab="governance" />, { ...governed(), hostile: true });
    await screen.findByRole('group', { name: 'What each source gave to each layer' });
    expect(container.querySelector('script, img')).toBeNull();
    expect(container.textContent).not.toMatch(/[\u0000-\u0008\u001b\u202a-\u202e]/);
  });
});

describe('the failure card', () => {
  it('says what, where, which rank, the likely cause, the last lines and the next command', () => {
    show(<FailureCard failure={FAILURE} experiment={12} />);
    expect(screen.getByRole('heading').textContent).toBe('✕ Out of memory');
    for (const text of ['train.py, line 48, in train_batch', /It needed more memory/, /use a smaller batch/, 'det trial logs 109 --rank 1']) {
      expect(screen.getAllByText(text, { exact: false }).length).toBeGreaterThan(0);
    }
    expect(screen.getByLabelText('Last lines of the output').textContent).toContain('trainer.fit');
  });

  it.each([
    ['SIGKILL', true], ['SIGTERM', true], ['SIGINT', true],
    ['SIGSEGV', false], ['SIGABRT', false], ['SIGBUS', false], ['SIGFPE', false], ['SIGXCPU', false], ['SIGPIPE', false], [null, false]
  ] as const)('of an end by %s says that it was killed from outside: %s', (signal, outside) => {
    show(<FailureCard failure={{ ...FAILURE, kind: 'killed', signal, message: 'it ended' }} experiment={12} />);
    expect(screen.queryByText(/from outside/) !== null).toBe(outside);
  });

  it('names the next command once, and has the very last line of a long output in sight', () => {
    const tall = vi.spyOn(Element.prototype, 'scrollHeight', 'get').mockReturnValue(900);
    const hint = 'the whole output: det trial logs 109';
    show(<FailureCard failure={{ ...FAILURE, rank: null, hint }} experiment={12} />);
    expect(screen.getAllByText('det trial logs 109', { exact: false }).map(e => e.tagName)).toEqual(['CODE']);
    expect(screen.getByText('What to do:').parentElement!.textContent).toBe(`What to do: ${hint}`);
    expect(screen.getByRole('button', { name: 'Copy command' })).toBeTruthy();
    expect(screen.getByLabelText('Last lines of the output').scrollTop).toBe(900);
    tall.mockRestore();
  });

  it("shows the master's own next command, as text, for what was stopped or waits", () => {
    const command = 'det agent list\u202e';
    show(<FailureCard failure={{ ...FAILURE, kind: 'lost', hint: 'it goes on', log_tail: [], command }} experiment={12} />);
    expect(screen.getByRole('heading').textContent).toBe('✕ Node lost');
    const [shown, ...more] = screen.getAllByText(/det agent list/);
    expect(more).toEqual([]);
    expect(shown!.textContent).not.toContain('\u202e');
  });

  it('is copied as plain text without anything that a terminal would obey', () => {
    const text = failureText({ ...FAILURE, message: HOSTILE.log, log_tail: [HOSTILE.log] }, 'It failed', 'det trial logs 1');
    expect(text).not.toMatch(/[\u0000-\u0008\u001b\u202a-\u202e]/);
    expect(text.split('\n').pop()).toBe('det trial logs 1');
  });
});

describe('the view of a task', () => {
  it('opens a notebook at its address', async () => {
    const { done } = open(<TaskView id="nb-7f3a" />);
    fireEvent.click(await screen.findByRole('button', { name: 'Open' }));
    expect(done).toEqual(['open /user/alice/nb-7f3a/lab']);
  });

  it('says why one that waits cannot be opened, and its place', async () => {
    open(<TaskView id="queued" />);
    const button = await screen.findByRole('button', { name: 'Open' });
    expect(button.title).toBe('Open: It is queued.');
    expect(screen.getByText(/Queued at position 3: all 8 slots/)).toBeTruthy();
    expect(whyClosed(task({ url: null }))).toBe('It is still starting.');
    expect(whyClosed(task({ url: null, state: 'COMPLETED' }))).toBe('It has ended.');
  });

  it('says when one that is idle will be ended', async () => {
    open(<TaskView id="idle" />);
    const notice = await screen.findByText(/^Idle: it will be ended/);
    expect(notice.textContent).toBe(`Idle: it will be ended at ${formatTime(BEGAN + 4000)} unless it is used before then.`);
    expect(screen.getByRole('heading', { name: /quiet-crane/ })).toBeTruthy();
  });

  it('has no Open for a command, and shows its failure', async () => {
    open(<TaskView id="failed" />);
    await screen.findByText('Import failed');
    expect(screen.queryByRole('button', { name: 'Open' })).toBeNull();
    expect(screen.getByText('det task logs failed')).toBeTruthy();
  });

  it('offers the outputs of a notebook run', async () => {
    open(<TaskView id="run-1" />);
    fireEvent.click(await screen.findByRole('tab', { name: 'Outputs' }));
    const link = await screen.findByRole('link', { name: 'digits.ipynb' });
    expect(link.getAttribute('href')).toMatch(/^\/api\/v1\/tasks\/run-1\/outputs\/sha256%3Ae+$/);
  });
});

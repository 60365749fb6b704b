/** The experiment's view: fold of the stream, table, actions, hostile names. */

import { act, fireEvent, screen, waitFor, within } from '@testing-library/react';
import { afterEach, describe, expect, it, vi } from 'vitest';

import { FixtureApi } from '../../harness/api';
import { BEGAN, checkpoint, experiment, HOSTILE, metricsEvent, series, trial } from '../../harness/fixtures';
import { ApiError } from '../../state/api';
import type { CurvesView, GrantList, TrialView } from '../../state/wire';
import { show } from '../../testing/app';
import { curveOf } from '../charts/curve';
import { LearningCurves } from '../charts/LearningCurves';
import { formatTime } from '../common';
import { bestFirst } from '../view/CheckpointList';
import { experimentActions, forbidden, trialActions } from '../view/actions';
import { yamlOf } from '../view/ConfigTab';
import { ExperimentTab, ExperimentView } from './ExperimentView';
import { LinkNotice } from '../view/LinkNotice';
import { metricsOf } from '../view/metrics';
import { lastValues, metricColumns } from './trials/metriccolumns';
import { ExperimentModel } from './model';
import { firstFailed, greyed, progressParts, remaining } from '../view/progress';
import { columnsOf, filterOf, isWords, RowCache, stateText } from './trials/trialtable';

const METRIC = { group: 'validation', name: 'validation_error' };
const ME = { name: 'alice', scopes: ['custom:detlab:write!user=alice'], admin: false };

function snapshot(count = 3): CurvesView {
  const trials = Array.from({ length: count }, (_, i) => trial(i, count + 6));
  return { next: null, cursor: 10, experiment: experiment(), trials, curves: trials.map(t => series(t.id, 20)), attempts: [], parents: [] };
}

describe('the metrics to choose from', () => {
  it('are what is searched for, validation, training, the rest, and at the end what the machine did', () => {
    const one = (...names: string[]): object => Object.fromEntries(names.map(name => [name, {}]));
    const summary = {
      cpu: one('cpu_util_simple'), memory: one('memory_free'), gpu: one('gpu_util_0'), alpha: one('mine'),
      training: one('loss', 'acc'), validation: one('validation_error', 'accuracy')
    };
    const all = metricsOf(summary, { group: 'zeta', name: 'shown' }, 'validation_error').map(m => `${m.group}/${m.name}`);
    expect(all).toEqual([
      'validation/validation_error', 'validation/accuracy', 'training/acc', 'training/loss', 'alpha/mine', 'zeta/shown',
      'cpu/cpu_util_simple', 'gpu/gpu_util_0', 'memory/memory_free'
    ]);
  });

  it('are the one that is searched for, once, before anything was reported', () => {
    expect(metricsOf({}, METRIC, 'validation_error')).toEqual([METRIC]);
    expect(metricsOf({}, { group: 'validation', name: '' }, '')).toEqual([]);
  });
});

describe('metrics as columns of trials', () => {
  const searcher = {
    metrics: [{ name: 'loss' }, { name: 'acc', smaller_is_better: false }], constraints: { size: { max: 10 } }
  };
  const several = experiment({ config: { searcher } });
  const of = (id: number, name: string, ...values: (number | string)[]): CurvesView['curves'][number] =>
    ({ ...series(id, 1), name, values: values as number[] });
  const curves = [
    of(1, 'loss', 0.9, 0.5), of(1, 'acc', 0.5), of(1, 'size', 1), of(2, 'loss', 0.4), of(2, 'acc', 0.6), of(2, 'size', 1),
    of(3, 'loss', 0.1), of(3, 'acc', 0.1), of(3, 'size', 1), of(4, 'loss', 0), of(4, 'acc', 1), of(4, 'size', 99),
    of(5, 'loss', 'NaN'), of(5, 'acc', 1), of(5, 'size', 1), { ...of(1, 'loss', 7), group: 'training' }
  ];

  it('are all objectives with their last values, and the trials on the Pareto front', () => {
    const values = lastValues(curves);
    const columns = metricColumns(several, ['loss', 'acc', 'f1'], values);
    expect(columns.map(c => [c.title, c.usual])).toEqual([['Last loss', true], ['Last acc', true], ['Last f1', false], ['Pareto', true]]);
    const rows = new RowCache().of([1, 2, 3, 4, 5].map(id => ({ ...trial(0, 6), id })));
    expect(rows.map(row => columns.map(c => c.text(row)))).toEqual([
      ['0.5000', '0.5000', '–', ''], ['0.4000', '0.6000', '–', '◆ yes'], ['0.1000', '0.1000', '–', '◆ yes'],
      ['0', '1', '–', ''], ['NaN', '1', '–', '']
    ]);
    expect(metricColumns(experiment(), ['f1'], values).map(c => [c.key, c.usual])).toEqual([['metric:f1', false]]);
  });
});

describe('the fold', () => {
  it('adds what the stream says after the cursor, once', () => {
    const model = new ExperimentModel(snapshot(), METRIC);
    expect(model.apply(metricsEvent(10, 100, 210, 0.3))).toBe('nothing');
    expect(model.apply(metricsEvent(11, 100, 210, 0.3))).toBe('curves');
    expect(model.apply(metricsEvent(11, 100, 220, 0.2))).toBe('nothing');
    const curve = model.curves.get(100)!;
    expect([curve.steps.length, curve.steps[20], curve.values[20]]).toEqual([21, 210, 0.3]);
  });

  it('takes other groups and names for nothing, and a non-finite value for a gap', () => {
    const model = new ExperimentModel(snapshot(), METRIC);
    const event = metricsEvent(11, 100, 210, 0.3);
    expect(model.apply({ ...event, data: { ...event.data, group: 'training' } })).toBe('nothing');
    expect(model.apply({ ...event, id: 12, data: { ...event.data, metrics: { other: 1 } } })).toBe('nothing');
    expect(model.apply({ ...event, id: 13, data: { ...event.data, metrics: { validation_error: 'NaN' } } })).toBe('curves');
    expect(model.curves.get(100)!.values[20]).toBeNaN();
  });

  it('learns new trials and states, keeps the config, and asks for a resync when told', () => {
    const model = new ExperimentModel(snapshot(), METRIC);
    const base = { time: 0, experiment_id: 12, trial_id: 150, task_id: null };
    expect(model.apply({ ...base, id: 11, kind: 'trial', data: { ...trial(50, 60) } })).toBe('trials');
    expect(model.trials.get(150)!.index).toBe(50);
    expect(model.apply({ ...base, id: 12, kind: 'experiment', data: { ...experiment({ state: 'PAUSED', config: null }) } })).toBe('experiment');
    expect(model.experiment.config).not.toBeNull();
    expect(model.apply({ ...base, id: 0, kind: 'resync', data: {} })).toBe('resync');
  });

  it('draws the best trial last, those that run before it', () => {
    const model = new ExperimentModel({ ...snapshot(), experiment: experiment({ best: { trial_id: 100, trial_index: 0, steps_completed: 1, value: 0, checkpoint: null, failed: false } }) }, METRIC);
    model.trials.set(102, { ...model.trials.get(102)!, state: 'ACTIVE' });
    expect(model.drawn().map(d => d.trial.id)).toEqual([101, 102, 100]);
  });
});

describe('words', () => {
  it('tell the progress in one line', () => {
    const e = experiment();
    const now = e.started_at! + 420;
    expect(remaining(e, now)).toBeCloseTo(580);
    expect(progressParts(e, now).join(' · ')).toBe(
      '26/64 trials done · 4 running · 2 failed · best validation_error 0.02140 (trial 117, step 960) · about 9:40 left'
    );
    expect(remaining(experiment({ state: 'PAUSED' }), now)).toBeNull();
    expect(progressParts(experiment({ state: 'PAUSED' }), now)[1]).toBe('4 pausing'); // they still hold their slots
    expect(progressParts(experiment({ state: 'STOPPING_CANCELED' }), now)[1]).toBe('4 stopping');
    expect(remaining(experiment({ progress: 0 }), now)).toBeNull();
    expect(progressParts(experiment({ state: 'COMPLETED', ended_at: e.started_at! + 90 }), now)).toContain('took 1:30');
  });

  it('say that the best is of a trial that failed, and which failed first', () => {
    const best = { trial_id: 2, trial_index: 1, steps_completed: 5, value: 0.5, checkpoint: null, failed: true };
    expect(progressParts(experiment({ best }), 0).join()).toContain('(trial 2, which failed, step 5)');
    const [a, b, c] = [trial(0, 20), trial(1, 20), trial(2, 20)].map((one, at) => ({ ...one, state: 'ERROR' as const, ended_at: [9, 4, 7][at]! }));
    expect(firstFailed([a!, b!, c!])).toBe(b);
    expect(firstFailed([{ ...a!, state: 'COMPLETED' }])).toBeNull();
  });

  it('count no pause', () => {
    const e = experiment({ paused_seconds: 60 });
    expect(remaining(e, e.started_at! + 480)).toBeCloseTo(580);
    expect(progressParts(experiment({ state: 'COMPLETED', ended_at: e.started_at! + 90, paused_seconds: 60 }), 0)).toContain('took 30 s');
  });

  it('grey a trial that was stopped early, canceled or failed; not one that went through', () => {
    expect(greyed(trial(0, 20))).toBe(true);
    expect(greyed(trial(1, 20))).toBe(false);
    expect(stateText(trial(0, 20))).toBe('stopped early');
    expect(stateText(trial(9, 20))).toBe('failed');
  });

  it('say why a trial was stopped, or would have been, in a column that is there if one was', () => {
    const stopped = { ...trial(0, 20), stop_evidence: 'at batches 4: 0.5, needed 0.4 (threshold)' };
    const dry = { ...trial(1, 20), would_stop: ['at batches 2: 0.7 (median)'] };
    const column = (...trials: TrialView[]) =>
      columnsOf(trials.map(one => ({ trial: one, hparams: {} })), 'loss', true, () => 0).find(one => one.key === 'why')!;
    expect(column(trial(1, 20)).usual).toBe(false);
    expect(column(trial(1, 20), stopped).usual).toBe(true);
    expect([stopped, dry, trial(1, 20)].map(one => column(stopped).text({ trial: one, hparams: {} }))).toEqual([
      'at batches 4: 0.5, needed 0.4 (threshold)', 'not stopped: at batches 2: 0.7 (median)', '–'
    ]);
  });

  it('do not say that a trial is killed before it is', () => {
    const killing = { ...trial(19, 20), state: 'STOPPING_KILLED', display_state: 'STOPPING_KILLED', end_reason: 'killed' } as const;
    expect(stateText(killing)).toBe('being killed');
    expect(stateText({ ...killing, state: 'CANCELED', display_state: 'CANCELED' })).toBe('killed');
  });

  it('say why an action is not possible', () => {
    const why = (over: Parameters<typeof experiment>[0], me = ME): (string | null)[] => experimentActions(experiment(over), me).map(a => a.why);
    expect(why({})).toEqual([null, 'The experiment is already active.', null, null]);
    expect(why({ state: 'PAUSED' })[0]).toBe('The experiment is already paused.');
    expect(why({ state: 'COMPLETED' })).toEqual(Array(4).fill('The experiment has ended (completed).'));
    expect(why({ state: 'STOPPING_CANCELED' })[3]).toBeNull();
    expect(why({ may: 'read' }, { ...ME, name: 'bob' })[3]).toMatch(/alice/);
    expect(forbidden({ ...ME, scopes: ['custom:detlab:read'] }, { owner: 'alice', may: 'own' })).toMatch(/custom:detlab:write/);
    expect(forbidden({ name: 'root', scopes: ['custom:detlab:admin'], admin: true }, { owner: 'alice', may: 'read' })).toBeNull();
    expect(forbidden({ ...ME, name: 'bob' }, { owner: 'alice', may: 'read' })).toMatch(/Only its owner, alice/);
    expect(forbidden({ ...ME, name: 'bob' }, { owner: 'alice', may: 'write' })).toBeNull();
  });

  it('let whom the owner lets change an experiment manage it and its trials, not whom they let look', () => {
    const bob = { ...ME, name: 'bob' };
    const whys = (may: 'read' | 'write' | 'own', me = bob): (string | null)[] => {
      const e = experiment({ may });
      return [...experimentActions(e, me).filter(a => a.verb !== 'activate'), ...trialActions(trial(19, 20), e, me)].map(a => a.why);
    };
    expect(whys('write')).toEqual([null, null, null, null]);
    expect(whys('own')).toEqual([null, null, null, null]);
    for (const why of whys('read')) expect(why).toMatch(/^Read-only: alice can allow you to change it .*det experiment share 12/);
    for (const why of whys('write', { ...bob, scopes: ['custom:detlab:read'] })) expect(why).toMatch(/custom:detlab:write/);
    expect(trialActions(trial(19, 20), null, bob)[0]!.why).toMatch(/not loaded yet/);
    expect(trialActions(trial(19, 20), experiment({ searcher: 'single' }), bob)[0]!.tip).toBe('The trial ends now, and its experiment with it');
    expect(trialActions(trial(19, 20), experiment({ searcher: 'random' }), bob)[0]!.tip).toBe('The trial ends now; its experiment continues');
    expect(experimentActions(experiment({ may: 'read', owner: 'x\u202e<b>' }), bob)[3]!.why).not.toMatch(/\u202e/);
  });

  it('write a config as YAML', () => {
    expect(yamlOf({ a: { b: [1, 'x: y'] }, c: null })).toBe('a:\n  b:\n    - 1\n    - "x: y"\nc: null\n');
  });

  it('order checkpoints best first, those without a value and deleted ones last', () => {
    const items = [0, 1, 4, 5].map(checkpoint);
    const ordered = bestFirst(items, true);
    expect(ordered[0]!.validation).toBe(0.0214);
    expect(ordered[2]!.validation).toBeNull();
    expect(ordered[3]!.state).toBe('DELETED');
    const endless = bestFirst([{ ...items[0]!, validation: '-Infinity' }, items[1]!], true);
    expect(endless.map(item => item.validation)).toEqual([items[1]!.validation, '-Infinity']);
  });
});

describe('the table of trials', () => {
  const rows = new RowCache().of(Array.from({ length: 20 }, (_, i) => trial(i, 20)));
  const columns = columnsOf(rows, 'validation_error', true, () => 0);

  it('has a column for each hyperparameter; what does not vary is hidden at first', () => {
    const hp = columns.filter(c => c.key.startsWith('hp:'));
    expect(hp.map(c => c.title)).toEqual(['dropout', 'lr', 'optimizer', 'width', 'batch_size']);
    expect(hp.map(c => c.usual)).toEqual([true, true, true, true, false]);
  });

  it('has the columns of the space before any trial has a point', () => {
    const space = { lr: { type: 'log', minval: -4, maxval: -1 }, net: { kind: { type: 'categorical', vals: ['a', 'b'] } }, batch: 64, seedling: { type: 'const', val: 'x' } };
    const due = { hparams: {}, point_due: true };
    const table = (...trials: TrialView[]): [string, string, boolean][] => {
      const made = new RowCache().of(trials);
      return columnsOf(made, 'loss', true, () => 0, space).filter(c => c.key.startsWith('hp:')).map(c => [c.title, c.text(made[0]!), c.usual]);
    };
    const later = 'drawn when it starts';
    expect(table(trial(8, 9, due), trial(7, 9, due))).toEqual([['lr', later, true], ['net.kind', later, true], ['batch', later, false], ['seedling', later, false]]);
    const first = { hparams: { lr: 0.1, net: { kind: 'a' }, batch: 64, seedling: 'x' } };
    expect(table(trial(8, 9, first), trial(7, 9, due)).map(([title, , usual]) => [title, usual]), 'the first point hides none')
      .toEqual([['lr', true], ['net.kind', true], ['batch', false], ['seedling', false]]);
    expect(table(trial(1, 9, { ...due, state: 'CANCELED' }))[0]![1]).toBe('none');
    expect(table(trial(8, 9, { hparams: { lr: 1 } })).map(([title]) => title), 'nothing is due: only what there is').toEqual(['lr']);
  });

  it('looks for words, and leaves all else to the language of filters', () => {
    const found = (text: string): number => rows.filter(filterOf(text, columns)).length;
    expect(found('error')).toBe(1);
    expect(found('failed error')).toBe(1);
    expect(found('nothing-like-this')).toBe(0);
    for (const words of ['error', 'adam 0.01', 'node-2']) expect(isWords(words)).toBe(true);
    for (const asked of ['loss < 0.1', 'size>100', 'state = completed', 'state:error', 'loss is null', 'hparams.lr in [1]', '"a b"']) {
      expect(isWords(asked)).toBe(false);
    }
  });

  it('keeps the rows of trials that did not change', () => {
    const cache = new RowCache();
    const [a, b] = [trial(0, 9), trial(1, 9)];
    const first = cache.of([a, b]);
    const second = cache.of([a, { ...b, steps_completed: 1 }]);
    expect(second[0]).toBe(first[0]);
    expect(second[1]).not.toBe(first[1]);
  });
});

function open(of: Partial<FixtureApi['of']> = {}, tab: ExperimentTab = 'trials'): ReturnType<typeof show> & { fixtures: FixtureApi } {
  const fixtures = new FixtureApi({ trials: 20, curves: 20, points: 50, logs: 20, experiments: 2, ...of });
  const shown = show(<ExperimentView id={12} tab={tab} />, {}, { api: fixtures });
  return { ...shown, fixtures };
}

describe('the view', () => {
  it('sorts by a click on a head, and opens a trial by keyboard', async () => {
    const { done } = open();
    const grid = await screen.findByRole('grid');
    fireEvent.click(within(grid).getByRole('button', { name: /^Trial/ }));
    const first = (): string => within(grid).getAllByRole('row')[1]!.textContent!;
    expect(first()).toMatch(/^100/);
    fireEvent.click(within(grid).getByRole('button', { name: /^Trial/ }));
    expect(first()).toMatch(/^119/);
    expect(within(grid).getByRole('columnheader', { name: /Trial/ }).getAttribute('aria-sort')).toBe('descending');
    fireEvent.keyDown(grid, { key: 'ArrowDown' });
    fireEvent.keyDown(grid, { key: 'Enter' });
    expect(done).toEqual(['navigate {"kind":"trial","id":119,"experiment":12}']);
  });

  it('tells what happened, newest first, and leads from it to the trial', async () => {
    const { done } = open({ trials: 8 }, 'events');
    const grid = await screen.findByRole('grid', { name: 'Events of experiment 12' });
    const cells = (row: HTMLElement): (string | null)[] => within(row).getAllByRole('gridcell').map(cell => cell.textContent);
    const ended = within(grid).getAllByText('trial ended')[0]!.closest<HTMLElement>('[role=row]')!;
    expect(cells(ended)).toEqual([formatTime(BEGAN + 145), 'trial ended', '101', '1', 'stopped by the searcher']);
    expect(cells(within(grid).getAllByRole('row')[1]!)).toEqual(cells(ended));
    fireEvent.change(screen.getByRole('searchbox', { name: 'Filter events' }), { target: { value: 'by alice' } });
    await waitFor(() => expect(within(grid).getAllByRole('row').length).toBe(2)); // the head is one
    expect(cells(within(grid).getAllByRole('row')[1]!)).toEqual([formatTime(BEGAN - 30), 'created', '–', '–', 'by alice']);
    fireEvent.change(screen.getByRole('searchbox', { name: 'Filter events' }), { target: { value: 'trial ended trial 1' } });
    await screen.findByText('No event matches the filter.');
    fireEvent.change(screen.getByRole('searchbox', { name: 'Filter events' }), { target: { value: 'trial ended' } });
    fireEvent.click((await within(grid).findAllByText('trial ended'))[0]!);
    expect(done).toEqual(['navigate {"kind":"trial","id":101,"experiment":12}']);
  });

  it('filters by the language of filters, which the master reads, and by words', async () => {
    const { fixtures } = open();
    const get = fixtures.get.bind(fixtures);
    const message = "the filter cannot be read at column 7: a value is missing\n  loss <\n        ^";
    const asked: string[] = [];
    fixtures.get = async <T,>(path: string): Promise<T> => {
      const filter = new URLSearchParams(path.split('?')[1]).get('filter');
      if (path.startsWith('filters/') || filter === null) return get<T>(path);
      asked.push(path);
      if (filter === 'loss <') throw new ApiError(422, { message, problems: [{ path: 'filter', message, hint: null, level: 'error' }] });
      if (path.startsWith('trials?')) return { items: [], columns: [], notes: filter.startsWith('lss') ? ['nothing has a metric lss'] : [], next: null } as T;
      const all = await get<{ items: TrialView[] }>('experiments/12/trials');
      return { items: filter.startsWith('lss') ? [] : all.items.slice(0, 3), next: null } as T;
    };
    await screen.findByRole('grid');
    const box = screen.getByRole('combobox', { name: 'Filter trials' });
    const apply = (text: string): void => {
      fireEvent.change(box, { target: { value: text } });
      fireEvent.click(screen.getByRole('button', { name: 'Filter' }));
    };
    apply('hparams.lr < 0.01');
    await screen.findByText('3 of 20 trials');
    expect(asked[asked.length - 1]).toBe('experiments/12/trials?filter=hparams.lr+%3C+0.01&limit=1000');
    apply('loss <');
    expect([...(await screen.findByRole('alert')).children].map(part => part.textContent).join('\n')).toBe(message);
    apply('lss < 1');
    await screen.findByText('nothing has a metric lss');
    await screen.findByText('No trial matches the filter.');
    const before = asked.length;
    apply('error');
    await screen.findByText('1 of 20 trials');
    expect(asked.length).toBe(before);
  });

  it('moves between tabs by arrow keys', async () => {
    open();
    const tab = await screen.findByRole('tab', { name: /Trials/ });
    fireEvent.keyDown(tab, { key: 'ArrowRight' });
    expect(screen.getByRole('tab', { selected: true }).textContent).toBe('Search');
    expect(screen.getByRole('tabpanel').getAttribute('aria-labelledby')).toBe(screen.getByRole('tab', { selected: true }).id);
  });

  it('follows the stream of the metric it shows', async () => {
    const { fixtures } = open();
    await screen.findByRole('grid');
    const follow = JSON.stringify([{ experiment: 12, group: 'validation', name: 'validation_error' }]);
    await waitFor(() => expect(fixtures.streams).toEqual([`stream?after=1&follow=${encodeURIComponent(follow)}`]));
    act(() => fixtures.say('stream', {
      id: 11, kind: 'experiment', time: 0, experiment_id: 12, trial_id: null, task_id: null, data: { ...experiment({ state: 'PAUSED' }) }
    }));
    await screen.findByText('paused');
  });

  it('asks for the metrics anew when one is to be chosen', async () => {
    const { fixtures } = open();
    await screen.findByRole('grid');
    fireEvent.click(screen.getByRole('tab', { name: /curves/i }));
    const menu = await screen.findByLabelText('Metric');
    const asked = (): number => fixtures.asked.filter(path => /^GET trials\/\d+$/.test(path)).length;
    await waitFor(() => expect(asked()).toBeGreaterThan(0));
    const before = asked();
    fireEvent.focus(menu);
    await waitFor(() => expect(asked()).toBe(before + 1));
  });

  it.each([
    [['NaN', 'Infinity'], false, /^No finite value of loss was reported/],
    [[], true, /^Waiting for the first report of loss/]
  ])('says in place of an empty grid why there is no curve: %j', (values, live, said) => {
    const entries = values.length
      ? [{ curve: curveOf(100, values.map((_, at) => at + 1), values), index: 0, grey: false, best: false }]
      : [];
    const options = { x: 'steps', log: false, smoothing: 0, best: false, focus: false } as const;
    show(
      <LearningCurves data={{ entries, options, origin: 0, smallerIsBetter: true, live }} metric="loss" describe={String} />
    );
    expect(screen.getByText(said)).toBeTruthy();
  });

  it('shows why the first trial of a completed search failed', async () => {
    const { fixtures } = open();
    await screen.findByRole('grid');
    const failure = { kind: 'exception', message: 'ZeroDivisionError', trial_id: 100, rank: null, exit_code: 1, signal: null, where: null, node: null, log_tail: [], hint: null, command: null };
    const base = { time: 0, experiment_id: 12, task_id: null };
    act(() => {
      fixtures.say('stream', { ...base, id: 11, kind: 'trial', trial_id: 100, data: { ...trial(0, 20), id: 100, state: 'ERROR', ended_at: 1, failure } });
      fixtures.say('stream', { ...base, id: 12, kind: 'experiment', trial_id: null, data: { ...experiment({ state: 'COMPLETED', trials: { COMPLETED: 61, ERROR: 3 } }) } });
    });
    await screen.findByText('ZeroDivisionError');
    screen.getByText('3 trials failed, this one first:');
  });

  it('says without alarm that a search has gone as it was asked to', async () => {
    const held = 'the best trial was trained once more: 0.25, where it had 0.2; it keeps the constraints';
    const broken = 'the best trial was trained once more: 0.25, where it had 0.2; it breaks a constraint';
    const { fixtures } = open();
    await screen.findByRole('grid');
    act(() => fixtures.say('stream', {
      id: 11, kind: 'experiment', time: 0, experiment_id: 12, trial_id: null, task_id: null, data: { ...experiment({ warnings: [held, broken] }) }
    }));
    expect((await screen.findByText(held)).dataset['tone']).toBe('off');
    expect((await screen.findByText(broken)).dataset['tone']).toBe('paused');
  });

  it('shows labels and description, and of a failed search how far it came', async () => {
    const { fixtures } = open();
    await screen.findByRole('grid');
    act(() => fixtures.say('stream', {
      id: 11, kind: 'experiment', time: 0, experiment_id: 12, trial_id: null, task_id: null,
      data: { ...experiment({ state: 'ERROR', progress: 0.25, labels: ['nightly'], description: 'A second try' }) }
    }));
    await screen.findByText('#nightly');
    screen.getByText('A second try');
    expect(screen.getByRole('progressbar', { name: 'Progress of the search' }).getAttribute('aria-valuenow')).toBe('25');
  });

  it('shows with whom it is shared, and how', async () => {
    const grant = (kind: 'user' | 'group', name: string, write: boolean): object => ({ kind, name, write, granted_by: 'alice', created_at: 0 });
    open({ grants: { items: [grant('user', 'bob', false), grant('group', 'vision', true)] } as GrantList });
    await screen.findByText('shared with bob, group vision (write)');
  });

  it('takes the snapshot again when the stream asks for a resync', async () => {
    const { fixtures } = open();
    await screen.findByRole('grid');
    const asked = (): number => fixtures.asked.filter(path => path.startsWith('GET experiments/12/curves')).length;
    const before = asked();
    await waitFor(() => expect(fixtures.streams[0]).toMatch(/follow/));
    act(() => fixtures.say('stream', { id: 0, kind: 'resync', time: 0, experiment_id: 12, trial_id: null, task_id: null, data: {} }));
    await waitFor(() => expect(asked()).toBe(before + 1));
  });

  it('pauses at once, and asks before it kills', async () => {
    const { fixtures, done } = open();
    fireEvent.click(await screen.findByRole('button', { name: 'Kill' }));
    await waitFor(() => expect(fixtures.asked).toContain('POST experiments/12/kill'));
    expect(done).toContain('confirm Kill experiment 12?');
    await screen.findByText('being killed');
  });

  it('lets a user whom the owner lets change it pause, kill and activate it, until the stream says that they may only look', async () => {
    const { fixtures } = open({ experiment: { owner: 'carol', may: 'write' } });
    fireEvent.click(await screen.findByRole('button', { name: 'Pause' }));
    await waitFor(() => expect(fixtures.asked).toContain('POST experiments/12/pause'));
    fireEvent.click(await screen.findByRole('button', { name: 'Kill' }));
    await waitFor(() => expect(fixtures.asked).toContain('POST experiments/12/kill'));
    await waitFor(() => expect(fixtures.streams).toHaveLength(1));
    const data = { ...experiment({ owner: 'carol', may: 'read' }) };
    act(() => fixtures.say('stream', { id: 99, kind: 'experiment', time: 0, experiment_id: 12, trial_id: null, task_id: null, data }));
    for (const name of ['Pause', 'Cancel', 'Kill']) {
      const button = screen.getByRole('button', { name });
      // Until what was asked for last is answered, the buttons are disabled for that.
      await waitFor(() => expect(button.title).toMatch(/Read-only: carol can allow you to change it/));
      expect(button.getAttribute('aria-disabled')).toBe('true');
      fireEvent.click(button);
    }
    expect(fixtures.asked.filter(one => one.startsWith('POST'))).toHaveLength(2);
  });

  it('shows names of others as text', async () => {
    const { container } = open({ hostile: true });
    await screen.findByRole('grid');
    expect(container.querySelector('script, img, svg')).toBeNull();
    expect(screen.getByRole('heading', { level: 1 }).textContent).toContain('<script>window.hacked=1</script>');
    expect(screen.getByRole('heading', { level: 1 }).textContent).toContain('⟨U+202E⟩');
    expect(container.textContent).not.toContain('\u202e');
    expect(container.textContent).not.toContain('\u001b');
    expect((window as { hacked?: number }).hacked).toBeUndefined();
    expect(HOSTILE.name).toContain('\u202e');
  });

  it('says when there is nothing yet, and when there is no such experiment', async () => {
    open({ trials: 0, curves: 0, experiment: { best: null, trials: {}, pending_reason: 'no agent is connected' } });
    await screen.findByText('No trials yet.');
    expect(screen.getByText('Queued: no agent is connected')).toBeTruthy();
    open({ refuse: { experiments: 404 } });
    await screen.findByText(/there is no such experiment/);
  });

  it('says what keeps an experiment from being deleted, and what to do', async () => {
    const deletion = { checkpoints: 2, bytes: 10, event_files: false, failure: HOSTILE.name, retry_at: 1, task: 'command-1' };
    const reason = `2 checkpoints (10 B) still stored: ${HOSTILE.name}`;
    const { container } = open({ experiment: { state: 'DELETING', deletion, pending_reason: reason } });
    const said = await screen.findByText(/Deleting: 2 checkpoints/);
    expect(said.textContent).toContain('det experiment delete ');
    expect(container.textContent).not.toContain('\u202e');
    expect(container.textContent).not.toContain('Queued:');
  });

  it('says that there is nothing to compare with one trial, and has an axis beside the metric of the same name', async () => {
    open({ trials: 1, curves: 1 }, 'parallel');
    await screen.findByText('Only one trial so far: nothing to compare.');
    open({ trials: 6, curves: 6, nan: true }, 'parallel');
    await screen.findByLabelText('Range of validation_error (hyperparameter)');
    expect(screen.getByLabelText('Range of validation_error')).toBeTruthy();
  });

  it('draws a hyperparameter that is searched by powers on a logarithmic axis, one of choices by its choices', async () => {
    const { container } = open({ trials: 3, curves: 3 }, 'parallel');
    const axis = async (name: string): Promise<Element> => (await screen.findByLabelText(`Range of ${name}`)).closest('g')!;
    expect((await axis('lr')).querySelector('title')!.textContent).toBe('lr (logarithmic): everything');
    expect((await axis('lr')).querySelector('.det-axis-kind')!.textContent).toBe('log');
    expect((await axis('width')).querySelector('title')!.textContent).toBe('width: everything');
    const choices = [...(await axis('optimizer')).querySelectorAll('.det-axis-tick')].map(tick => tick.textContent);
    expect(choices.length).toBeGreaterThan(1);
    expect(['adam', 'sgd', 'adamw'].filter(name => choices.includes(name))).toEqual(choices);
    expect(container.querySelector('.det-axis-metric title')!.textContent).toMatch(/^validation_error/);
  });

  it('downloads a whole checkpoint as one archive, unless its files were deleted', async () => {
    const { container } = open({}, 'checkpoints');
    await screen.findAllByRole('link', { name: /^Download all files of the checkpoint/ });
    const items = [...container.querySelectorAll('.det-checkpoint')];
    const links = items.map(item => item.querySelector('a.det-button'));
    const uuid = items[0]!.querySelector('.det-checkpoint-uuid')!.textContent!;
    expect(links[0]!.getAttribute('href')).toBe(`/api/v1/checkpoints/${uuid}/archive`);
    expect(links[0]!.getAttribute('download')).toBe(`checkpoint-${uuid}.tar`);
    const gone = items.map(item => item.textContent!.includes('files deleted'));
    expect(gone).toContain(true);
    expect(links.map(link => link === null)).toEqual(gone);
  });

  it('tells an experiment that has no checkpoint yet from one that has ended without any', async () => {
    const goesOn = open({ trials: 0 }, 'checkpoints');
    await screen.findByText('No checkpoints yet.');
    goesOn.unmount();
    open({ trials: 0, experiment: { state: 'COMPLETED', ended_at: BEGAN + 60 } }, 'checkpoints');
    await screen.findByText('No checkpoints were saved.');
    expect(screen.queryByText('No checkpoints yet.')).toBeNull();
  });

  it('downloads checkpoint files by digest', async () => {
    open({}, 'checkpoints');
    const links = await screen.findAllByText('model_0.safetensors');
    expect(links[0]!.getAttribute('href')).toMatch(/^\/api\/v1\/checkpoints\/[0-9a-f-]+\/files\/sha256%3A[0-9a-d]+$/);
  });
});

describe('what is shown while the stream is lost', () => {
  afterEach(() => { vi.useRealTimers(); });

  it('says after a moment why it is not live and when it is tried again, and does not flicker meanwhile', () => {
    vi.useFakeTimers();
    const retry = vi.fn();
    const lost = { kind: 'lost', error: new ApiError(0, { message: 'the cluster closed the connection' }), retryAt: Date.now() + 6000 } as const;
    const { rerender, container } = show(<LinkNotice link={lost} onRetry={retry} />);
    const notice = (link: Parameters<typeof LinkNotice>[0]['link']): string => {
      rerender(<LinkNotice link={link} onRetry={retry} />);
      return container.textContent!;
    };
    expect(notice(lost)).toBe('');
    act(() => void vi.advanceTimersByTime(2000));
    const why = 'Not live: the cluster closed the connection. Showing the last known state. Trying again';
    expect(notice(lost)).toBe(`${why} in 4 s.Retry now`);
    act(() => void vi.advanceTimersByTime(1000));
    expect(notice(lost)).toBe(`${why} in 3 s.Retry now`);
    expect(notice({ kind: 'opening' })).toBe(`${why} …Retry now`);
    expect(notice({ ...lost, retryAt: Date.now() + 9000 })).toBe(`${why} in 9 s.Retry now`);
    fireEvent.click(screen.getByRole('button', { name: 'Retry now' }));
    expect(retry).toHaveBeenCalledOnce();
    expect(notice({ kind: 'open' })).toBe('');
  });
});

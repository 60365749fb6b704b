import { fireEvent, screen, waitFor, within } from '@testing-library/react';
import { describe, expect, it } from 'vitest';

import { FixtureApi } from '../../harness/api';
import type { Api } from '../../state/api';
import type { AppContext } from '../../state/context';
import type { RunComparison, SeriesView } from '../../state/wire';
import { placeOf, pathOf } from '../../hub/router';
import { show } from '../../testing/app';
import { xLabel } from '../charts/axes';
import { projection } from '../charts/layer';
import { diffOf } from './CompareFiles';
import { CompareRuns, compareLink } from './index';
import { DEFAULTS, MOST_CHARTS, namesIn, numbersIn, read, written } from './link';
import { bestPlaces, coloursOf, groupsOf, interpolated, linesOf, sidesOf } from './model';
import { chosenFields, figureOf, safe } from './plots';

const RUN = '3f9a1b2c4d5e6f708192a3b4c5d6e7f8';
const CASE = { trials: 12, curves: 12, points: 60, logs: 1, experiments: 1 };

function opened(view = '', { trials = [100, 101, 102], experiments = [] as number[], runs = [] as string[], hostile = false, over = {} as Partial<AppContext> } = {}): ReturnType<typeof show> & { fixture: FixtureApi } {
  const fixture = new FixtureApi({ ...CASE, hostile });
  return { ...show(<CompareRuns trials={trials} experiments={experiments} runs={runs} view={view} />, {}, { api: fixture as Api, ...over }), fixture };
}

describe('the address of a comparison', () => {
  it('has all ids and options, and reads back as it was written', () => {
    const options = {
      ...DEFAULTS, tab: 'system' as const, x: 'epochs' as const, log: true, logX: true, smoothing: 0.6, metrics: ['validation.a&b=c', 'training.x,y'],
      colour: 'lr', group: 'hp.opt.name', statistic: 'max' as const, all: true, plot: 'heatmap' as const, px: 'hp.lr', py: 'hp.<b>', pz: 'metric.validation.a',
      hidden: ['t12', 'e3', `r${RUN}`], left: 2, right: 0
    };
    const place = compareLink({ trials: [12, 15, 12], experiments: [3], runs: [RUN, RUN] }, options);
    const path = pathOf(place);
    expect(path.startsWith(`compare?trials=12,15&experiments=3&runs=${RUN}&`)).toBe(true);
    const [bare, search] = path.split('?') as [string, string];
    expect(placeOf(bare, search)).toEqual(place);
    expect(read(search)).toEqual(options);
    expect(pathOf(compareLink({ trials: [1] }))).toBe('compare?trials=1');
    expect(path).not.toMatch(/token/i);
  });

  it('of anybody sets nothing that no option can be', () => {
    const odd = `tab=<script>&x=constructor&smoothing=5&hidden=t1,x2,__proto__,e${'9'.repeat(40)}&left=-1&right=999&log=yes&token=secret&metric=${'m'.repeat(2000)}&${Array.from({ length: 30 }, (_, i) => `metric=g.${i}`).join('&')}`;
    const found = read(odd);
    expect({ ...found, metrics: [] }).toEqual({ ...DEFAULTS, hidden: ['t1'] });
    expect(found.metrics).toHaveLength(MOST_CHARTS);
    expect(written(found)).not.toContain('secret');
    expect(numbersIn('12, 15;x 12 -3 99999999999999999999')).toEqual({ found: [12, 15], wrong: ['x', '-3', '99999999999999999999'] });
    expect(namesIn('3f9a, my-run.2 ../x <b>')).toEqual({ found: ['3f9a', 'my-run.2'], wrong: ['../x', '<b>'] });
  });
});

describe('the page', () => {
  it('draws a chart for each metric, of all runs in one request', async () => {
    const { fixture } = opened('', { experiments: [4] });
    await waitFor(() => expect(screen.getAllByRole('group', { name: /^Curves of/ })).toHaveLength(4));
    expect(screen.getByText('3 trials, 1 experiment')).toBeTruthy();
    const asked = fixture.asked.filter(path => path.includes('comparison/curves'));
    expect(asked).toHaveLength(4);
    expect(asked[0]).toContain('trials=100,101,102,104,105,106&group=validation');
    const legend = screen.getByRole('list', { name: 'Legend' });
    expect(within(legend).getAllByRole('button').map(one => one.textContent)).toEqual(
      ['trial 100 · digits search', 'trial 101 · digits search', 'trial 102 · digits search', 'experiment 4 · digits 4']
    );
  });

  it('says of what the reader may not see its id alone', async () => {
    opened('', { trials: [100, 901], experiments: [902, 903] });
    expect(await screen.findByText('Trial 901; Experiments 902, 903: not there, or not yours to see.')).toBeTruthy();
    expect(screen.getByText('1 trial')).toBeTruthy();
  });

  it('draws runs from anywhere beside trials, and leads to them', async () => {
    const { fixture, done } = opened('', { trials: [100], runs: [RUN, 'absent'] });
    await waitFor(() => expect(screen.getAllByRole('group', { name: /^Curves of/ })).toHaveLength(4));
    expect(screen.getByText('1 trial, 1 run')).toBeTruthy();
    expect(screen.getByText('Run absent: not there, or not yours to see.')).toBeTruthy();
    const asked = fixture.asked.filter(path => path.includes('comparison/curves'));
    expect(asked[0]).toContain(`trials=100&runs=${RUN}&group=validation`);
    expect(within(screen.getByRole('list', { name: 'Legend' })).getAllByRole('button').map(one => one.textContent)).toEqual(['trial 100 · digits search', `run ${RUN.slice(0, 8)} · baseline on a laptop`]);
    fireEvent.click(screen.getByRole('tab', { name: /Hyperparameters/ }));
    fireEvent.click(await screen.findByRole('button', { name: /^run 3f9a/ }));
    fireEvent.click(screen.getByRole('button', { name: /^Leave out run/ }));
    expect(done.map(text => JSON.parse(text.replace('navigate ', '')) as object)).toMatchObject([{ kind: 'run', id: RUN }, { trials: [100], runs: ['absent'] }]);
  });

  it('of runs alone says where their code is, and adds others by their ids', async () => {
    const { done } = opened('tab=code', { trials: [], runs: [RUN] });
    expect(await screen.findByText(/on the tab Code of their own pages/)).toBeTruthy();
    expect(screen.getByRole<HTMLSelectElement>('combobox', { name: 'Kind' }).value).toBe('runs');
    fireEvent.change(screen.getByLabelText('Ids'), { target: { value: '<b>' } });
    expect(screen.getByRole('button', { name: 'Add' }).getAttribute('title')).toContain('“<b>” is no id of a run.');
    fireEvent.change(screen.getByLabelText('Ids'), { target: { value: 'my-run' } });
    fireEvent.submit(screen.getByRole('form', { name: 'Add runs' }));
    expect(done.at(-1)).toContain(`"runs":["${RUN}","my-run"]`);
  });

  it('says which words of an address name nothing', async () => {
    const place = placeOf('compare', 'trials=abc,100&experiments=-1&runs=..%2Fx');
    expect(place).toMatchObject({ trials: [100], experiments: [], wrong: ['abc', '-1', '../x'] });
    const fixture = new FixtureApi(CASE);
    show(<CompareRuns {...place as Parameters<typeof CompareRuns>[0]} />, {}, { api: fixture as Api });
    expect(await screen.findByText(/“abc”, “-1”, “\.\.\/x” in the address name nothing, and are left out/)).toBeTruthy();
    await waitFor(() => expect(screen.getByText('1 trial')).toBeTruthy());
    expect(pathOf(place)).toBe('compare?trials=100');
  });

  it('keeps its options in the address, where the host can replace it', async () => {
    const replaced: string[] = [];
    opened('tab=curves', { over: { settle: place => void replaced.push(pathOf(place)) } });
    fireEvent.change(await screen.findByLabelText('over'), { target: { value: 'wall' } });
    fireEvent.click(screen.getByRole('button', { name: /trial 101/ }));
    expect(replaced).toEqual(['compare?trials=100,101,102&x=wall', 'compare?trials=100,101,102&hidden=t101']);
  });

  it('in JupyterLab keeps them itself, and copies the address of the page of the Hub', async () => {
    const { fixture } = opened('');
    fireEvent.change(await screen.findByLabelText('over'), { target: { value: 'epochs' } });
    await waitFor(() => expect(fixture.asked.some(path => path.includes('epochs'))).toBe(true));
    expect(screen.getByRole('button', { name: 'Copy link' })).toBeTruthy();
  });

  it('shows metrics with the best marked, and other values on request', async () => {
    opened('tab=metrics');
    const table = await screen.findByRole('region', { name: 'Metrics' });
    expect(within(table).getAllByText('best', { exact: false }).length).toBe(1);
    fireEvent.change(screen.getByLabelText('Value'), { target: { value: 'max' } });
    await waitFor(() => expect(within(table).queryAllByText('0.9000').length).toBeGreaterThan(3));
    fireEvent.change(screen.getByLabelText('Filter metrics'), { target: { value: 'training' } });
    expect(within(table).getAllByRole('row')).toHaveLength(3);
  });

  it('shows hyperparameters that differ first, and all on request', async () => {
    opened('tab=hyperparameters');
    expect(await screen.findByRole('rowheader', { name: 'lr' })).toBeTruthy();
    expect(screen.queryByRole('rowheader', { name: 'batch_size' })).toBeNull();
    fireEvent.click(screen.getByRole('button', { name: 'Only differences' }));
    expect(await screen.findByRole('rowheader', { name: 'batch_size' })).toBeTruthy();
  });

  it('shows all digits of settings that are whole numbers, and counts on the tab what its table counts', async () => {
    const data = await new FixtureApi(CASE).get<RunComparison>('comparison?trials=100,101,102');
    const seeds = { name: 'reproducibility.experiment_seed', values: [2045827699, 2045827700, 2045827699], same: false };
    const config = [seeds, { name: 'hyperparameters.lr.val', values: [1, 2, 3], same: false }, { name: 'searcher.name', values: ['a', 'a', 'a'], same: true }];
    const api = { get: async (path: string) => (path.startsWith('comparison?') ? { ...data, config } : new FixtureApi(CASE).get(path)) };
    show(<CompareRuns trials={[100, 101, 102]} experiments={[]} view="tab=config" />, {}, { api: api as unknown as Api });
    const row = (await screen.findByRole('rowheader', { name: /experiment_seed/ })).closest('tr')!;
    expect(within(row).getAllByRole('cell').map(cell => cell.textContent)).toEqual(['2045827699', '2045827700', '2045827699']);
    expect(screen.getByText('1 of 2 differ')).toBeTruthy();
    expect(screen.getByRole('tab', { name: /Config/ }).textContent).toBe('Config1');
  });

  it('adds to experiments experiments', async () => {
    opened('', { trials: [], experiments: [4, 5] });
    expect((await screen.findByRole<HTMLSelectElement>('combobox', { name: 'Kind' })).value).toBe('experiments');
  });

  it('leaves a run out and adds others', async () => {
    const { done } = opened('tab=hyperparameters&all=1');
    fireEvent.click(await screen.findByRole('button', { name: 'Leave out trial 101' }));
    fireEvent.change(screen.getByLabelText('Kind'), { target: { value: 'experiments' } });
    fireEvent.change(screen.getByLabelText('Numbers'), { target: { value: '7, 8' } });
    fireEvent.submit(screen.getByRole('form', { name: 'Add runs' }));
    const places = done.map(text => JSON.parse(text.replace('navigate ', '')) as { trials: number[]; experiments: number[]; view: string });
    expect(places.map(({ trials, experiments, view }) => [trials, experiments, view])).toEqual([
      [[100, 102], [], 'tab=hyperparameters&all=1'], [[100, 101, 102], [7, 8], 'tab=hyperparameters&all=1']
    ]);
  });

  it('compares config and code of two experiments line by line', async () => {
    opened('tab=code');
    expect(await screen.findByText('+lr = 0.2')).toBeTruthy();
    expect(screen.getByText('only in experiment 13')).toBeTruthy();
    expect(screen.getByLabelText('From')).toBeTruthy();
  });

  it('teaches what to do where nothing is chosen', () => {
    opened('', { trials: [] });
    expect(screen.getByText('No runs are chosen.')).toBeTruthy();
    expect(screen.getByText('%det_compare 12 15')).toBeTruthy();
  });

  it('shows hostile names as text on every tab', async () => {
    for (const tab of ['curves', 'metrics', 'hyperparameters&all=1', 'config', 'code', 'plots']) {
      const { container, unmount } = opened(`tab=${tab}`, { hostile: true });
      await screen.findByRole('tabpanel');
      await waitFor(() => expect(container.textContent).toContain('<script>window.hacked=1'));
      expect(container.querySelector('script, img, svg[onload]')).toBeNull();
      expect(container.textContent).not.toContain('\u202e');
      unmount();
    }
  });
});

const run = (id: number, hparams: Record<string, unknown>, more = {}): RunComparison['runs'][number] => ({
  kind: 'trial', id, run_id: '', experiment_id: 1, name: 'x', owner: 'alice', labels: [], state: 'COMPLETED', trial_ids: [id], index: 0, seed: 0, seeds: 1, metric: 'loss',
  smaller_is_better: true, best: null, deviation: null, hparams, steps_completed: 0, created_at: 0, started_at: 100, ended_at: null, bundle: null, shortened: [], ...more
});
const curve = (trial: number, steps: number[], values: number[]): SeriesView =>
  ({ trial_id: trial, group: 'validation', name: 'loss', steps, values, times: steps.map(step => 100 + 10 * step), total: steps.length });

describe('the scatter', () => {
  it('begins with a hyperparameter that all runs have and that differs, not with one of a single run', () => {
    const field = (key: string, values: (number | null)[]): { key: string; label: string; values: (number | null)[]; numeric: boolean } => ({ key, label: key, values, numeric: true });
    const fields = [field('hp.alpha', [null, 5e-4, null]), field('hp.lr', [0.1, 0.2, 0.3]), field('metric.validation.loss', [1, 2, 3])];
    const chosen = chosenFields(fields, { ...DEFAULTS, plot: 'scatter' });
    expect([chosen.x?.key, chosen.y?.key]).toEqual(['hp.lr', 'metric.validation.loss']);
    expect(chosenFields(fields.slice(0, 1), { ...DEFAULTS, plot: 'scatter' }).x?.key).toBe('hp.alpha');
  });
});

describe('lines', () => {
  it('of a group are their mean and standard deviation, where two have a value', () => {
    const sides = sidesOf([run(1, { lr: 0.1 }), run(2, { lr: 0.1 }), run(3, { lr: 0.2 })]);
    const series = [curve(1, [1, 2, 4], [1, 2, 4]), curve(2, [1, 3], [3, 5]), curve(3, [1], [7])];
    const [first, second] = linesOf(sides, series, new Map(), { ...DEFAULTS, group: 'hp.lr' });
    expect([first!.name, second!.name]).toEqual(['lr 0.1 (mean of 2)', 'lr 0.2']);
    expect(first!.curve.steps).toEqual([1, 2, 3]);
    expect(first!.curve.values).toEqual([2, 3, 4]);
    expect(first!.band!.high[0]).toBeCloseTo(2 + Math.SQRT2);
    expect(second!.curve.values).toEqual([7]);
  });

  it('of an experiment with seeds are the mean of its trials', () => {
    const sides = sidesOf([run(9, {}, { kind: 'experiment', trial_ids: [1, 2] })]);
    const [line] = linesOf(sides, [curve(1, [1], [1]), curve(2, [1], [3])], new Map(), DEFAULTS);
    expect([line!.name, line!.curve.values]).toEqual(['experiment 9 (mean of 2)', [2]]);
  });

  it('begin at the start of each run, at the time of day, or count epochs', () => {
    const sides = sidesOf([run(1, {})]);
    const series = [curve(1, [1, 2, 30], [1, 1, 1])];
    const epochs = new Map([['t1', curve(1, [0, 20], [0, 4])]]);
    const places = (x: 'time' | 'wall' | 'epochs'): number[] => linesOf(sides, series, epochs, { ...DEFAULTS, x })[0]!.curve.times;
    expect(places('time')).toEqual([10, 20, 300]);
    expect(places('wall')).toEqual([110, 120, 400]);
    expect(places('epochs')).toEqual([0.2, 0.4, NaN]);
    expect(interpolated([], [], 1)).toBeNaN();
  });

  it('have the colour of their value of a hyperparameter', () => {
    const sides = sidesOf([run(1, { lr: 0.1, opt: 'a' }), run(2, { lr: 0.2, opt: 'b' }), run(3, { lr: 0.1, opt: 'a' }), run(4, {})]);
    for (const name of ['lr', 'opt']) {
      const [one, two, three, none] = [...coloursOf(sides, name).values()];
      expect(one).toBe(three);
      expect(one).not.toBe(two);
      expect(none).not.toBe(one);
    }
    expect(new Set(coloursOf(sidesOf(Array.from({ length: 50 }, (_, i) => run(i, {}))), '').values()).size).toBe(50);
    expect(groupsOf(sides, 'experiment')).toHaveLength(1);
  });
});

describe('axes', () => {
  it('of logarithms have equal factors at equal distances, on both', () => {
    const at = projection({ width: 100, height: 100, x: [1, 100], y: [1, 100], log: true, logX: true, ratio: 1 });
    expect([at.x(10), at.y(10)]).toEqual([50, 50]);
    expect(at.x(0)).toBeNaN();
    expect(xLabel(90_000, 'steps')).toBe('step 90000');
  });
});

describe('tables', () => {
  it('mark the best where it is known what is better', () => {
    const row = { group: 'validation', name: 'loss', smaller_is_better: true as boolean | null, values: [2, 1, 'NaN' as const, null].map(best => (best === null ? null : { best, last: null, min: null, max: null, deviation: null })) };
    expect([...bestPlaces(row, 'best')]).toEqual([1]);
    expect([...bestPlaces({ ...row, smaller_is_better: false }, 'best')]).toEqual([0]);
    expect([...bestPlaces({ ...row, smaller_is_better: null }, 'best')]).toEqual([]);
  });
});

describe('texts', () => {
  it('are compared within bounds', () => {
    expect(diffOf(['a\n', 'a\n'], ['l', 'r'])).toBe('');
    expect(diffOf(['a\nb\n', 'a\nc\n'], ['l', 'r'])).toContain('-b\n+c');
    expect(diffOf(['x'.repeat(500_000), 'y'], ['l', 'r'])).toBeNull();
    const before = Array.from({ length: 9000 }, (_, i) => `${i}\n`).join('');
    const began = performance.now();
    expect(diffOf([before, before.replace(/\n/g, ' x\n')], ['l', 'r'])).toBeNull();
    expect(performance.now() - began).toBeLessThan(20_000);
  });
});

describe('figures', () => {
  const data = (name: string): RunComparison => ({
    runs: [], absent_trials: [], absent_experiments: [], absent_runs: [], config: [], metrics_left_out: 0, next: null,
    hyperparameters: [{ name, values: [1, 2], same: false }, { name: 'opt', values: ['<b>', 'a'], same: false }],
    metrics: [{ group: 'validation', name: 'loss', smaller_is_better: true, values: [1, 'Infinity' as const].map(best => ({ best, last: 1, min: 1, max: 1, deviation: null })) }]
  });

  it('hold no markup, formula or template of users', () => {
    const name = '<img src=x>$x^2$%{y}';
    const sides = sidesOf([run(1, { [name]: 1, opt: '<b>' }), run(2, { [name]: 2, opt: 'a' })]);
    for (const plot of ['scatter', 'heatmap', 'histogram'] as const) {
      const text = JSON.stringify(figureOf(data(name), sides, { ...DEFAULTS, plot, px: plot === 'histogram' ? 'hp.opt' : `hp.${name}`, py: plot === 'scatter' ? 'hp.opt' : '' }));
      expect(text).not.toMatch(/<img|<b>|\$|%\{/);
      expect(text.length).toBeGreaterThan(100);
    }
    expect(safe('a$b')).toBe('a&#36;b');
  });

  it('draw runs that have both values, and say why there are none', () => {
    const sides = sidesOf([run(1, { lr: 1, opt: 'a' }), run(2, { lr: 2, opt: 'b' })]);
    expect((figureOf(data('lr'), sides, DEFAULTS).data[0] as { x: number[] }).x).toEqual([1]);
    expect(figureOf({ ...data('lr'), hyperparameters: [], metrics: [] }, sides, DEFAULTS).data).toEqual([]);
  });
});

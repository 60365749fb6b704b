/** Points of a search with seeds, as the table and the parallel coordinates show them. */

import { expect, test } from 'vitest';

import { experiment, trial } from '../../../harness/fixtures';
import { curveOf } from '../../charts/curve';
import { meansOf } from '../CurvesTab';
import { seededFront } from './metriccolumns';
import { bestPointText, pointsOf, seedsOf, spreadText, withPoints } from './seeds';
import { columnsOf, type TrialRow } from './trialtable';

const VALUES = [[0.1, 0.1], [0.1, 0.9], [0.2, 0.25], [0.2, 0.35], [0.3, 0.01]] as const;
const ROWS: TrialRow[] = VALUES.map(([lr, value], at) => ({ trial: { ...trial(at, 9), index: at, best_validation: value }, hparams: { lr } }));

test('trials with the same hyperparameters are a point: its mean, the deviation of its sample', () => {
  const points = pointsOf(ROWS);
  expect(points.map(spreadText)).toEqual(['0.5000 ± 0.57', '0.3000 ± 0.071', '0.01000']);
  expect(pointsOf([{ ...ROWS[0]!, trial: { ...ROWS[0]!.trial, best_validation: null } }]).map(spreadText)).toEqual(['–']);
});

test('trials that have no hyperparameters yet are no seeds of one point', () => {
  const due = [7, 8].map(at => ({ trial: trial(at, 9, { point_due: true }), hparams: {} }));
  expect(pointsOf(due).map(point => point.rows.length)).toEqual([1, 1]);
});

test('the best point has the best mean of two seeds or more', () => {
  const ids = [2, 3].map(at => ROWS[at]!.trial.id).join(', ');
  expect(bestPointText(withPoints(ROWS, 2), true)).toBe(`best point 0.3000 ± 0.071 (trials ${ids})`);
  expect(bestPointText(withPoints(ROWS, 1), true)).toBeNull();
});

test('the table has a column of means only with seeds', () => {
  const titles = (seeds: number): string[] => columnsOf(withPoints(ROWS, seeds), 'loss', true, () => 0).map(column => column.title);
  expect(titles(2)).toContain('Mean ± sd');
  expect(titles(1)).not.toContain('Mean ± sd');
  expect(seedsOf({ ...experiment(), config: { searcher: { name: 'random', seeds: 3 } } as never })).toBe(3);
  expect(seedsOf({ ...experiment(), config: null })).toBe(1);
});

test('a Pareto front is that of the means, and all trials of its points are on it', () => {
  const e = { ...experiment(), config: { searcher: { name: 'random', seeds: 2, metrics: [{ name: 'loss' }, { name: 'size' }] } } } as never;
  const [one, two, three, four] = ROWS.map(row => row.trial.id) as [number, number, number, number];
  const last = (loss: number, size: number): Map<string, number> => new Map([['loss', loss], ['size', size]]);
  // The first trial is the best of all by its loss; its point is not.
  const values = new Map([[one, last(0.1, 9)], [two, last(0.9, 9)], [three, last(0.3, 5)], [four, last(0.3, 5)]]);
  expect([...seededFront(e, values, withPoints(ROWS.slice(0, 4), 2))]).toEqual([three, four]);
  expect([...seededFront(e, values, ROWS.slice(0, 4))]).toContain(one);
});

test('curves of the trials of a point are one, with the best mean as the best', () => {
  const drawn = ROWS.slice(0, 4).map(({ trial: of }) => ({
    trial: { ...of, hparams: { lr: of.index < 2 ? 0.1 : 0.2 } }, curve: curveOf(of.id, [1, 2], [of.best_validation as number, 1])
  }));
  const points = meansOf(drawn, { ...experiment(), smaller_is_better: true }, 'steps');
  expect(points.map(({ name }) => name)).toEqual([[0, 1], [2, 3]].map(at => `mean of trials ${at.map(i => ROWS[i]!.trial.id).join(', ')}`));
  expect(points.map(({ entry }) => entry.best)).toEqual([false, true]);
  expect(points[0]!.entry.curve.values[0]).toBeCloseTo(0.5);
  expect(points[0]!.entry.band!.low[0]).toBeCloseTo(0.5 - 0.8 / Math.SQRT2);
});

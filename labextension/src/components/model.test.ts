/** The state of the live view: increments that fit, increments that were missed. */

import { describe, expect, it } from 'vitest';

import { CurvePart, Update, View } from './model';

function update(more: Partial<Update>): Update {
  const experiment = { ended: false } as Update['experiment'];
  return { experiment, header: [], trials: [], drawn: [1], count: 1, curves: [], ...more };
}

function part(from: number, steps: number[]): CurvePart {
  return { trial: 1, from, steps, values: steps.map(step => step / 10), gaps: [] };
}

describe('the live view', () => {
  it('folds increments in', () => {
    const view = new View();
    expect(view.apply(update({ curves: [part(0, [1, 2])], lengths: [2] }))).toBe(true);
    expect(view.apply(update({ curves: [part(2, [3])], lengths: [3] }))).toBe(true);
    expect(view.curves.get(1)?.steps).toEqual([1, 2, 3]);
  });

  it('asks for the whole when points before an increment are missing', () => {
    const view = new View();
    expect(view.apply(update({ curves: [part(2, [3])] }))).toBe(false);
    expect(view.apply(update({ curves: [part(0, [1, 2, 3])], lengths: [3], whole: true }))).toBe(true);
  });

  it('asks for the whole when the last increment was missed and none comes any more', () => {
    const view = new View();
    view.apply(update({ curves: [part(0, [1, 2])], lengths: [2] }));
    expect(view.apply(update({ lengths: [5] }))).toBe(false);
    expect(view.apply(update({ drawn: [1, 2], lengths: [2, 4] }))).toBe(false);
  });

  it('takes what older versions have saved, which do not tell lengths', () => {
    expect(new View().apply(update({ curves: [part(0, [1])] }))).toBe(true);
  });
});

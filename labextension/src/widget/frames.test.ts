/** The state of the live view: frames that fit, frames that were missed. */

import { describe, expect, it } from 'vitest';

import { CurvePart, Frame, View } from './frames';

function frame(more: Partial<Frame>): Frame {
  const experiment = { ended: false } as Frame['experiment'];
  return { experiment, header: [], trials: [], drawn: [1], lengths: [0], count: 1, curves: [], ...more };
}

function part(from: number, steps: number[], gaps: number[] = []): CurvePart {
  return { trial: 1, from, steps, values: steps.map(step => step / 10), gaps };
}

describe('the live view', () => {
  it('folds frames in', () => {
    const view = new View();
    expect(view.apply(frame({ curves: [part(0, [1, 2])], lengths: [2] }))).toBe(true);
    const curve = view.curves.get(1)!;
    expect(view.apply(frame({ curves: [part(2, [3])], lengths: [3] }))).toBe(true);
    expect(view.curves.get(1)).toBe(curve);
    expect([curve.steps, curve.values, curve.version]).toEqual([[1, 2, 3], [0.1, 0.2, 0.3], 0]);
    expect(view.points).toBe(3);
  });

  it('replaces points that a later run reported anew, and marks the gap', () => {
    const view = new View();
    view.apply(frame({ curves: [part(0, [1, 2, 3])], lengths: [3] }));
    expect(view.apply(frame({ curves: [part(2, [4, 5], [2])], lengths: [4] }))).toBe(true);
    const curve = view.curves.get(1)!;
    expect([curve.steps, curve.gaps]).toEqual([[1, 2, 4, 5], [2]]);
    expect(curve.version).toBeGreaterThan(0);
  });

  it('drops the curves of trials that are not drawn any more', () => {
    const view = new View();
    view.apply(frame({ curves: [part(0, [1])], lengths: [1] }));
    expect(view.apply(frame({ drawn: [], lengths: [] }))).toBe(true);
    expect(view.curves.size).toBe(0);
  });

  it('asks for a snapshot when points before a frame are missing', () => {
    const view = new View();
    expect(view.apply(frame({ curves: [part(2, [3])], lengths: [3] }))).toBe(false);
    expect(view.apply(frame({ curves: [part(0, [1, 2, 3])], lengths: [3], whole: true }))).toBe(true);
  });

  it('asks for a snapshot when the last frame was missed and none follows', () => {
    const view = new View();
    view.apply(frame({ curves: [part(0, [1, 2])], lengths: [2] }));
    expect(view.apply(frame({ lengths: [5] }))).toBe(false);
    expect(view.apply(frame({ drawn: [1, 2], lengths: [2, 4] }))).toBe(false);
  });
});

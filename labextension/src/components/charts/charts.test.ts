/** Curves: folding of reports, axes, lines near the pointer; parallel coordinates. */

import { tickTexts } from '../common/format';
import { describe, expect, it } from 'vitest';

import { extent, focused, incumbent, linearTicks, logTicks, padded, smooth, steady } from './axes';
import { COLORS, FEW } from './colours';
import { addPoint, curveOf, emptyCurve, finite, noteInfinite, reportedAt, thin } from './curve';
import type { Entry } from './curvechart';
import { Drawable, drawLines, Frame, lowerBound, nearest, projection } from './layer';
import { coloured } from './LearningCurves';
import { axesOf, brushText, flatten, Item, moved, place, ticks, valueAt, within } from './parallel';
import { brushKey } from './ParallelCoordinates';
import { fileName } from './save';
import { scalesOf } from './scales';
import { legendElements, pictureOf, SvgPen, textElement } from './svg';

describe('a curve', () => {
  it('takes reports in order and each once', () => {
    const curve = emptyCurve(1);
    expect(addPoint(curve, 10, 0.5, 1, 1)).toBe(true);
    expect(addPoint(curve, 20, 0.4, 2, 1)).toBe(true);
    expect(addPoint(curve, 20, 0.4, 2, 1)).toBe(false);
    expect(addPoint(curve, 15, 0.9, 3, 1)).toBe(false);
    expect([curve.steps, curve.values]).toEqual([[10, 20], [0.5, 0.4]]);
    expect(curve.version).toBe(0);
  });

  it('lets a later run replace what an earlier one said beyond the step it resumed from, and marks a gap', () => {
    const curve = emptyCurve(1);
    for (const step of [10, 20, 30, 40]) addPoint(curve, step, step / 100, step, 1);
    addPoint(curve, 30, 0.7, 50, 2);
    addPoint(curve, 40, 0.6, 60, 2);
    expect(curve.steps).toEqual([10, 20, 30, 40]);
    expect(curve.values).toEqual([0.1, 0.2, 0.7, 0.6]);
    expect(curve.gaps).toEqual([2]);
    expect(addPoint(curve, 50, 9, 70, 1)).toBe(false);
  });

  it('tells infinity from NaN, though neither has a place in a chart', () => {
    const curve = curveOf(1, [10, 20, 30], [3, 'Infinity', 'NaN']);
    expect(curve.values.slice(1)).toEqual([NaN, NaN]);
    expect([0, 1, 2].map(at => reportedAt(curve, at))).toEqual([3, Infinity, NaN]);
    noteInfinite(curve, 20, 'NaN');
    expect(reportedAt(curve, 1)).toBeNaN();
    addPoint(curve, 40, finite('-Infinity'), 4, 3);
    noteInfinite(curve, 40, '-Infinity');
    expect(reportedAt(curve, 3)).toBe(-Infinity);
  });

  it('has no gap where a later run goes on with the next step, as after a pause', () => {
    const curve = emptyCurve(1);
    for (const step of [10, 20]) addPoint(curve, step, step / 100, step, 1);
    for (const step of [30, 40]) addPoint(curve, step, step / 100, step, 2);
    expect([curve.steps, curve.gaps, curve.version]).toEqual([[10, 20, 30, 40], [], 0]);
  });

  it('goes on from a snapshot, which does not say its run', () => {
    const curve = curveOf(1, [10, 20, 30], [3, 2, 'NaN'], [1, 2, 3]);
    expect(curve.values[2]).toBeNaN();
    addPoint(curve, 40, 1, 4, 3);
    expect(curve.gaps).toEqual([]);
    expect(curve.steps).toEqual([10, 20, 30, 40]);
  });

  it('is thinned with its ends and extremes exact', () => {
    const curve = emptyCurve(1);
    for (let i = 0; i < 501; i += 1) addPoint(curve, i, i === 300 ? -5 : i === 301 ? 9 : 1, i, 1);
    thin(curve, 100);
    expect(curve.steps.length).toBeLessThanOrEqual(100);
    expect([curve.steps[0], curve.steps[curve.steps.length - 1]]).toEqual([0, 500]);
    expect([Math.min(...curve.values), Math.max(...curve.values)]).toEqual([-5, 9]);
  });

  it('knows numbers that JSON cannot say', () => {
    expect(finite('Infinity')).toBeNaN();
    expect(finite(true)).toBe(1);
    expect(finite('abc')).toBeNaN();
  });
});

describe('axes', () => {
  it('smooth over raw data, skipping NaN', () => {
    const out = smooth([1, NaN, 1, 1], 0.6);
    expect(out[0]).toBeCloseTo(1);
    expect(out[1]).toBeNaN();
    expect(out[3]).toBeCloseTo(1);
    expect(smooth([0, 1], 0)).toEqual([0, 1]);
  });

  it('find the best so far over all trials', () => {
    const stairs = incumbent([{ xs: [1, 3], ys: [5, 2] }, { xs: [2, 4], ys: [4, NaN] }], true);
    expect(stairs).toEqual({ xs: [1, 2, 2, 3, 3], ys: [5, 5, 4, 4, 2] });
    expect(incumbent([{ xs: [1, 2, 3], ys: [1, 3, 2] }], false)).toEqual({ xs: [1, 2, 2, 3], ys: [1, 1, 3, 3] });
    expect(incumbent([], true)).toEqual({ xs: [], ys: [] });
  });

  it('leave out a few hopeless values, never the good ones', () => {
    const values = [...Array.from({ length: 99 }, (_, i) => i / 100), 1e6];
    expect(focused([values], true)![1]).toBeLessThan(1);
    expect(focused([values], false)![1]).toBe(1e6);
    expect(focused([[1, 2, 3]], true)).toEqual([1, 3]);
    expect(focused([[NaN]], true)).toBeNull();
  });

  it('hold still while data grows into the room that was left', () => {
    const first = steady(null, [0, 100], 0.1);
    expect(first).toEqual([0, 110]);
    expect(steady(first, [0, 109], 0.1)).toBe(first);
    expect(steady(first, [0, 111], 0.1)).not.toBe(first);
    expect(steady(first, [0, 20], 0.1)).not.toBe(first);
  });

  it('know the extent, and that zero has no logarithm', () => {
    expect(extent([[3, NaN, -1], [0]])).toEqual([-1, 3]);
    expect(extent([[0, -1, 5]], true)).toEqual([5, 5]);
    expect(extent([])).toBeNull();
    expect(padded([1, 100], true)[0]).toBeGreaterThan(0);
    expect(padded([5, 5], false)[0]).toBeLessThan(5);
  });
});

describe('lines on the canvas', () => {
  const frame: Frame = { width: 100, height: 100, x: [0, 10], y: [0, 10], log: false, ratio: 1 };
  const line = (key: string, ys: number[]): Drawable =>
    ({ key, xs: ys.map((_, i) => i), ys, gaps: [], style: { stroke: '#000', width: 1, alpha: 1 } });

  it('are projected, also on a logarithmic axis', () => {
    expect(projection(frame).y(10)).toBe(0);
    const log = projection({ ...frame, y: [1, 100], log: true });
    expect(log.y(10)).toBeCloseTo(50);
    expect(log.y(0)).toBeNaN();
  });

  it.each([[0, 1.5e-318], [5e-324, 1e-323], [-1.7e308, 1.7e308]])('are drawn from %d to %d: the smallest numbers had no place', (low, high) => {
    const { y } = projection({ ...frame, y: [low, high] });
    expect([y(low), y(high)]).toEqual([100, 0]);
    expect(tickTexts([1.5e-318, 5e-324, 1e-320], false)).toEqual(['1.5e-318', '5e-324', '1e-320']);
  });

  it('are found near the pointer, also between two points', () => {
    const lines = [line('a', [1, 1, 1]), line('b', [9, 9, 9])];
    expect(nearest(lines, frame, 15, 88, 12)).toMatchObject({ line: 0 });
    expect(nearest(lines, frame, 15, 12, 12)).toMatchObject({ line: 1 });
    expect(nearest(lines, frame, 15, 50, 12)).toBeNull();
    expect(nearest([line('a', [NaN, NaN])], frame, 5, 5, 50)).toBeNull();
  });

  it('are searched by halves', () => {
    expect(lowerBound([1, 3, 5], 3)).toBe(1);
    expect(lowerBound([1, 3, 5], 6)).toBe(3);
    expect(lowerBound([], 1)).toBe(0);
  });
});

describe('parallel coordinates', () => {
  const items: Item[] = [
    { id: 1, values: { lr: 0.0001, width: 16, opt: 'adam', same: 1, metric: 0.5 } },
    { id: 2, values: { lr: 0.1, width: 64, opt: 'sgd', same: 1, metric: 0.1 } },
    { id: 3, values: { lr: 0.01, width: 32, opt: 'adam', same: 1, metric: null } }
  ];
  const axes = axesOf(items, ['lr', 'width', 'opt', 'same', 'metric'], ['metric']);

  it('choose a kind for each axis and leave out what does not vary', () => {
    expect(axes.map(a => [a.name, a.kind])).toEqual([
      ['lr', 'log'], ['width', 'linear'], ['opt', 'category'], ['metric', 'linear']
    ]);
  });

  it('keep an axis of numbers when some are none, or endless', () => {
    const odd: Item[] = [['NaN', NaN], [0.5, 0.1], [2, 'Infinity'], [null, Infinity]].map(([a, b], id) => ({ id, values: { a: a!, b: b! } }));
    const [first, second] = axesOf(odd, ['a', 'b']);
    expect([first!.kind, first!.low, first!.high, second!.kind]).toEqual(['linear', 0.5, 2, 'linear']);
    expect([place(first!, 'NaN'), place(second!, Infinity), place(second!, NaN)]).toEqual([null, null, null]);
    expect(axesOf([{ id: 1, values: { a: 'NaN' } }, { id: 2, values: { a: 'adam' } }], ['a'])[0]!.kind).toBe('category');
  });

  it('place values and find them back', () => {
    expect(place(axes[0]!, 0.1)).toBeCloseTo(1);
    expect(valueAt(axes[0]!, 0)).toBeCloseTo(0.0001);
    expect(place(axes[2]!, 'sgd')).toBe(1);
    expect(place(axes[2]!, 'other')).toBeNull();
    expect(place(axes[3]!, null)).toBeNull();
    expect(ticks(axes[1]!).map(t => t.text)).toContain('16');
  });

  it('place the smallest and the largest numbers', () => {
    const lists = [[5e-324, 1, 1.7e308], [-1.7e308, 0, 1.7e308], [5e-324, 1e-323, 2e-323]];
    const tried = [0, 1, 2].map((id): Item => ({ id, values: { a: lists[0]![id]!, b: lists[1]![id]!, c: lists[2]![id]! } }));
    for (const axis of axesOf(tried, ['a', 'b', 'c'])) {
      const places = [axis.low, axis.high].map(value => place(axis, value)!);
      expect(places.every(at => at >= 0 && at <= 1)).toBe(true);
      for (const tick of ticks(axis)) expect(Number.isFinite(tick.at)).toBe(true);
    }
  });

  it('have whole labels where all values are whole numbers', () => {
    const layers: Item[] = [1, 2, 3].map(n => ({ id: n, values: { layers: n, rate: n / 4 } }));
    const [whole, other] = axesOf(layers, ['layers', 'rate']);
    expect(ticks(whole!).map(t => t.text)).toEqual(['1', '2', '3']);
    expect(ticks(other!).length).toBeGreaterThan(3);
  });

  it('brush', () => {
    const brushes = new Map([['lr', [0.5, 1] as const], ['opt', [0, 0.2] as const]]);
    expect(items.filter(item => within(item, axes, brushes)).map(i => i.id)).toEqual([3]);
    expect(items.filter(item => within(item, axes, new Map([['metric', [0, 1] as const]]))).map(i => i.id)).toEqual([1, 2]);
    expect(brushText(axes[2]!, [0, 0.2])).toBe('adam');
    expect(moved([0.6, 0.9], 0.5)).toEqual([0.7, 1]);
  });

  it('are drawn as the config asks for them, whatever was tried', () => {
    const scales = scalesOf({
      lr: { type: 'log', base: 10, minval: -3, maxval: -1 }, net: { width: { type: 'log', base: 2, minval: 4, maxval: 9 } },
      dropout: { type: 'double', minval: 0, maxval: 1 }, batch: { type: 'categorical', vals: [128, 16, 64, 32] },
      clip: { type: 'categorical', vals: [true, false, [1, 2]] }, seed: 7, wrong: { type: 'log2' }
    });
    expect([...scales.keys()]).toEqual(['lr', 'net.width', 'dropout', 'batch', 'clip']);
    const tried = [[0.004, 16, 0.001, 16, true], [0.02, 128, 0.9, 128, '[1,2]'], [0.03, 40, 0.5, 32, false]];
    const seen: Item[] = tried.map(([lr, width, dropout, batch, clip], id) => ({ id, values: flatten({ lr, net: { width }, dropout, batch, clip }) }));
    const found = axesOf(seen, [...scales.keys()], [], scales);
    expect(found.map(a => a.kind)).toEqual(['log', 'log', 'linear', 'category', 'category']);
    expect(place(found[0]!, Math.sqrt(0.004 * 0.03))).toBeCloseTo(0.5);
    expect(ticks(found[0]!).map(t => t.text)).toEqual(['0.004', '0.005', '0.01', '0.02', '0.03']);
    expect(ticks(found[1]!).map(t => t.text)).toEqual(['16', '32', '64', '128']);
    expect(found[3]!.categories).toEqual(['128', '16', '32']);
    expect(found[4]!.categories).toEqual(['true', 'false', '[1,2]']);
  });

  it('have a logarithm only of what is positive, whatever the config says, and bases that nobody counts in are labelled by ten', () => {
    const scales = scalesOf({ a: { type: 'log', base: 10, minval: -3, maxval: -1 }, b: { type: 'log', base: Math.E, minval: -9, maxval: 0 } });
    const seen: Item[] = [[0, 0.0002], [1, 0.7]].map(([a, b], id) => ({ id, values: { a: a!, b: b! } }));
    const [first, second] = axesOf(seen, ['a', 'b'], [], scales);
    expect([first!.kind, second!.kind]).toEqual(['linear', 'log']);
    expect(ticks(second!).map(t => t.text)).toEqual(['2e-4', '1e-3', '1e-2', '1e-1', '7e-1']);
    expect(scalesOf('none').size + scalesOf({ a: [1], b: null, c: { type: 'categorical', vals: 3 } }).size).toBe(0);
  });

  it('brush by keys', () => {
    const key = (name: string, shiftKey = false): { key: string; shiftKey: boolean } => ({ key: name, shiftKey });
    expect(brushKey(key('ArrowUp'), null)).toEqual([0.75, 1]);
    expect(brushKey(key('ArrowDown'), [0.5, 0.75])![0]).toBeCloseTo(0.45);
    expect(brushKey(key('Escape'), [0, 1])).toBeNull();
    expect(brushKey(key('a'), null)).toBeUndefined();
  });

  it('flatten nested hyperparameters', () => {
    expect(flatten({ a: { b: 1, c: [1, 2] }, d: true, e: null })).toEqual({ 'a.b': 1, 'a.c': '[1,2]', d: 'true', e: null });
  });
});

describe('few curves', () => {
  it('have a colour each, by the order of their trials, which stays when others come', () => {
    const entry = (trial: number, index: number): Entry => ({ curve: emptyCurve(trial), index, grey: index === 1, best: index === 0 });
    const two = coloured([entry(12, 1), entry(11, 0)]);
    expect(two.map(one => one.colour)).toEqual([COLORS[1], COLORS[0]]);
    const three = coloured([entry(13, 2), entry(12, 1), entry(11, 0)]);
    expect(three.find(one => one.curve.trial === 12)!.colour).toBe(COLORS[1]);
    expect(new Set(coloured(Array.from({ length: FEW }, (_, i) => entry(i, i))).map(one => one.colour)).size).toBe(FEW);
  });
});

describe('a saved figure', () => {
  const frame: Frame = { width: 100, height: 50, x: [0, 10], y: [0, 1], log: false, ratio: 1 };
  const line = (ys: number[]): Drawable => ({ key: '1', xs: ys.map((_, i) => 5 * i), ys, style: { stroke: '#4c78a8', width: 1.4, alpha: 1, dots: true }, gaps: [] });
  const parsed = (svg: string): Document => new DOMParser().parseFromString(svg, 'image/svg+xml');

  it('has the lines of the chart at the same places, and breaks them where there is no number', () => {
    const pen = new SvgPen();
    drawLines(pen, [line([0, 1, NaN, 0.5])], frame);
    const paths = [...parsed(pictureOf(100, 50, pen.elements).svg).querySelectorAll('path')].map(path => path.getAttribute('d'));
    expect(paths[0]).toBe('M0 50L50 0M150 25');
    expect(paths.slice(1).map(path => path!.split('a')[0])).toEqual(['M-2 50', 'M48 0', 'M148 25']);
  });

  it('has a dot wherever a line alone shows nothing: between values without a place, zeros of a logarithmic axis, and gaps', () => {
    const dots = (ys: number[], more: Partial<Frame> = {}, gaps: number[] = []): number => {
      const pen = new SvgPen();
      const long = [...ys, ...Array.from({ length: 13 }, () => 0.5)];
      drawLines(pen, [{ ...line(long), gaps }], { ...frame, ...more });
      return pen.elements.length - 1;
    };
    expect(dots([1, NaN, 1, NaN, 0.5, 0.5])).toBe(2);
    expect(dots([1, 1, NaN])).toBe(0);
    expect(dots([1, 0, 1, 0], { log: true, y: [0.1, 1] })).toBe(2);
    expect(dots([1, 1, 1, NaN], {}, [1, 2])).toBe(3);
  });

  it('is XML whatever a metric is called', () => {
    const hostile = '</text><script>alert(1)</script>&\u0000\u001b"\ud800';
    const legend = legendElements([{ colour: '"><script/>', text: hostile }], 0, 0, 80);
    const page = parsed(pictureOf(90, 40, [textElement(1, 2, hostile), ...legend.elements]).svg);
    expect(page.querySelector('parsererror, script')).toBeNull();
    expect([...page.querySelectorAll('text')].map(text => text.textContent)).toEqual(Array(2).fill('</text><script>alert(1)</script>&\ufffd\ufffd"\ufffd'));
    expect(encodeURIComponent(pictureOf(1, 1, [textElement(0, 0, hostile)]).svg)).toContain('svg');
  });

  it('breaks its legend into rows that fit', () => {
    const items = Array.from({ length: 6 }, (_, i) => ({ colour: '#000', text: `trial ${i}` }));
    const [wide, narrow] = [legendElements(items, 10, 0, 1000), legendElements(items, 10, 0, 180)];
    expect([wide.elements.length, narrow.elements.length]).toEqual([12, 12]);
    expect(narrow.height).toBeGreaterThan(2 * wide.height);
  });

  it('gets a file name without a path', () => {
    expect(fileName('../../etc/pass wd', 'svg')).toBe('etc-pass-wd.svg');
    expect(fileName('…', 'png')).toBe('figure.png');
    expect(fileName('Genauigkeit/größe', 'png')).toBe('Genauigkeit-größe.png');
    expect(fileName('a'.repeat(500), 'svg')).toHaveLength(84);
  });
});

describe('ticks of a linear axis', () => {
  it('are round, within the range, and as many as there is room for', () => {
    expect(linearTicks(0, 1, 5)).toEqual([0, 0.2, 0.4, 0.6, 0.8, 1]);
    expect(linearTicks(-0.50000001, -0.5, 5).length).toBeGreaterThan(3);
    expect(linearTicks(3, 3, 5)).toEqual([3]);
    expect(linearTicks(NaN, 1, 5)).toEqual([NaN]);
  });

  it.each([[2e36, 2e37], [1e33, 2e33], [5e299, 6e299], [1e-18, 2e-18], [1e-30, 2e-30], [-0.50000001, -0.5], [1e15, 1e15 + 10], [1e12, 1e12 + 0.1]])(
    'are there and told apart from %d to %d', (low, high) => {
      const ticks = linearTicks(low, high, 6);
      expect(ticks.length).toBeGreaterThan(2);
      expect(ticks.every(one => one >= low - (high - low) * 1e-6 && one <= high + (high - low) * 1e-6)).toBe(true);
      const texts = tickTexts(ticks, true);
      expect(new Set(texts).size).toBe(ticks.length);
    }
  );
});

describe('ticks of a logarithmic axis', () => {
  it('are powers of ten, and within few of them 2, 3 and 5 times these: within one there were none', () => {
    expect(logTicks(1.8, 7, 6)).toEqual([2, 3, 5]);
    expect(logTicks(0.02, 0.05, 6)).toEqual([0.02, 0.03, 0.05]);
    expect(logTicks(3, 40, 6)).toEqual([5, 10, 20]);
    expect(logTicks(1, 100, 6)).toEqual([1, 10, 100]);
    expect(logTicks(1e-5, 1, 6)).toEqual([1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1]);
    expect(logTicks(1.95, 2.25, 6).length).toBeGreaterThan(2);
    expect(logTicks(0, 1, 6)).toEqual([0]);
  });

  it.each([[5e-324, 1e-310], [5e-324, 1e-323], [5e-324, 1.7e308], [1e-300, 1e300], [1e300, 1.7e308], [1, 1 + 1e-12], [1e-320, 3e-320]])(
    'are there from %d to %d, and not too many', (low, high) => {
      const shown = padded([low, high], true);
      expect(shown[0]).toBeGreaterThan(0);
      expect(shown[1]).toBeLessThan(Infinity);
      const found = logTicks(...shown, 6);
      expect(found.length).toBeGreaterThan(0);
      expect(found.length).toBeLessThan(10);
      expect(found.every(one => one >= shown[0] && one <= shown[1])).toBe(true);
      expect(new Set(tickTexts(found, false)).size).toBe(found.length);
    }
  );
});

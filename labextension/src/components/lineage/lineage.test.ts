import { describe, expect, test } from 'vitest';

import * as made from '../../harness/registry';
import type { LineageGraph } from '../../state/wire';
import { layersOf } from './layered';
import { drawingOf } from './LineageTab';
import { placeOf } from './places';
import { bestOf, diffLines, labelProblem, metricNames, movingOf, nameProblem, untwinned, versionsOf } from '../models/model';
import { loadCode, modelPath, modelsPath, shell, versionPath } from '../models/paths';

const edge = (source: string, target: string) => ({ source, target });

describe('layers', () => {
  test('what something was made of lies before it, however many ways there are', () => {
    const { layers } = layersOf(['v', 'c', 't', 'e', 'd'], [edge('v', 'c'), edge('c', 't'), edge('t', 'e'), edge('t', 'd'), edge('c', 'd')]);
    const layer = new Map(layers.flat().map(one => [one.id, one.layer]));
    expect(['d', 'e', 't', 'c', 'v'].map(id => layer.get(id))).toEqual([0, 0, 1, 2, 3]);
    expect(layers.flat().filter(one => one.id.startsWith('pass')).map(one => one.layer)).toEqual([1]);
  });

  test('circles, edges to nowhere and to themselves, and no nodes do no harm', () => {
    const { layers } = layersOf(['a', 'b', 'c'], [edge('a', 'b'), edge('b', 'c'), edge('c', 'a'), edge('a', 'a'), edge('a', 'x'), edge('x', 'b')]);
    expect(layers.flat().filter(one => !one.id.startsWith('pass')).map(one => one.id).sort()).toEqual(['a', 'b', 'c']);
    expect(layersOf([], []).layers).toEqual([]);
  });

  test('two chains do not cross', () => {
    const { layers } = layersOf(['a1', 'b1', 'b2', 'a2', 'a3', 'b3'], [edge('a2', 'a1'), edge('a3', 'a2'), edge('b2', 'b1'), edge('b3', 'b2')]);
    const order = layers.map(layer => layer.map(one => one.id[0]).join(''));
    expect(new Set(order).size).toBe(1);
  });

  test('a chain of thousands is laid out without a deep stack, in an instant', () => {
    const ids = Array.from({ length: 5000 }, (_, i) => `n${i}`);
    const began = performance.now();
    const { layers } = layersOf(ids, ids.slice(1).map((id, i) => edge(id, ids[i]!)));
    expect(layers).toHaveLength(5000);
    expect(performance.now() - began).toBeLessThan(3000);
  });
});

describe('a drawing', () => {
  const overlaps = (graph: LineageGraph, width: number): number => {
    const boxes = [...drawingOf(graph, width).boxes.values()];
    return boxes.filter((a, i) => boxes.slice(i + 1).some(b => Math.abs(a.x - b.x) < 168 && Math.abs(a.y - b.y) < 46)).length;
  };

  test.each([1200, 620, 400, 200, 0])('has no boxes over one another at %d pixels, and all within its frame', width => {
    const graph = made.lineage();
    expect(overlaps(graph, width)).toBe(0);
    const drawn = drawingOf(graph, width);
    for (const { x, y } of drawn.boxes.values()) {
      expect(x).toBeGreaterThanOrEqual(0);
      expect(x + 168).toBeLessThanOrEqual(drawn.width);
      expect(y + 46).toBeLessThanOrEqual(drawn.height);
    }
  });

  test('goes down where there is no room beside', () => {
    expect(drawingOf(made.lineage(), 400)).toMatchObject({ down: true, width: 400 });
    expect(drawingOf(made.lineage(), 900).down).toBe(false);
  });

  test('stops at some number of boxes', () => {
    const nodes = Array.from({ length: 500 }, (_, i) => ({ id: `trial:${i}`, kind: 'trial', label: `trial ${i}`, detail: '' }));
    expect(drawingOf({ nodes, edges: [] }, 1000).boxes.size).toBe(120);
  });
});

test('nodes lead to their views, and nothing else does', () => {
  const to = (kind: string, id: string) => placeOf({ kind, id });
  expect(to('trial', 'trial:12')).toEqual({ kind: 'trial', id: 12 });
  expect(to('version', 'version:a@b@3')).toEqual({ kind: 'version', model: 'a@b', version: 3 });
  for (const [kind, id] of [['trial', 'trial:x'], ['trial', 'trial:1e9999'], ['version', 'version:digits'], ['code', 'code:sha256:1'], ['experiment', 'experiment:None'], ['', '']] as const) expect(to(kind, id)).toBeNull();
});

test('paths quote names; a search names what it searches', () => {
  expect(modelPath('a b/../c?d#e')).toBe('models/a%20b%2F..%2Fc%3Fd%23e');
  expect(versionPath('m', 'v 1')).toBe('models/m/versions/v%201');
  expect(modelsPath({ search: '  ' })).toBe('models?limit=50');
  expect(modelsPath({ search: 'label:a label:b OWNER:x y', after: 7 })).toBe('models?limit=50&label=a&label=b&owner=x&name=y&after=7');
});

test('code and commands hold any name', () => {
  expect(loadCode('a"b\\', 3)).toContain('det.load_model("a\\"b\\\\@3")');
  expect(shell('digits@3')).toBe('digits@3');
  expect(shell("two words'; rm -rf /@3")).toBe("'two words'\\''; rm -rf /@3'");
});

test('the best of a row needs a direction and a difference; NaN is none', () => {
  const row = (...values: unknown[]) => ({ name: 'x', values, same: false });
  expect([...bestOf(row(1, 3, 2), 'more')]).toEqual([1]);
  expect([...bestOf(row(1, 3, 1), 'less')]).toEqual([0, 2]);
  for (const none of [row(1, 1), row(1), row('NaN', 1), row(null, null), row('Infinity', 2)]) expect(bestOf(none, 'more').size).toBe(0);
  expect(bestOf(row(1, 2), null).size).toBe(0);
});

test('metrics come once, the searched ones first', () => {
  expect(metricNames([made.version(1), made.version(2)])).toEqual(['accuracy', 'loss', 'training.loss']);
  expect(untwinned(['validation.a', 'a', 'validation.b'])).toEqual(['a', 'validation.b']);
  expect(movingOf({ moving: { b: 1, a: 1, c: 3 } })).toEqual([['c', 3], ['a', 1], ['b', 1]]);
});

test('lines of a diff are what they begin with, within hunks only', () => {
  expect(diffLines('--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n z\n--- not a head\n').map(line => line.kind)).toEqual(['head', 'head', 'hunk', 'del', 'add', 'same', 'del']);
});

test.each([['digits', null], ['a', null], ['my model.v2', null], ['12', /digits/], ['', /needed/], ['-a', /begin/], ['a/b', /begin/], ['a@b', /begin/], ['a ', /begin/], ['a'.repeat(257), /begin/], ['Größe', null], ['数字识别', null], ['हिन्दी', null], ['e\u0301', null], ['१२', /digits/], ['a\u202eb', /begin/], ['a\uff0fb', /begin/]] as const)(
  'the name %j', (name, problem) => (problem ? expect(nameProblem(name)).toMatch(problem) : expect(nameProblem(name)).toBeNull())
);

test('labels and versions as people write them', () => {
  expect(labelProblem('production')).toBeNull();
  for (const good of ['ü', '生产']) expect(labelProblem(good)).toBeNull();
  for (const bad of ['', '1', '१', 'latest', 'a b', 'a\u200bb', 'a'.repeat(65)]) expect(labelProblem(bad)).not.toBeNull();
  expect(versionsOf(' 3, production 3\n1.0.0,')).toEqual(['3', 'production', '1.0.0']);
});

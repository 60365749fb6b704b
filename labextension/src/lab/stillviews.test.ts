/** Which outputs of a notebook become still pictures, and which are left alone. */

import { describe, expect, it } from 'vitest';

import { type Cell, dropLostWidgets, putStill, VIEW_OF } from './stillviews';

const WIDGET = 'application/vnd.jupyter.widget-view+json';
type Data = Record<string, unknown>;

function view(model: string, over: Data = {}): Data {
  return { 'text/html': 'first picture', 'text/plain': 'first', [VIEW_OF]: { experiment: 3 }, [WIDGET]: { model_id: model }, ...over };
}

function cell(...found: Data[]): Cell & { outputs: Data[] } {
  const outputs = [...found];
  const nodes = found.map(() => { const node = document.createElement('div'); node.append(document.createElement('p')); return { node }; });
  return {
    outputs, outputArea: { widgets: nodes },
    model: { outputs: { get length() { return outputs.length; }, get: at => ({ data: outputs[at]! }), set: (at, output) => { outputs[at] = output.data; } } }
  };
}

describe('a view whose widget is gone', () => {
  it('becomes what was saved beside it; others and those of living widgets stay', () => {
    const other = { [WIDGET]: { model_id: 'slider' }, 'text/html': 'not ours' };
    const cells = [{ model: {} }, cell(view('lost'), { 'text/plain': 'printed' }, view('alive'), other)];
    dropLostWidgets(cells, ['alive']);
    expect((cells[1] as ReturnType<typeof cell>).outputs).toEqual([
      { 'text/html': 'first picture', 'text/plain': 'first' }, { 'text/plain': 'printed' }, view('alive'), other
    ]);
  });

  it('stays when there is nothing to show in its place', () => {
    const bare = cell({ [WIDGET]: { model_id: 'lost' }, [VIEW_OF]: { experiment: 3 } });
    dropLostWidgets([bare], []);
    expect(bare.outputs[0]).toHaveProperty(WIDGET);
  });
});

describe('the picture that a widget has sent', () => {
  it('takes the place of its own output', () => {
    const first = cell(view('a')); const second = cell({ 'text/plain': 'x' }, view('b'));
    const target = (second.outputArea!.widgets[1]!.node as Element).firstChild!;
    putStill([{ model: {} }, first, second], target, { 'text/html': 'last picture', 'text/plain': 'completed' });
    expect(first.outputs[0]).toEqual(view('a'));
    expect(second.outputs).toEqual([{ 'text/plain': 'x' }, { 'text/html': 'last picture', 'text/plain': 'completed' }]);
  });

  it.each([null, 'text', {}, { 'text/plain': 'no picture' }])('is not taken where it is none: %j', still => {
    const one = cell(view('a'));
    putStill([one], one.outputArea!.widgets[0]!.node, still);
    expect(one.outputs[0]).toEqual(view('a'));
  });

  it('replaces no output that is not a view of ours', () => {
    const one = cell({ 'text/plain': 'kept', [WIDGET]: { model_id: 'x' } });
    putStill([one], one.outputArea!.widgets[0]!.node, { 'text/html': '<b>hostile</b>' });
    expect(one.outputs[0]).toHaveProperty(WIDGET);
  });
});

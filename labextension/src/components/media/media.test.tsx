import { fireEvent, screen, waitFor, within } from '@testing-library/react';
import { describe, expect, it } from 'vitest';

import type { MediaView } from '../../state/wire';
import { FakeApi, show, type Shown } from '../../testing/app';
import type { AppContext } from '../../state/context';
import { MediaPane } from './index';
import { confusionOf, curvesFigure, histogramFigure, plotlyFigure, tableOf } from './shapes';

const SCRIPT = '<img src=x onerror=alert(1)><script>alert(2)</script>';

function item(more: Partial<MediaView>): MediaView {
  return { id: 1, trial_id: 7, run_id: '', step: 10, key: 'samples', place: 0, kind: 'image', media_type: 'image/png', caption: '', size: 100, width: 8, height: 8, time: 0, ...more };
}

/** A page of some trials with the objects of each step. */
function pane(items: MediaView[], { trials = [7], over = true, answers = {} as Record<string, unknown>, app = {} as Partial<AppContext> } = {}): Shown {
  const all: Record<string, unknown> = {};
  for (const trial of trials) {
    const mine = items.filter(one => one.trial_id === trial);
    const keys = [...new Set(mine.map(one => one.key))].map(key => {
      const those = mine.filter(one => one.key === key);
      return { key, kind: those[0]!.kind, count: those.length, bytes: 1, first_step: 0, last_step: 0 };
    });
    const steps = [...new Set(mine.map(one => one.step))].sort((a, b) => a - b);
    all[`trials/${trial}/media/keys`] = { items: keys, next: null };
    all[`trials/${trial}/media/steps`] = { items: steps, next: null };
    for (const at of new Set(items.map(one => one.step))) {
      const newest = (key: string): number => Math.max(...mine.filter(one => one.key === key && one.step <= at).map(one => one.step));
      all[`trials/${trial}/media?at=${at}&limit=200`] = { items: mine.filter(one => one.step === newest(one.key)), next: null };
    }
  }
  const columns = trials.map(trial => ({ base: `trials/${trial}`, name: `trial ${trial}` }));
  return show(<MediaPane columns={columns} over={over} />, { ...all, ...answers }, app);
}

describe('media of a trial', () => {
  it('teaches how to log them where there are none', async () => {
    pane([], { over: false });
    expect(await screen.findByText('No media yet.')).toBeTruthy();
    expect(screen.getByText(/core_context\.train\.report_media\(step/)).toBeTruthy();
  });

  it('shows the newest step first, and others by the slider, its buttons and its keys', async () => {
    pane([1, 2, 3].map(step => item({ id: step, step, caption: `cat ${step}` })));
    expect(await screen.findByText('cat 3')).toBeTruthy();
    const slider = screen.getByRole('slider');
    expect(slider.getAttribute('aria-valuetext')).toBe('step 3, 3 of 3');
    fireEvent.click(screen.getByRole('button', { name: 'Step before' }));
    expect(await screen.findByText('cat 2')).toBeTruthy();
    fireEvent.change(slider, { target: { value: '0' } });
    expect(await screen.findByText('cat 1')).toBeTruthy();
    expect((screen.getByRole('button', { name: 'Step before' }) as HTMLButtonElement).disabled).toBe(true);
    expect(screen.getByLabelText('Step 1')).toBe(slider);
  });

  it('says of a key with nothing at the step of which step it is', async () => {
    pane([item({ id: 1, step: 5, key: 'rare' }), item({ id: 2, step: 10, key: 'samples' })]);
    const rare = await screen.findByRole('region', { name: 'rare' });
    expect(within(rare).getByText('of step 5')).toBeTruthy();
  });

  it('filters keys', async () => {
    pane([item({ key: 'samples' }), item({ id: 2, key: 'masks' })]);
    await screen.findByRole('region', { name: 'masks' });
    fireEvent.change(screen.getByLabelText('Filter media'), { target: { value: 'sam' } });
    expect(screen.queryByRole('region', { name: 'masks' })).toBeNull();
    expect(screen.getByRole('region', { name: 'samples' })).toBeTruthy();
  });

  it('puts trials side by side in a comparison', async () => {
    pane([item({ trial_id: 7, caption: 'left' }), item({ id: 2, trial_id: 8, caption: 'right' })], { trials: [7, 8, 9] });
    const key = await screen.findByRole('region', { name: 'samples' });
    expect(within(key).getByText('left')).toBeTruthy();
    expect(within(key).getByText('right')).toBeTruthy();
    expect(within(key).getByText('Nothing up to this step.')).toBeTruthy();
    expect(within(key).getByText('trial 9')).toBeTruthy();
  });

  it('shows images by their file alone, larger on request, and says when one cannot be shown', async () => {
    pane([item({ caption: SCRIPT })]);
    const button = await screen.findByRole('button', { name: /Show larger/ });
    const image = button.querySelector('img')!;
    expect(image.getAttribute('src')).toBe('/api/v1/trials/7/media/1/file');
    expect(image.getAttribute('loading')).toBe('lazy');
    fireEvent.click(button);
    expect(button.getAttribute('aria-pressed')).toBe('true');
    fireEvent.error(image);
    expect(await screen.findByText(/cannot be shown/)).toBeTruthy();
    expect(document.querySelector('script, img[onerror]')).toBeNull();
    expect(screen.getByText(SCRIPT)).toBeTruthy();
  });

  it('draws an SVG as an image, never in the page', async () => {
    pane([item({ media_type: 'image/svg+xml', width: 0, height: 0 })]);
    await screen.findByRole('button', { name: /Show larger/ });
    expect(document.querySelector('.det-media-item svg, .det-media-item object, .det-media-item embed')).toBeNull();
  });

  it('shows HTML in a frame of its own, with its scripts only when asked', async () => {
    pane([item({ kind: 'html', media_type: 'text/html' })]);
    const frame = await screen.findByTitle('samples at step 10');
    expect(frame.tagName).toBe('IFRAME');
    expect(frame.getAttribute('sandbox')).toBe('');
    expect(frame.getAttribute('src')).toBe('/api/v1/trials/7/media/1/document');
    expect(frame.getAttribute('srcdoc')).toBeNull();
    fireEvent.click(screen.getByRole('button', { name: 'Run its scripts' }));
    const running = screen.getByTitle('samples at step 10');
    expect(running.getAttribute('sandbox')).toBe('allow-scripts');
    expect(running.getAttribute('src')).toBe('/api/v1/trials/7/media/1/document?scripts=true');
  });

  it('shows texts and tables as text', async () => {
    const table = { columns: ['a', SCRIPT], rows: [[1, SCRIPT], ...Array.from({ length: 40 }, (_, i) => [i, null])], left_out: 3 };
    pane([item({ kind: 'text', key: 'said' }), item({ id: 2, kind: 'table', key: 'rows' })], {
      answers: { 'trials/7/media/1/file': `${SCRIPT}\nline\u202e two ${'x'.repeat(5000)}`, 'trials/7/media/2/file': JSON.stringify(table) }
    });
    expect(await screen.findByText(/line⟨U\+202E⟩ two/)).toBeTruthy();
    expect(screen.getByRole('button', { name: /Show all 5,\d+ characters/ })).toBeTruthy();
    expect(await screen.findByRole('columnheader', { name: SCRIPT })).toBeTruthy();
    expect(screen.getByText('3 rows more were not logged.')).toBeTruthy();
    fireEvent.click(screen.getByRole('button', { name: 'Show more (16 rows)' }));
    expect(screen.getAllByRole('row')).toHaveLength(42);
    expect(document.querySelector('.det-media script, .det-media img[onerror]')).toBeNull();
  });

  it('shows a confusion matrix with what was right', async () => {
    const counts = { labels: ['cat', 'dog'], counts: [[3, 1], [0, 4]] };
    pane([item({ kind: 'confusion' })], { answers: { 'trials/7/media/1/file': JSON.stringify(counts) } });
    const cells = await screen.findAllByRole('cell');
    expect(cells.filter(cell => cell.getAttribute('data-right')).map(cell => cell.textContent)).toEqual(['3', '4']);
    expect(screen.getByTitle('75% of the row')).toBeTruthy();
  });

  it('turns points in space by the keys, and says so', async () => {
    pane([item({ kind: 'points' })], { answers: { 'trials/7/media/1/file': JSON.stringify({ points: [[0, 0, 0], [1, 2, 3]], colours: [], left_out: 4 }) } });
    const space = await screen.findByRole('img', { name: /2 points in space. Arrow keys turn/ });
    for (const key of ['ArrowLeft', 'ArrowUp', '+', 'Home', 'x']) fireEvent.keyDown(space, { key });
    fireEvent.pointerDown(space, { clientX: 1, clientY: 1 });
    fireEvent.pointerMove(space, { clientX: 30, clientY: 9 });
    fireEvent.pointerUp(space);
    expect(screen.getByText('4 points more were not logged.')).toBeTruthy();
  });

  it.each(['table', 'histogram', 'curves', 'confusion', 'plotly', 'points'])('says of a %s that is none that it cannot be shown', async kind => {
    for (const [i, body] of ['{', 'null', '[]', '{"columns": 5}', `{"data": [{"type": "${SCRIPT.replaceAll('"', '')}"}]}`].entries()) {
      const shown = pane([item({ kind, key: `k${i}` })], { answers: { 'trials/7/media/1/file': body } });
      expect(await screen.findByText(`This ${kind} cannot be shown here. Save it to look.`)).toBeTruthy();
      shown.unmount();
    }
  });

  it('offers to save each, by the master’s own address', async () => {
    pane([item({ key: '../../x' })]);
    const save = await screen.findByRole('link', { name: 'Save ../../x at step 10' });
    expect(save.getAttribute('href')).toBe('/api/v1/trials/7/media/1/file');
    expect(save.hasAttribute('download')).toBe(true);
  });

  it('asks again as a trial goes on, and says what failed', async () => {
    const api = new FakeApi({});
    show(<MediaPane columns={[{ base: 'trials/7', name: '' }]} over={false} />, {}, { api });
    expect(await screen.findByRole('alert')).toBeTruthy();
    fireEvent.click(screen.getByRole('button', { name: 'Try again' }));
    await waitFor(() => expect(api.asked.filter(path => path.endsWith('/keys'))).toHaveLength(2));
  });
});

describe('what a training wrote as JSON', () => {
  it('has bars of equal width for bins that are not, with the same counts in all', () => {
    // What TensorBoard writes of values that are spread evenly: the bins grow by a tenth each.
    const edges = [0, ...Array.from({ length: 40 }, (_, i) => 0.01 * 1.1 ** i)];
    const counts = edges.slice(1).map((edge, i) => (edge - edges[i]!) * 1000);
    const drawn = histogramFigure({ edges: [-1e300, ...edges, 1e300], counts: [0, ...counts, 0], not_finite: 0 })!;
    const { y, width } = drawn.data[0] as { y: number[]; width: number[] };
    expect(y.reduce((sum, one) => sum + one)).toBeCloseTo(counts.reduce((sum, one) => sum + one), 6);
    expect(Math.max(...y) / Math.min(...y)).toBeCloseTo(1, 6);
    expect(Math.max(...width) / Math.min(...width)).toBeCloseTo(1, 6);
    expect(JSON.stringify(drawn.layout)).toContain('not equally wide');
    for (const odd of [{ edges: [1, 1, 1], counts: [1, 2] }, { edges: [2, 1, 0], counts: [1, 2] }, { edges: [-1e308, 0, 1e308], counts: [1, 2] }]) {
      expect(histogramFigure(odd)!.data[0]).toBeTruthy();
    }
  });

  it('is read by its shape', () => {
    expect(tableOf({ columns: ['a'], rows: [[1], [{}]] })).toBeNull();
    expect(tableOf({ columns: ['a'], rows: [[1, 2]] })!.rows).toEqual([[1]]);
    expect(confusionOf({ labels: ['a'], counts: [[1, 2]] })).toBeNull();
    expect(confusionOf({ labels: [], counts: [] })).toBeNull();
    expect(histogramFigure({ edges: [0, 1], counts: [1, 2] })).toBeNull();
    expect(histogramFigure({ edges: [], counts: [] })).toBeNull();
    expect(histogramFigure({ edges: [0, 1, 2], counts: [1, 2], not_finite: 2 })!.data[0]).toMatchObject({ x: [0.5, 1.5], width: [1, 1], y: [1, 2] });
    expect(curvesFigure({ curve: 'roc', series: [{ name: '<b>', points: [[0, 'x']] }] })).toBeNull();
    const roc = curvesFigure({ curve: 'roc', series: [{ name: '<a href=x>', points: [[0, 0], [1, 1]], area: 0.5 }] })!;
    expect(roc.data.map(trace => trace.name)).toEqual(['&lt;a href=x&gt; (0.500)', 'chance']);
  });

  it('of plotly keeps what is drawn, and nothing that loads, links or has buttons', () => {
    const figure = plotlyFigure({
      data: [
        { type: 'scatter', x: [1], y: [2], text: ['<a href="javascript:alert(1)">x</a><br><b>y</b>'], hovertemplate: '%{y}<extra></extra>' },
        { type: 'image', source: 'https://evil.example/x.png' }, { type: 'scattermapbox' }, 5, null
      ],
      layout: {
        images: [{ source: 'https://evil.example/x.png' }], updatemenus: [{}], height: 1e9, template: {},
        annotations: [{ text: '<a href="https://evil.example">click</a>' }], xaxis: { title: { text: 'a' } }
      },
      frames: [{}], config: { editable: true }
    })!;
    const said = JSON.stringify(figure);
    expect(figure.data).toHaveLength(1);
    expect(said).not.toContain('<a');
    expect(said).not.toContain('source');
    expect(said).not.toContain('updatemenus');
    expect(figure.layout.height).toBe(900);
    expect(figure.data[0]!.text).toEqual(['&lt;a href="javascript:alert(1)"&gt;x&lt;/a&gt;<br><b>y</b>']);
    expect(figure.data[0]!.hovertemplate).toBe('%{y}<extra></extra>');
    let deep: unknown = 'x';
    for (let i = 0; i < 5000; i++) deep = [deep];
    expect(plotlyFigure({ data: [{ x: deep }] })).not.toBeNull();
    expect(plotlyFigure({ data: [] })).toBeNull();
  });
});

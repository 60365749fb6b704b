/** The search tab: which figure is asked for, what plotly.js gets, and what is said when there is none. */

import { fireEvent, screen, waitFor } from '@testing-library/react';
import { describe, expect, it, vi } from 'vitest';

import { experiment, trial } from '../../harness/fixtures';
import { ApiError } from '../../state/api';
import type { Plotly } from '../../state/context';
import { show } from '../../testing/app';
import { SearchTab } from './SearchTab';
import { RowCache } from './trials/trialtable';

const FIGURES = 'experiments/12/figures';
const FIGURE = {
  data: [{ type: 'scatter', x: [1], y: [2] }],
  layout: { title: { text: 'Best &lt;b&gt;loss&lt;/b&gt;', subtitle: { text: 'best 2' } }, height: 460, xaxis: { domain: [0, 1] } }
};
/** A search that nobody steered. */
const QUIET = { 'experiments/12': experiment(), 'experiments/12/search/journal': { items: [] } };
const EMPTY = { data: [], layout: { title: { text: 't' }, annotations: [{ text: 'No &lt;img&gt; yet.' }] } };

class FakePlotly implements Plotly {
  drawn: { data: unknown[]; layout: Record<string, unknown> }[] = [];
  purged = 0;
  Plots = { resize: (): void => undefined };
  async react(_element: HTMLElement, data: unknown[], layout: object): Promise<void> {
    this.drawn.push({ data, layout: layout as Record<string, unknown> });
  }
  purge(): void { this.purged += 1; }
  async toImage({ layout }: { layout: object }): Promise<string> {
    return `<svg xmlns="http://www.w3.org/2000/svg"><text>${(layout as { title: { text: string } }).title.text}</text></svg>`;
  }
}

const rows = new RowCache().of([trial(0, 3), trial(1, 3), trial(2, 3)]);
const tab = <SearchTab experiment={{ ...experiment(), id: 12 }} rows={rows} version={1} onLearn={() => undefined} />;

describe('the search tab', () => {
  it('saves its figure as SVG, on paper white and with its title, under a name that is a file name', async () => {
    const files: [string, Blob][] = [];
    let made: Blob | null = null;
    Object.assign(URL, { createObjectURL: (file: Blob) => { made = file; return 'blob:x'; }, revokeObjectURL: () => undefined });
    const click = vi.spyOn(HTMLAnchorElement.prototype, 'click').mockImplementation(function (this: HTMLAnchorElement) { files.push([this.download, made!]); });
    show(tab, { [`${FIGURES}/best_so_far`]: FIGURE }, { plotly: async () => new FakePlotly() });
    fireEvent.click(await screen.findByRole('button', { name: /^Image of Best <b>loss/ }));
    fireEvent.click(screen.getByRole('menuitem', { name: 'Save as SVG' }));
    await waitFor(() => expect(files).toHaveLength(1));
    expect(files[0]![0]).toBe('Best-b-loss-b.svg');
    const text = await new Promise(done => {
      const reader = new FileReader();
      reader.onload = () => done(reader.result);
      reader.readAsText(files[0]![1]);
    });
    expect(text).toContain('Best &lt;b&gt;loss&lt;/b&gt;');
    click.mockRestore();
  });

  it('draws the best so far first, without a title of plotly, and with that text as text', async () => {
    const plotly = new FakePlotly();
    const { api } = show(tab, { [`${FIGURES}/best_so_far`]: FIGURE }, { plotly: async () => plotly });
    await waitFor(() => expect(plotly.drawn).toHaveLength(1));
    expect(api.asked).toContain(`GET ${FIGURES}/best_so_far?against=trials`);
    expect(screen.getByText('Best <b>loss</b>')).toBeTruthy();
    expect(plotly.drawn[0]!.data).toEqual(FIGURE.data);
    expect(plotly.drawn[0]!.layout).not.toHaveProperty('title');
    expect(plotly.drawn[0]!.layout).toMatchObject({ paper_bgcolor: 'rgba(0,0,0,0)' });
  });

  it('asks for another figure with the options that belong to it', async () => {
    const plotly = new FakePlotly();
    const answers = { [`${FIGURES}/best_so_far`]: FIGURE, [`${FIGURES}/importance`]: FIGURE, [`${FIGURES}/contour`]: FIGURE };
    const { api } = show(tab, answers, { plotly: async () => plotly });
    fireEvent.change(screen.getByLabelText('Figure'), { target: { value: 'importance' } });
    fireEvent.change(screen.getByLabelText('by'), { target: { value: 'fanova' } });
    await waitFor(() => expect(api.asked).toContain(`GET ${FIGURES}/importance?method=fanova`));
    fireEvent.change(screen.getByLabelText('Figure'), { target: { value: 'contour' } });
    const first = screen.getByLabelText<HTMLSelectElement>('across');
    const name = first.options[1]!.value;
    fireEvent.change(first, { target: { value: name } });
    const second = screen.getByLabelText<HTMLSelectElement>('up').value;
    expect(second).not.toBe(name);
    const query = new URLSearchParams([['params', name], ['params', second]]);
    await waitFor(() => expect(api.asked).toContain(`GET ${FIGURES}/contour?${query}`));
  });

  it('says why there is nothing to draw, and does not load plotly for that', async () => {
    let loads = 0;
    show(tab, { [`${FIGURES}/best_so_far`]: EMPTY }, { plotly: async () => { loads += 1; return new FakePlotly(); } });
    expect(await screen.findByText('No <img> yet.')).toBeTruthy();
    expect(loads).toBe(0);
  });

  it('shows an error of the master with a way to try again, and one of the script', async () => {
    let broken = true;
    const answer = (): unknown => (broken ? new ApiError(503, { code: 'unavailable', message: 'importance took more than 30 s' }) : FIGURE);
    let loads = 0;
    const plotly = new FakePlotly();
    const load = async (): Promise<Plotly> => {
      loads += 1;
      if (loads === 1) throw new Error('chunk not found');
      return plotly;
    };
    show(tab, { ...QUIET, [`${FIGURES}/best_so_far`]: answer }, { plotly: load });
    expect(await screen.findByText(/took more than 30 s/)).toBeTruthy();
    broken = false;
    fireEvent.click(screen.getByRole('button', { name: 'Try again' }));
    await waitFor(() => expect(loads).toBe(1));
    fireEvent.click(await screen.findByRole('button', { name: 'Try again' }));
    await waitFor(() => expect(plotly.drawn).toHaveLength(1));
  });

  it('says that figures cannot be drawn where plotly.js was not built', async () => {
    show(tab, { [`${FIGURES}/best_so_far`]: FIGURE });
    expect(await screen.findByText(/plotly.js was not built/)).toBeTruthy();
  });
});

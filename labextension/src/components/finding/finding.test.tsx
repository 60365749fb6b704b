import { act, fireEvent, screen, waitFor, within } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import type { ReactElement } from 'react';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';

import { completions, experiments, trials, views } from '../../harness/finding';
import { HOSTILE, overview } from '../../harness/fixtures';
import { ApiError } from '../../state/api';
import { AppProvider } from '../../state/context';
import type { SavedView } from '../../state/wire';
import { FakeApi, show, type Shown } from '../../testing/app';
import { project, workspace } from '../workspaces/fixtures';
import { BatchBar } from './BatchBar';
import { labelAction, runBatch, undoBatch } from './batch';
import { groupsOf, moved } from './ColumnChooser';
import { Cell, columnsOf, emptyColumns, heatOf, heatRange, USUAL } from './columns';
import { pagePath, PLAIN, readRequest, sorted, writeRequest, ofView } from './request';
import { RunsPage } from './RunsPage';

const sizes = ['clientHeight', 'clientWidth'] as const;
beforeAll(() => {
  // jsdom lays nothing out: a table of no height would have no rows.
  for (const size of sizes) Object.defineProperty(HTMLElement.prototype, size, { configurable: true, get: () => 600 });
});
afterAll(() => {
  for (const size of sizes) Reflect.deleteProperty(HTMLElement.prototype, size);
});

/** The table over a master made of fixtures, with `count` rows. */
function opened(query = '', over: Record<string, unknown> = {}, count = 250, host: 'hub' | 'lab' = 'hub', hostile = false): Shown {
  const asked = (path: string): URLSearchParams => new URLSearchParams(path.split('?')[1]);
  const settled: string[] = [];
  const api = new FakeApi({ overview: overview(0), ...over });
  const get = api.get.bind(api);
  api.get = async <T,>(path: string): Promise<T> => {
    if (path.split('?')[0]! in over || path in over) return get<T>(path);
    if (/^(trials|experiments|filters|saved-views)/.test(path)) api.asked.push(`GET ${path}`);
    if (path.startsWith('trials?')) return trials(count, asked(path), hostile) as T;
    if (path.startsWith('experiments?')) return experiments(count, asked(path), hostile) as T;
    if (path.startsWith('filters/complete')) return completions(asked(path), hostile) as T;
    if (path.startsWith('saved-views')) return { items: views(hostile), next: null } as T;
    return get<T>(path);
  };
  const shown = show(<RunsPage table="trials" query={query} />, {}, {
    api, host, settle: place => void settled.push(`${(place as { query?: string }).query}`)
  });
  return Object.assign(shown, { api, settled });
}

const settledOf = (shown: Shown): string[] => (shown as Shown & { settled: string[] }).settled;
const rowsAsked = (shown: Shown): string[] => shown.api.asked.filter(one => one.startsWith('GET trials?'));
const grid = (): Promise<HTMLElement> => screen.findByRole('grid', { name: 'Trials' });
const row = (id: number): Promise<HTMLElement> => screen.findByRole('checkbox', { name: `Select ${id}` }).then(box => box.closest<HTMLElement>('[role=row]')!);

describe('a request', () => {
  it('is in the address what it was', () => {
    const request = {
      filter: 'label = "a&b" and loss > 1', sort: ['-accuracy', 'created'], columns: ['id', '"a,b"', 'hparams.lr'], archived: true, view: 'good & old', pinned: ['name'], heat: ['loss']
    };
    expect(readRequest(writeRequest(request))).toEqual(request);
    expect(writeRequest(PLAIN)).toBe('');
    expect(readRequest('column=&sort=&filter=')).toEqual(PLAIN);
  });

  it('is bounded, whatever the address says', () => {
    const query = Array.from({ length: 500 }, (_, i) => `column=c${i}&sort=s${i}`).join('&');
    expect(readRequest(query).columns).toHaveLength(50);
    expect(readRequest(query).sort).toHaveLength(10);
  });

  it('asks for names with commas as they are', () => {
    const path = pagePath('trials', { ...PLAIN, sort: ['-"a,b"'] }, ['"c,d"'], 100, 7);
    const query = new URLSearchParams(path.split('?')[1]);
    expect(JSON.parse(query.get('column')!)).toEqual(['"c,d"']);
    expect(JSON.parse(query.get('sort')!)).toEqual(['-"a,b"']);
    expect([query.get('after'), query.get('limit')]).toEqual(['7', '100']);
    expect(pagePath('experiments', PLAIN, [], 5, 7)).toBe('experiments?limit=5&before=7');
  });

  it('is sorted by clicks, with Shift by several', () => {
    expect(sorted([], 'loss', false, false)).toEqual(['loss']);
    expect(sorted(['loss'], 'loss', false, false)).toEqual(['-loss']);
    expect(sorted(['-loss'], 'loss', false, false)).toEqual([]);
    expect(sorted([], 'created', true, false)).toEqual(['-created']);
    expect(sorted(['loss'], 'created', true, true)).toEqual(['loss', '-created']);
    expect(sorted(['loss', '-created'], 'loss', false, true)).toEqual(['-loss', '-created']);
  });

  it('takes a layout of any program', () => {
    const view = { ...views()[0]!, layout: { pinned: 'name', heat: [1, 'loss', null], archived: 'yes' } };
    expect(ofView(view)).toMatchObject({ pinned: [], heat: ['loss'], archived: false });
  });
});

describe('columns', () => {
  it('show what a run has come to within a window of 1,280 pixels', () => {
    for (const table of ['experiments', 'trials'] as const) {
      const columns = columnsOf(table, USUAL[table], []);
      const right = columns.slice(0, columns.findIndex(column => column.name === 'best') + 1).reduce((sum, column) => sum + column.width, 0);
      expect(right, table).toBeLessThan(900);
    }
  });

  it('are coloured by what lies between the least and the greatest number', () => {
    const page = trials(100, new URLSearchParams({ column: '["accuracy"]' }));
    const [column] = columnsOf('trials', ['accuracy'], page.columns);
    const range = heatRange(column!, page.items)!;
    expect(range.low).toBeGreaterThanOrEqual(0);
    const nan = page.items.find(one => one.values[0] === 'NaN')!;
    expect(heatOf(column!, nan, range)).toBeUndefined();
    const most = page.items.find(one => one.values[0] === range.high)!;
    expect(heatOf(column!, most, range)).toContain('45%');
    expect(heatRange(column!, [])).toBeNull();
  });

  it('of states mark an experiment that completed without a result, as My work does', () => {
    const [column] = columnsOf('experiments', ['state'], []);
    const [row] = experiments(1, new URLSearchParams()).items;
    const warning = "no finite value of 'loss' was reported";
    show(<Cell column={column!} row={{ ...row!, state: 'COMPLETED', best: null, warnings: [warning] }} />);
    const badge = document.querySelector<HTMLElement>('.det-badge')!;
    expect([badge.dataset['tone'], badge.title]).toEqual(['warn', warning]);
  });

  it('without a value in any row are told from those with some', () => {
    const page = trials(10, new URLSearchParams({ column: '["gone","accuracy"]' }));
    expect(emptyColumns(columnsOf('trials', ['id', 'label', 'gone', 'accuracy'], page.columns), page.items)).toEqual(['gone']);
  });

  it('of metrics are grouped by what their names begin with', () => {
    const names = ['loss', 'val/loss', 'val/f1', 'training.loss', 'training.lr', 'one_two'].map(text => ({ text, kind: 'metric', about: '' }));
    expect(groupsOf(names).map(([prefix, members]) => [prefix, members.length])).toEqual([['', 2], ['training', 2], ['val', 2]]);
    expect(moved(['id', 'a', 'b'], 'b', -1)).toEqual(['id', 'b', 'a']);
    expect(moved(['id', 'a'], 'a', 5)).toEqual(['id', 'a']);
  });
});

describe('the table', () => {
  it('shows rows page by page, as many as fit', async () => {
    const shown = opened();
    await row(250);
    const found = (await grid()).querySelectorAll('[role=rowgroup] [role=row]');
    expect(found.length).toBeLessThan(60);
    expect(rowsAsked(shown)[0]).toContain('limit=100');
    expect(screen.getByText('100 of more trials')).toBeTruthy();
    (await grid()).scrollTop = 2000;
    fireEvent.scroll(await grid());
    await waitFor(() => expect(rowsAsked(shown).at(-1)).toContain('after=151'));
    await waitFor(() => expect(screen.getByText('250 trials')).toBeTruthy());
    expect(rowsAsked(shown)).toHaveLength(2);
  });

  it('is sorted on the server by a click on a title, and keeps it in the address', async () => {
    const user = userEvent.setup();
    const shown = opened('column=id&column=accuracy');
    await row(250);
    await user.click(within(await grid()).getByRole('button', { name: 'accuracy' }));
    await waitFor(() => expect(rowsAsked(shown).at(-1)).toContain(encodeURIComponent('["accuracy"]')));
    expect(settledOf(shown).at(-1)).toBe('sort=accuracy&column=id&column=accuracy');
    expect((await grid()).querySelector('[aria-sort=ascending]')!.textContent).toContain('accuracy');
  });

  it('is moved through, selected from and opened by keys, but not while typing', async () => {
    const user = userEvent.setup();
    const shown = opened();
    await row(250);
    await user.keyboard('jjx');
    expect((await row(249)).getAttribute('aria-selected')).toBe('true');
    expect((await row(249)).dataset['active']).toBe('true');
    await user.keyboard('kx');
    expect(screen.getByText('2 trials selected')).toBeTruthy();
    await user.keyboard('{Enter}');
    expect(shown.done).toContain('navigate {"kind":"trial","id":250,"experiment":18}');
    await user.keyboard('/');
    const box = screen.getByRole('combobox', { name: 'Filter trials' });
    expect(document.activeElement).toBe(box);
    await user.keyboard('jxk?');
    expect((box as HTMLInputElement).value).toBe('jxk?');
    expect(screen.queryByRole('dialog', { name: 'Keys' })).toBeNull();
    act(() => box.blur());
    await user.keyboard('?');
    expect(screen.getByRole('dialog', { name: 'Keys' })).toBeTruthy();
  });

  it('leaves all keys to JupyterLab while the focus is elsewhere', async () => {
    opened('', {}, 250, 'lab');
    await row(250);
    const elsewhere = document.body.appendChild(document.createElement('button'));
    const heard = vi.fn();
    document.addEventListener('keydown', heard);
    const pressed = (key: string): boolean => fireEvent.keyDown(elsewhere, { key });
    for (const key of ['j', 'k', 'x', '/', '?', 'Enter']) expect(pressed(key)).toBe(true); // nobody has prevented it
    expect(heard).toHaveBeenCalledTimes(6);
    expect(screen.queryByRole('dialog', { name: 'Keys' })).toBeNull();
    expect(fireEvent.keyDown(await grid(), { key: 'j' })).toBe(false);
    expect((await row(250)).dataset['active']).toBe('true');
    expect(fireEvent.keyDown(await grid(), { key: 'j', ctrlKey: true })).toBe(true);
    document.removeEventListener('keydown', heard);
    elsewhere.remove();
  });

  it('selects what lies between with Shift, and nothing once another filter is shown', async () => {
    const user = userEvent.setup();
    opened();
    await user.click(await screen.findByRole('checkbox', { name: 'Select 250' }));
    fireEvent.click(screen.getByRole('checkbox', { name: 'Select 246' }), { shiftKey: true });
    expect(screen.getByText('5 trials selected')).toBeTruthy();
    await user.type(screen.getByRole('combobox', { name: 'Filter trials' }), 'loss > 1{Enter}');
    await waitFor(() => expect(screen.queryByText('5 trials selected')).toBeNull());
  });

  it('lets go of archived rows, which nobody sees any more, and still undoes that', async () => {
    const user = userEvent.setup();
    const cleared = vi.fn();
    const answer = { items: [{ id: 4, result: 'done', reason: '' }], left: [], undo: [{ act: 'unarchive', ids: [4] }] };
    const bar = (ids: readonly number[]): ReactElement => <BatchBar table="experiments" ids={ids} onClear={cleared} onDone={() => undefined} />;
    const shown = show(bar([4]), { overview: overview(0), 'POST experiments/batch': answer });
    await user.click(await screen.findByRole('button', { name: 'Archive' }));
    await waitFor(() => expect(cleared).toHaveBeenCalledOnce());
    shown.rerender(<AppProvider value={shown.app}><div className="det-app">{bar([])}</div></AppProvider>);
    expect(screen.queryByRole('button', { name: 'Kill' })).toBeNull();
    await user.click(screen.getByRole('button', { name: 'Undo' }));
    await waitFor(() => expect(shown.api.bodies.at(-1)).toMatchObject({ act: 'unarchive' }));
    expect(screen.queryByRole('region', { name: 'Selected rows' })).toBeNull();
  });

  it('says where a filter has a mistake, and keeps the rows', async () => {
    const user = userEvent.setup();
    const message = "the filter cannot be read at column 1: 'lable' is no field\n  lable = paper\n  ^";
    opened('', { 'trials?filter=lable+%3D+paper&limit=100': new ApiError(422, { message, problems: [{ path: 'filter', message, hint: null, level: 'error' }] }) });
    await row(250);
    const box = screen.getByRole('combobox', { name: 'Filter trials' });
    await user.type(box, 'lable = paper{Enter}');
    const said = await screen.findByRole('alert');
    // The message is wrapped; what has the mark below its place keeps its lines.
    expect(said.querySelector('p')!.textContent).toBe(message.split('\n')[0]);
    expect(said.querySelector('pre')!.textContent).toBe(message.split('\n').slice(1).join('\n'));
    expect(box.getAttribute('aria-invalid')).toBe('true');
    expect(await row(250)).toBeTruthy();
    await user.type(box, ' and');
    expect(screen.queryByRole('alert')).toBeNull();
  });

  it('offers what may come next in a filter', async () => {
    const user = userEvent.setup();
    opened();
    const box = await screen.findByRole('combobox', { name: 'Filter trials' });
    await user.type(box, 'acc');
    const list = await screen.findByRole('option', { name: /accuracy/ });
    expect(list.getAttribute('aria-selected')).toBe('false');
    await user.keyboard('{ArrowDown}');
    await waitFor(() => expect(screen.getByRole('option', { name: /accuracy/ }).getAttribute('aria-selected')).toBe('true'));
    await user.keyboard('{Enter}');
    expect((box as HTMLInputElement).value).toBe('accuracy ');
  });

  it('takes away columns that cannot be read, and says which are gone', async () => {
    const user = userEvent.setup();
    const path = `trials?${new URLSearchParams({ column: '["a..b"]', limit: '100' })}`;
    const shown = opened('column=id&column=a..b', { [path]: new ApiError(422, { message: 'no', problems: [{ path: 'column.0', message: 'a part is empty', hint: null, level: 'error' }] }) });
    await user.click(await screen.findByRole('button', { name: 'Take away a..b' }));
    await row(250);
    expect(settledOf(shown).at(-1)).toBe('column=id');
  });

  it('notes a metric that nothing has', async () => {
    opened('column=id&column=gone', {}, 5);
    expect(await screen.findByText(/nothing that you may see has a metric 'gone'/)).toBeTruthy();
    expect(within(await grid()).getByRole('button', { name: 'gone' }).title).toContain('no row here has it');
  });

  it('teaches when it is empty', async () => {
    opened('', {}, 0);
    expect(await screen.findByText('There are no trials yet.')).toBeTruthy();
    expect(screen.getByRole('button', { name: 'New experiment' })).toBeTruthy();
  });

  it('shows names of users as text', async () => {
    const { container } = opened('column=id&column=name&column=label&column=owner&column=hparams.lr', {}, 20, 'hub', true);
    await row(20);
    expect(container.querySelectorAll('script, img, svg').length).toBe(0);
    expect(container.textContent).toContain('<script>window.hacked=1</script>');
    expect(container.textContent).not.toContain('\u202e');
    expect((window as unknown as { hacked?: number }).hacked).toBeUndefined();
    expect(HOSTILE.name).toContain('\u202e');
  });

  it('begins with a saved view, and renames and deletes one', async () => {
    const user = userEvent.setup();
    const shown = opened('', { 'PUT saved-views': (body: unknown) => ({ ...views()[0], ...(body as object) }), 'DELETE saved-views': {} });
    await row(250);
    await user.click(screen.getByRole('button', { name: 'Views' }));
    await user.click(await screen.findByRole('button', { name: 'good' }));
    await waitFor(() => expect(settledOf(shown).at(-1)).toContain('view=good&filter=accuracy'));
    expect(screen.getByRole('button', { name: 'View: good' })).toBeTruthy();
    await user.click(screen.getByRole('button', { name: 'View: good' }));
    await user.click(await screen.findByRole('button', { name: 'Rename the view good' }));
    const name = screen.getByRole('textbox', { name: 'New name of the view good' });
    await user.clear(name);
    await user.type(name, 'better{Enter}');
    await waitFor(() => expect(shown.api.asked).toContain('DELETE saved-views?table=trials&name=good'));
    expect(shown.api.bodies.at(-1)).toMatchObject({ name: 'better', table: 'trials', filter: 'accuracy > 0.9 and label = paper', layout: { pinned: ['name'], heat: ['accuracy'] } });
    const puts = shown.api.bodies.length;
    await user.click(screen.getByRole('button', { name: 'Rename the view good' }));
    const again = screen.getByRole('textbox', { name: 'New name of the view good' });
    await user.clear(again);
    await user.type(again, 'last week{Enter}');
    expect(shown.done.at(-1)).toBe('notify There is a view “last week” already.');
    expect(shown.api.bodies).toHaveLength(puts);
    await user.click(screen.getByRole('button', { name: 'Delete the view last week' }));
    await waitFor(() => expect(shown.api.asked).toContain('DELETE saved-views?table=trials&name=last+week'));
  });

  it('has the views of projects of others, which it does not rename, and puts one of its own into a project', async () => {
    const user = userEvent.setup();
    const theirs: SavedView = { ...views()[0]!, id: 9, name: 'sharp', owner: 'ben', project_id: 3, project: 'digits', workspace: 'ada/vision' };
    const shown = opened('', {
      'saved-views': { items: [...views(), theirs], next: null }, 'PUT saved-views': (body: unknown) => ({ ...views()[0], ...(body as object) }),
      workspaces: { items: [workspace(7, { name: 'vision', owner: 'alice' })], after: null }, 'workspaces/7/projects': { items: [project(3, { name: 'digits' })], after: null }
    });
    await row(250);
    await user.click(screen.getByRole('button', { name: 'Views' }));
    await user.click(await screen.findByRole('button', { name: 'sharp' }));
    await waitFor(() => expect(settledOf(shown).at(-1)).toContain('view=ben%2Fsharp'));
    await user.click(screen.getByRole('button', { name: 'View: ben/sharp' }));
    expect(screen.queryByRole('button', { name: 'Delete the view sharp' })).toBeNull();
    await user.type(screen.getByRole('textbox', { name: 'Name of the view' }), 'mine');
    await user.selectOptions(await screen.findByRole('combobox', { name: 'Who has the view' }), 'vision / digits');
    await user.click(screen.getByRole('button', { name: 'Save view' }));
    await waitFor(() => expect(shown.api.bodies.at(-1)).toMatchObject({ name: 'mine', project: '3' }));
  });

  it('chooses columns, also by a search', async () => {
    const user = userEvent.setup();
    const shown = opened('column=id&column=name');
    await row(250);
    await user.click(screen.getByRole('button', { name: 'Columns (2)' }));
    await user.type(screen.getByRole('searchbox', { name: 'Search columns' }), 'f1');
    await user.click(await screen.findByRole('checkbox', { name: 'val/f1.max' }));
    expect(settledOf(shown).at(-1)).toBe('column=id&column=name&column=val%2Ff1.max');
    await waitFor(() => expect(rowsAsked(shown).at(-1)).toContain(encodeURIComponent('["val/f1.max"]')));
  });

  it('saves what it shows as a file, and says why there is none', async () => {
    const user = userEvent.setup();
    const shown = opened('filter=loss+%3E+1&column=id&column=loss', { 'GET tables/export': new ApiError(400, { message: 'a Parquet file needs pyarrow', hint: 'Take CSV' }) });
    await row(250);
    await user.click(screen.getByRole('button', { name: 'Export' }));
    await user.click(screen.getByRole('menuitem', { name: 'Parquet' }));
    await waitFor(() => expect(shown.done.at(-1)).toBe('notify trials.parquet was not made: a Parquet file needs pyarrow. Take CSV'));
    const asked = new URLSearchParams(shown.api.asked.find(one => one.includes('tables/export'))!.split('?')[1]);
    expect(Object.fromEntries(asked)).toEqual({ filter: 'loss > 1', column: '["id","loss"]', table: 'trials', format: 'parquet' });
  });
});

describe('a batch', () => {
  it('goes on after a refusal, says all of them, and ends when nothing answers', async () => {
    const { api } = opened();
    api.answers['POST experiments/1/edit'] = {};
    api.answers['POST experiments/2/edit'] = new ApiError(409, { message: 'it has not ended' });
    api.answers['POST experiments/3/edit'] = {};
    api.answers['POST experiments/4/edit'] = new ApiError(0, { message: 'no answer' });
    const counts: number[] = [];
    const end = await runBatch(api, 'experiments', labelAction('paper', true), [1, 2, 3, 4, 5], count => counts.push(count), new AbortController().signal);
    expect(end).toEqual({
      done: 2, unchanged: 0, refused: [{ id: 2, message: 'it has not ended' }, { id: 4, message: 'no answer' }], left: 1, problem: 'no answer', undo: []
    });
    expect(counts).toEqual([1, 2, 3, 4]);
    expect(api.bodies[1]).toEqual({ add_labels: ['paper'] });
  });

  it('of experiments is asked for at once where the master knows how, and goes on with what is left', async () => {
    const { api } = opened();
    const ids = Array.from({ length: 500 }, (_, i) => i + 1);
    api.answers['POST experiments/batch'] = (body: { experiment_ids: number[]; act: string }) => ({
      items: body.experiment_ids.slice(0, 60).map(id => ({ id, result: id === 7 ? 'refused' : id === 8 ? 'unchanged' : 'done', reason: id === 7 ? 'it is theirs' : '' })),
      left: body.experiment_ids.slice(60), undo: [{ act: 'remove_labels', experiment_ids: body.experiment_ids.slice(0, 60) }]
    });
    const end = await runBatch(api, 'experiments', labelAction('paper', true), ids, () => undefined, new AbortController().signal);
    expect(end).toMatchObject({ done: 498, unchanged: 1, refused: [{ id: 7, message: 'it is theirs' }], left: 0, problem: null });
    expect(end.undo).toHaveLength(9);
    expect(api.bodies[0]).toMatchObject({ act: 'add_labels', labels: ['paper'] });
    await undoBatch(api, end.undo);
    expect(api.bodies.at(-1)).toMatchObject({ act: 'remove_labels' });
  });

  it('asks before it kills, and compares by a link', async () => {
    const user = userEvent.setup();
    const shown = opened('', { 'POST trials/250/kill': {}, 'POST trials/249/kill': new ApiError(409, { message: 'it has ended' }) });
    for (const id of [250, 249]) await user.click(await screen.findByRole('checkbox', { name: `Select ${id}` }));
    await user.click(screen.getByRole('button', { name: 'Compare' }));
    expect(shown.done.at(-1)).toMatch(/^navigate \{"kind":"comparison","trials":\[250,249\],"experiments":\[\]/);
    await user.click(screen.getByRole('button', { name: 'Kill' }));
    await waitFor(() => expect(screen.getByText(/1 trial killed, 1 refused/)).toBeTruthy());
    expect(shown.done).toContain('confirm Kill 2 trials?');
    expect(screen.getByText('249: it has ended')).toBeTruthy();
  });
});

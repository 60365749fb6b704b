import { fireEvent, screen } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { describe, expect, it, vi } from 'vitest';

import { show } from '../../testing/app';
import { overview } from '../../testing/fixtures';
import { ActionButton } from './Action';
import { ClusterMessage } from './ClusterMessage';
import { ConfirmDialog } from './ConfirmDialog';
import { formatAge, formatAgo, formatBytes, formatDuration, formatLasting, formatNumber, formatValue, tickTexts } from './format';
import { sortRows } from './sorting';
import { Column, Table } from './Table';

describe('what administrators tell everybody', () => {
  it('is text, whatever it holds, and nothing where nothing is said', async () => {
    const said = { text: '<img src=x onerror=alert(1)> at \u202e6', set_by: 'ada', set_at: 1, begins_at: 1, ends_at: null };
    const view = overview();
    const told = show(<ClusterMessage />, { overview: { ...view, cluster: { ...view.cluster, message: said } } });
    expect((await screen.findByRole('status')).textContent).toBe('<img src=x onerror=alert(1)> at ⟨U+202E⟩6 (ada)');
    expect(told.container.querySelector('img')).toBeNull();
    expect(show(<ClusterMessage />, { overview: view }).container.textContent).toBe('');
  });
});

describe('formatting', () => {
  it('says numbers as the notebook does', () => {
    expect([0.25, 0.0214, 3, 12.3456, 123456.7, 1e-5, -2.5e7, 'NaN', 'Infinity', null].map(v => formatNumber(v as never))).toEqual(
      ['0.2500', '0.02140', '3', '12.35', '123457', '1e-5', '-2.5e7', 'NaN', '∞', '–']
    );
    expect([0.25, 1 / 3, 1e-5, 64, 2_000_000, 'adam'].map(v => formatValue(v))).toEqual(['0.25', '0.3333', '1e-5', '64', '2e6', 'adam']);
  });

  it('labels an axis in one notation', () => {
    expect(tickTexts([0, 0.05, 0.1, 0.15], true)).toEqual(['0.00', '0.05', '0.10', '0.15']);
    expect(tickTexts([0, 5e-4, 1e-3, 1.5e-3], true)).toEqual(['0', '5e-4', '1e-3', '1.5e-3']);
    expect(tickTexts([0, 500_000, 1_000_000], true)).toEqual(['0', '5e5', '1e6']);
    expect(tickTexts([1e-4, null, 1e-3, 1], false)).toEqual(['1e-4', '', '1e-3', '1e0']);
    expect(tickTexts([0, 10, 20], true)).toEqual(['0', '10', '20']);
    expect(tickTexts([1234.5678, 1234.568, 1234.5682], true)).toEqual(['1234.5678', '1234.5680', '1234.5682']);
    expect(tickTexts([123456, 123456.05, 123456.1], true)).toEqual(['123456.00', '123456.05', '123456.10']);
    expect(tickTexts([-20_100_000_000, -20_075_000_000, -20_050_000_000], true)).toEqual(['-2.01e10', '-2.0075e10', '-2.005e10']);
    expect(tickTexts([-1.23455e-7, -1.2345e-7], true)).toEqual(['-1.23455e-7', '-1.2345e-7']);
    expect(tickTexts([], true)).toEqual([]);
    expect(tickTexts([0.1 + 0.2], true)).toEqual(['0.3']);
  });

  it('says times and sizes as the notebook does', () => {
    expect([5, 187, 7511].map(formatDuration)).toEqual(['5 s', '3:07', '2:05:11']);
    expect([1, 42, 300, 7200, 200_000].map(s => formatAge(1000, 1000 + s))).toEqual(['now', '42 s', '5 min', '2 h', '2 d']);
    expect([1, 42, 300].map(s => formatAgo(1000, 1000 + s))).toEqual(['just now', '42 s ago', '5 min ago']);
    expect([0, 9, 42, 300].map(s => formatLasting(1000, 1000 + s))).toEqual(['for a few seconds', 'for a few seconds', 'for 42 s', 'for 5 min']);
    expect(formatBytes(1536)).toBe('1.5 KiB');
    expect(formatValue({ a: 'x'.repeat(100) }).length).toBe(60);
  });
});

describe('sorting', () => {
  it('puts what has no value last in both directions', () => {
    const rows = [3, null, 1, Number.NaN, 2];
    expect(sortRows(rows, x => x, false).slice(0, 3)).toEqual([1, 2, 3]);
    expect(sortRows(rows, x => x, true).slice(0, 3)).toEqual([3, 2, 1]);
    expect(sortRows(['t10', 't9'], x => x, false)).toEqual(['t9', 't10']);
  });

  it('lets no infinity win, in neither direction', () => {
    const rows = [0.2, -Infinity, 0.1, Infinity, Number.NaN];
    expect(sortRows(rows, x => x, false).slice(0, 2)).toEqual([0.1, 0.2]);
    expect(sortRows(rows, x => x, true).slice(0, 2)).toEqual([0.2, 0.1]);
  });
});

interface Item { id: number; loss: number | null }
const columns: Column<Item>[] = [
  { key: 'id', title: 'trial', width: 60, value: r => r.id },
  { key: 'loss', title: 'loss', width: 80, value: r => r.loss, align: 'right' }
];
const many: Item[] = Array.from({ length: 10_000 }, (_, i) => ({ id: i, loss: (i * 7919) % 10_000 }));

describe('the table', () => {
  it('draws only what is in sight of 10,000 rows', () => {
    show(<Table label="Trials" rows={many} columns={columns} rowKey={r => String(r.id)} />);
    expect(screen.getAllByRole('row').length).toBeLessThan(80);
    expect(screen.getByRole('grid').getAttribute('aria-rowcount')).toBe('10001');
  });

  it('sorts by a click on a title, and back', async () => {
    show(<Table label="Trials" rows={many} columns={columns} rowKey={r => String(r.id)} />);
    await userEvent.click(screen.getByRole('button', { name: /loss/ }));
    expect(screen.getAllByRole('columnheader')[1]!.getAttribute('aria-sort')).toBe('ascending');
    expect(screen.getAllByRole('row')[1]!.textContent).toBe('00');
    await userEvent.click(screen.getByRole('button', { name: /loss/ }));
    expect(screen.getAllByRole('row')[1]!.textContent).toMatch(/9999$/);
  });

  it('is walked and opened by keyboard', async () => {
    const open = vi.fn();
    show(<Table label="Trials" rows={many} columns={columns} rowKey={r => String(r.id)} onOpen={open} />);
    const grid = screen.getByRole('grid');
    grid.focus();
    await userEvent.keyboard('{ArrowDown}{ArrowDown}{Enter}');
    expect(open).toHaveBeenCalledWith(many[1]);
    await userEvent.keyboard('{End}{Enter}');
    expect(open).toHaveBeenLastCalledWith(many[9999]);
    expect(grid.getAttribute('aria-activedescendant')).not.toBeNull();
  });
});

describe('actions', () => {
  it('say why they cannot be done, and are not', async () => {
    const run = vi.fn();
    show(<ActionButton label="Kill" why="It has ended." onRun={run} />);
    const button = screen.getByRole('button', { name: 'Kill' });
    await userEvent.click(button);
    expect(run).not.toHaveBeenCalled();
    expect(document.getElementById(button.getAttribute('aria-describedby')!)!.textContent).toBe('It has ended.');
  });

  it('are not done twice while they run', async () => {
    let finish = (): void => undefined;
    const run = vi.fn(() => new Promise<void>(resolve => { finish = resolve; }));
    show(<ActionButton label="Kill" onRun={run} />);
    await userEvent.dblClick(screen.getByRole('button'));
    expect(run).toHaveBeenCalledTimes(1);
    finish();
  });

  it('are asked for: cancel has the focus, Escape is no', () => {
    const answer = vi.fn();
    show(<ConfirmDialog question={{ title: 'Kill?', body: 'It ends.', yes: 'Kill', danger: true }} onAnswer={answer} />);
    expect(document.activeElement!.textContent).toBe('Cancel');
    fireEvent(screen.getByRole('dialog'), new Event('cancel', { cancelable: true }));
    expect(answer).toHaveBeenCalledWith(false);
  });
});

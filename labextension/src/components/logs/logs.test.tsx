/** Logs: hostile text stays text, filters, the feed and its stream. */

import { readFileSync } from 'node:fs';

import { act, fireEvent, screen, waitFor } from '@testing-library/react';
import { describe, expect, it } from 'vitest';

import { HOSTILE, logLine } from '../../harness/fixtures';
import { show } from '../../testing/app';
import { LogBuffer, NO_FILTER, passes, pieces, rankColour, shownLine, withMarks } from './filter';
import { LogView } from './LogView';
import { logText, MAX_LINE, nameText, visible, withoutAnsi } from '../common/text';

describe('text of others', () => {
  it('loses ANSI sequences of every kind', () => {
    expect(withoutAnsi('\u001b[1;31mred\u001b[0m')).toBe('red');
    expect(withoutAnsi('\u001b]8;;http://evil\u0007link\u001b]8;;\u0007')).toBe('link');
    expect(withoutAnsi('\u001b]0;title\u001b\\x\u001b(By')).toBe('xy');
    expect(withoutAnsi('\u009b31mred')).toBe('red');
    expect(withoutAnsi('\u001bPdata\u001b\\after')).toBe('after');
  });

  it('shows control and reordering characters instead of obeying them', () => {
    expect(visible('a\u202egnp.exe\u202c')).toBe('a⟨U+202E⟩gnp.exe⟨U+202C⟩');
    expect(visible('a\u0000b\u0008\u200b\ufeff')).toBe('a⟨U+0000⟩b⟨U+0008⟩⟨U+200B⟩⟨U+FEFF⟩');
    expect(visible('tab\tand\nline ä 漢 😀')).toBe('tab\tand\nline ä 漢 😀');
    expect(visible('\u{e0041}')).toBe('⟨U+E0041⟩');
  });

  it('keeps what a progress bar wrote last, and cuts what is endless', () => {
    expect(logText('10 %\r20 %\r30 %\r')).toBe('30 %');
    expect(logText('x'.repeat(MAX_LINE + 5))).toContain('5 more characters');
    expect(nameText('a\nb\u202e')).toBe('a b⟨U+202E⟩');
    expect(nameText('x'.repeat(400)).length).toBe(301);
  });
});

describe('filters', () => {
  const line = shownLine(logLine(7, { level: 'ERROR', rank: 3, text: 'Loss is NaN' }));

  it('by rank, by level and worse, by text without case', () => {
    expect(passes(line, { ...NO_FILTER, rank: 3 })).toBe(true);
    expect(passes(line, { ...NO_FILTER, rank: 0 })).toBe(false);
    expect(passes(line, { ...NO_FILTER, level: 'WARNING' })).toBe(true);
    expect(passes(line, { ...NO_FILTER, level: 'CRITICAL' })).toBe(false);
    expect(passes({ ...line, level: null }, { ...NO_FILTER, level: 'INFO' })).toBe(false);
    expect(passes(line, { ...NO_FILTER, search: 'nan' })).toBe(true);
  });

  it('mark what was searched', () => {
    expect(pieces('aXbxc', 'x')).toEqual([
      { text: 'a', hit: false }, { text: 'X', hit: true }, { text: 'b', hit: false }, { text: 'x', hit: true }, { text: 'c', hit: false }
    ]);
    expect(pieces('abc', '')).toEqual([{ text: 'abc', hit: false }]);
  });

  it('have a mark where another attempt begins, also where a filter leaves out its first lines', () => {
    const shown = (runs: number[]): unknown[] =>
      withMarks(runs.map((run, i) => shownLine(logLine(i + 1, { run })))).map(row => ('mark' in row ? `attempt ${row.mark}` : row.id));
    expect(shown([1, 1, 2, 2, 4])).toEqual([1, 2, 'attempt 2', 3, 4, 'attempt 4', 5]);
    expect(shown([1, 1])).toEqual([1, 2]);
    expect(shown([3])).toEqual(['attempt 3', 1]);
  });

  it('have no second mark where the output says that an attempt begins', () => {
    const begins = 'detlab: attempt 2 of trial 7 resumes at step 400, from checkpoint abc';
    const lines = [logLine(1), logLine(2, { run: 2, text: begins }), logLine(3, { run: 2 })].map(shownLine);
    expect(withMarks(lines).map(row => row.id)).toEqual([1, 2, 3]);
    expect(withMarks([lines[0]!, lines[2]!]).map(row => row.id)).toEqual([1, 'attempt 2', 3]);
  });

  it('keep so many lines and no doubles', () => {
    const buffer = new LogBuffer(5);
    buffer.add([1, 2, 3].map(id => logLine(id)));
    expect(buffer.add([2, 3, 4, 5, 6, 7].map(id => logLine(id)))).toBe(4);
    expect(buffer.lines.map(l => l.id)).toEqual([3, 4, 5, 6, 7]);
    expect(buffer.dropped).toBe(2);
    buffer.prepend([1, 2, 3].map(id => logLine(id)));
    expect(buffer.lines.map(l => l.id)).toEqual([3, 4, 5, 6, 7]);
    const roomy = new LogBuffer(4);
    roomy.add([5, 6].map(id => logLine(id)));
    roomy.prepend([1, 2, 3, 5].map(id => logLine(id, { rank: 9 })));
    expect([roomy.lines.map(l => l.id), roomy.full, roomy.ranks.has(9)]).toEqual([[2, 3, 5, 6], true, true]);
  });
});

describe('the colour of a rank', () => {
  it('is one of eight, another for each neighbour, always the same, set in both themes, and none without a rank', () => {
    const eight = [0, 1, 2, 3, 4, 5, 6, 7].map(rankColour);
    expect(new Set(eight).size).toBe(8);
    expect([0, 1, 2, 3, 4, 5, 6, 7].map(rankColour)).toEqual(eight);
    expect(rankColour(8)).toBe(eight[0]);
    expect(rankColour(1023)).toBe(eight[7]);
    expect(rankColour(null)).toBe('inherit');
    const css = readFileSync('src/components/trial/trial.css', 'utf8');
    for (const colour of eight) {
      const defined = [...css.matchAll(new RegExp(`${colour.slice(4, -1)}: (#[0-9a-f]{6});`, 'g'))].map(found => found[1]);
      expect(new Set(defined).size, colour).toBe(2);
    }
  });

  it('marks the number of each line', async () => {
    const lines = [0, 1, 1, null].map((rank, i) => logLine(20 + i, { rank }));
    const { container } = show(<LogView base="trials/7/logs" label="Logs" />, { 'trials/7/logs': { items: lines } });
    await screen.findByRole('log');
    const shades = [...container.querySelectorAll<HTMLElement>('.det-log-rank')].map(el => el.style.color);
    expect(shades).toEqual([rankColour(0), rankColour(1), rankColour(1), rankColour(null)]);
  });
});

describe('the view', () => {
  const answers = { 'trials/5/logs': { items: [logLine(10), logLine(11, { text: HOSTILE.log, level: null })] } };

  it('shows lines as text, follows the stream by cursor, and says when it ended', async () => {
    const { api, container } = show(<LogView base="trials/5/logs" label="Logs of trial 5" />, answers);
    await screen.findByText(/<img src=x onerror="window.hacked=1"> ⟨U\+202E⟩evil/);
    expect(container.querySelector('img')).toBeNull();
    expect(api.asked).toContain('STREAM trials/5/logs/stream?after=11');
    act(() => api.say('trials/5/logs/stream', logLine(11)));
    act(() => api.say('trials/5/logs/stream', logLine(12, { text: 'fresh line', level: null })));
    await screen.findByText('fresh line');
    expect(container.querySelectorAll('.det-log-line').length).toBe(3);
    act(() => api.end('trials/5/logs/stream'));
    await screen.findByRole('button', { name: 'End' });
  });

  it('asks the service for a rank and a search, and says when nothing matches', async () => {
    const { api } = show(<LogView base="trials/5/logs" label="Logs" />, {
      ...answers,
      'GET trials/5/logs?tail=1': { items: [logLine(11)] },
      'GET trials/5/logs?tail=2000&search=nowhere': { items: [] }
    });
    await screen.findByRole('log');
    fireEvent.change(screen.getByLabelText('Search in the logs'), { target: { value: 'nowhere' } });
    await screen.findByText('No line matches.');
    await waitFor(() => expect(api.asked).toContain('GET trials/5/logs?tail=2000&search=nowhere'));
    await waitFor(() => expect(api.asked[api.asked.length - 1]).toBe('STREAM trials/5/logs/stream?after=11'));
    fireEvent.click(screen.getByRole('button', { name: 'Show all lines' }));
    await screen.findByRole('log');
  });

  it('asks the service for a level, and for older lines where it has looked at the newest only', async () => {
    const { api } = show(<LogView base="trials/5/logs" label="Logs" />, {
      ...answers,
      'GET trials/5/logs?tail=1': { items: [logLine(11)] },
      'GET trials/5/logs?tail=2000&level=ERROR': { items: [], older: 9 },
      'GET trials/5/logs?before=9&limit=2000&level=ERROR': { items: [logLine(3, { level: 'ERROR', text: 'an old mistake' })], older: null }
    });
    await screen.findByRole('log');
    fireEvent.change(screen.getByLabelText('Level'), { target: { value: 'ERROR' } });
    fireEvent.click(await screen.findByRole('button', { name: 'Search older' }));
    await screen.findByText('an old mistake');
    expect(screen.queryByRole('button', { name: /older/ })).toBeNull();
    expect(api.asked[api.asked.length - 1]).toBe('GET trials/5/logs?before=9&limit=2000&level=ERROR');
    act(() => api.say('trials/5/logs/stream', logLine(12, { level: 'INFO', text: 'harmless' })));
    act(() => api.say('trials/5/logs/stream', logLine(13, { level: 'CRITICAL', text: 'a new one' })));
    await screen.findByText('a new one');
    expect(screen.queryByText('harmless')).toBeNull();
  });

  it('of several nodes asks the service for one, and says where a line was written', async () => {
    const line = (id: number, node: string): ReturnType<typeof logLine> => logLine(id, { rank: 1, node, level: null, text: `line of ${node}` });
    const { api } = show(<LogView base="trials/5/logs" label="Logs" />, {
      'trials/5/logs': { items: [line(11, 'east'), line(12, 'west')] },
      'GET trials/5/logs?tail=1': { items: [line(12, 'west')] },
      'GET trials/5/logs?tail=2000&node=east': { items: [line(11, 'east')] }
    });
    const node = await screen.findByLabelText<HTMLSelectElement>('Node');
    expect(screen.getByTitle('rank 1 on west')).toBeTruthy();
    fireEvent.change(node, { target: { value: 'east' } });
    await waitFor(() => expect(screen.queryByText('line of west')).toBeNull());
    await waitFor(() => expect(api.asked).toContain('GET trials/5/logs?tail=2000&node=east'));
    expect([...node.options].map(option => option.value)).toEqual(['', 'east', 'west']);
  });

  it('asks the service for a rank, shows only its lines, and keeps the others choosable', async () => {
    const line = (id: number, rank: number | null): ReturnType<typeof logLine> => logLine(id, { rank, level: null, text: `line of ${rank ?? 'the launcher'}` });
    const { api } = show(<LogView base="trials/5/logs" label="Logs" />, {
      'trials/5/logs': { items: [line(10, null), line(11, 0), line(12, 1)] },
      'GET trials/5/logs?tail=1': { items: [line(12, 1)] },
      'GET trials/5/logs?tail=2000&rank=1': { items: [line(12, 1)] }
    });
    const rank = await screen.findByLabelText<HTMLSelectElement>('Rank');
    expect([...rank.options].map(option => option.textContent)).toEqual(['all', '0', '1']);
    fireEvent.change(rank, { target: { value: '1' } });
    await waitFor(() => expect(screen.queryByText('line of 0')).toBeNull());
    expect(screen.queryByText('line of the launcher')).toBeNull();
    expect(screen.getByText('line of 1')).toBeTruthy();
    await waitFor(() => expect(api.asked.slice(-3)).toEqual([
      'GET trials/5/logs?tail=1', 'GET trials/5/logs?tail=2000&rank=1', 'STREAM trials/5/logs/stream?after=12'
    ]));
    act(() => api.say('trials/5/logs/stream', line(13, 0)));
    act(() => api.say('trials/5/logs/stream', { ...line(14, 1), text: 'a new line of 1' }));
    await screen.findByText('a new line of 1');
    expect(screen.queryByText('line of 0')).toBeNull();
    expect([...rank.options].map(option => option.value)).toEqual(['', '0', '1']);
    fireEvent.change(rank, { target: { value: '' } });
    await screen.findByText('line of 0');
  });

  it('says what is wrong and tries again', async () => {
    const { api } = show(<LogView base="trials/6/logs" label="Logs" />, {});
    await screen.findByRole('alert');
    api.answers = { 'trials/6/logs': { items: [] } };
    fireEvent.click(screen.getByRole('button', { name: 'Try again' }));
    await screen.findByText(/No output yet/);
  });
});

/** The log viewer: regular expressions and times with context, the first error, lanes, wrap, download. */

import { act, fireEvent, screen, waitFor } from '@testing-library/react';
import { afterEach, describe, expect, it, vi } from 'vitest';

import { ApiError } from '../../state/api';
import type { LogLine } from '../../state/wire';
import { logLine } from '../../harness/fixtures';
import { show, type Shown } from '../../testing/app';
import { wholeText } from './download';
import { secondsOf, textOf } from './Filters';
import { byService, LogBuffer, NO_FILTER, passes, shownLine } from './filter';
import { LogView } from './LogView';

const BASE = 'trials/5/logs';
const LINES = [10, 11, 12].map(id => logLine(id, { text: `line ${id}`, level: null, rank: 0 }));

function open(answers: Record<string, unknown> = {}): Shown {
  return show(<LogView base={BASE} label="Logs" />, { [BASE]: { items: LINES }, [`GET ${BASE}?tail=1`]: { items: [LINES[2]] }, ...answers });
}

async function searchFor(text: string): Promise<void> {
  await screen.findByRole('log');
  fireEvent.click(screen.getByRole('button', { name: '.*' }));
  fireEvent.change(screen.getByLabelText('Search in the logs'), { target: { value: text } });
}

describe('a regular expression', () => {
  it('is matched by the service alone, also on lines that come later', async () => {
    const found = `GET ${BASE}?tail=2000&regex=loss%3D(nan%7Cinf)`;
    const { api } = open({ [found]: { items: [logLine(11, { text: 'loss=nan' })] } });
    await searchFor('loss=(nan|inf)');
    await screen.findByText('loss=nan');
    await waitFor(() => expect(api.streams).toContain(`${BASE}/stream`));
    api.answers[`GET ${BASE}?after=12&limit=2000&regex=loss%3D(nan%7Cinf)`] = { items: [logLine(14, { text: 'loss=inf' })], next: null };
    act(() => api.say(`${BASE}/stream`, logLine(13, { text: 'loss=1' })));
    act(() => api.say(`${BASE}/stream`, logLine(14, { text: 'loss=inf' })));
    await screen.findByText('loss=inf');
    expect(screen.queryByText('loss=1')).toBeNull();
    expect(api.asked.filter(path => path.includes('after=12&limit='))).toHaveLength(1);
  });

  it('that would keep this page busy for ever never runs here', async () => {
    const evil = '(a+)+$';
    open({ [`GET ${BASE}?tail=2000&regex=${encodeURIComponent(evil)}`]: { items: [logLine(11, { text: `${'a'.repeat(60)}b` })] } });
    const began = performance.now();
    await searchFor(evil);
    await screen.findByText(/^a+b$/);
    expect(performance.now() - began).toBeLessThan(8000);
  });

  it('that is none is told at the field, and what was shown stays', async () => {
    const bad = new ApiError(400, { code: 'logs.regex', message: "'(' is not a regular expression", hint: 'See the syntax of RE2' });
    open({ [`GET ${BASE}?tail=2000&regex=(`]: () => { throw bad; } });
    await searchFor('(');
    const told = await screen.findByRole('alert');
    expect(told.textContent).toBe("'(' is not a regular expression. See the syntax of RE2");
    expect(screen.getByLabelText('Search in the logs').getAttribute('aria-invalid')).toBe('true');
    expect(screen.getByText('line 12')).toBeTruthy();
  });
});

describe('context', () => {
  it('comes from the service and is told apart from what fits', async () => {
    open({ [`GET ${BASE}?tail=2000&level=ERROR&context=1`]: { items: LINES, context: [10, 12] } });
    await screen.findByRole('log');
    fireEvent.click(screen.getByRole('button', { name: 'Time, context' }));
    fireEvent.change(screen.getByLabelText('Context'), { target: { value: '1' } });
    fireEvent.change(screen.getByLabelText('Level'), { target: { value: 'ERROR' } });
    await waitFor(() => expect(document.querySelectorAll('[data-context]').length).toBe(2));
  });

  it('is nothing without a filter, and a line that fits itself is none', () => {
    expect(byService({ ...NO_FILTER, context: 3 })).toBe(false);
    expect(byService({ ...NO_FILTER, context: 3, rank: 1 })).toBe(true);
    const buffer = new LogBuffer();
    buffer.add(LINES, new Set([10, 12]));
    expect(buffer.lines.map(line => Boolean(line.context))).toEqual([true, false, true]);
    buffer.add([LINES[2]!, logLine(13)], new Set([13]));
    expect(buffer.lines.map(line => [line.id, Boolean(line.context)])).toEqual([[10, true], [11, false], [12, false], [13, true]]);
    expect(passes(buffer.lines[0]!, { ...NO_FILTER, search: 'nowhere', context: 1 })).toBe(true);
    expect(passes(buffer.lines[0]!, NO_FILTER)).toBe(false);
  });
});

describe('times', () => {
  it('are asked for in seconds, in the zone that is shown', async () => {
    expect(secondsOf('2001-09-09T01:46:40', 'UTC')).toBe(1e9);
    expect(textOf(1e9, 'UTC')).toBe('2001-09-09T01:46:40');
    expect(secondsOf(textOf(1e9, 'local'), 'local')).toBe(1e9);
    expect([secondsOf('', 'UTC'), secondsOf('nonsense', 'local')]).toEqual([null, null]);
    const { api } = open({ [`GET ${BASE}?tail=2000&since=1000000000`]: { items: [LINES[2]] } });
    await screen.findByRole('log');
    fireEvent.click(screen.getByRole('button', { name: 'Times' }));
    if (screen.getByRole('button', { name: 'UTC' }).getAttribute('aria-pressed') === 'false') fireEvent.click(screen.getByRole('button', { name: 'UTC' }));
    fireEvent.click(screen.getByRole('button', { name: 'Time, context' }));
    fireEvent.change(screen.getByLabelText('From'), { target: { value: '2001-09-09T01:46:40' } });
    await waitFor(() => expect(api.asked).toContain(`GET ${BASE}?tail=2000&since=1000000000`));
    expect(document.querySelector('.det-log-time')!.textContent).toMatch(/ UTC$/);
  });

  it('leave out what lies before and after', () => {
    const line = shownLine(logLine(1, { time: 100 }));
    expect([{ since: 100 }, { since: 101 }, { until: 100 }, { until: 101 }].map(some => passes(line, { ...NO_FILTER, ...some }))).toEqual([true, false, false, true]);
  });
});

describe('the first error', () => {
  it('is found in the whole output, shown among its neighbours, and not followed', async () => {
    const around = [300, 301].map(id => logLine(id, { text: `around ${id}`, level: null }));
    const fault = logLine(299, { text: 'Traceback (most recent call last):', level: null });
    const { api } = open({
      [`GET ${BASE}?after=0&limit=1&level=ERROR`]: { items: [], next: 5000 }, [`GET ${BASE}?after=5000&limit=1&level=ERROR`]: { items: [logLine(6000)] },
      [`GET ${BASE}?before=300&limit=500`]: { items: [fault], older: 299 }, [`GET ${BASE}?after=299&limit=2000`]: { items: around, next: 301 }
    });
    await screen.findByRole('log');
    const regex = () => Object.keys(api.answers).find(key => key.includes('&regex='));
    expect(regex()).toBeUndefined();
    const ask = api.get.bind(api);
    vi.spyOn(api, 'get').mockImplementation(async path => (path.includes('after=0&limit=1&regex=') ? { items: [fault] } as never : ask(path)));
    fireEvent.click(screen.getByRole('button', { name: 'First error' }));
    await screen.findByText('Traceback (most recent call last):');
    expect(document.querySelector('[data-target]')!.textContent).toContain('Traceback');
    expect(screen.getByText('There are newer lines.', { exact: false })).toBeTruthy();
    expect(screen.getByRole('button', { name: 'Follow' }).getAttribute('aria-pressed')).toBe('false');
    fireEvent.click(screen.getByRole('button', { name: 'Go to the newest' }));
    await screen.findByText('line 12');
    await waitFor(() => expect(screen.queryByText('There are newer lines.', { exact: false })).toBeNull());
  });

  it('says so where there is none', async () => {
    const { done } = open({ [`GET ${BASE}?after=0&limit=1&level=ERROR`]: { items: [] }, [BASE]: { items: [] } });
    fireEvent.click(await screen.findByRole('button', { name: 'First error' }));
    await waitFor(() => expect(done).toEqual(['notify No line of the output tells of an error.']));
  });
});

describe('ranks as lanes, and long lines', () => {
  const many = [0, 1, 0, null].map((rank, i) => logLine(20 + i, { rank, text: `of ${rank}`, level: null }));

  it('put each rank into a column of its own', async () => {
    show(<LogView base={BASE} label="Logs" />, { [BASE]: { items: many } });
    fireEvent.click(await screen.findByRole('button', { name: 'Lanes' }));
    const lefts = [...document.querySelectorAll<HTMLElement>('.det-log-line')].map(line => line.style.left);
    expect(lefts).toEqual(['0%', '50%', '0%', '']);
    expect(document.querySelector('.det-log-lanes')!.textContent).toBe('rank 0rank 1');
    fireEvent.click(screen.getByRole('button', { name: 'Wrap' }));
    expect(document.querySelector('.det-log-lanes')).toBeNull();
    expect(document.querySelectorAll('.det-log-wrapped .det-log-line').length).toBe(4);
  });

  it('one rank has no lanes', async () => {
    open();
    await screen.findByRole('log');
    expect(screen.queryByRole('button', { name: 'Lanes' })).toBeNull();
  });
});

describe('the download', () => {
  afterEach(() => vi.restoreAllMocks());

  it('has all lines that fit, page by page, with ranks and times', async () => {
    const { api } = open({
      [`GET ${BASE}?after=0&limit=10000&rank=1`]: { items: [logLine(1, { rank: 1, time: 1e9, text: 'a\u001b[1mb' })], next: 7 },
      [`GET ${BASE}?after=7&limit=10000&rank=1`]: { items: [logLine(8, { rank: 1, time: 1e9 + 1, text: 'end' })], next: null }
    });
    const counts: number[] = [];
    const blob = await wholeText(api, BASE, { ...NO_FILTER, rank: 1, context: 3 }, 'UTC', new AbortController().signal, count => counts.push(count));
    const text = await new Promise(done => { const reader = new FileReader(); reader.onload = () => done(reader.result); reader.readAsText(blob); });
    expect(text).toBe('2001-09-09 01:46:40 UTC [1] a\u001b[1mb\n2001-09-09 01:46:41 UTC [1] end\n');
    expect(counts).toEqual([1, 2]);
  });

  it('ends where a service does not move on', async () => {
    const { api } = open({ [`GET ${BASE}?after=0&limit=10000`]: { items: [] as LogLine[], next: 0 } });
    await wholeText(api, BASE, NO_FILTER, null, new AbortController().signal, () => undefined);
    expect(api.asked.filter(path => path.includes('limit=10000'))).toHaveLength(1);
  });
});

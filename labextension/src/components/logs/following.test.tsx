/** Follow is the reader's: no other scroll event ends it, or begins it. */

import { act, fireEvent, render } from '@testing-library/react';
import { useState, type ReactElement } from 'react';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { logLine } from '../../harness/fixtures';
import { shownLine, type ShownLine } from './filter';
import { Lines } from './Lines';

const LINE = 18;
let high = 300;
let tops = new WeakMap<Element, number>();
let watched: (() => void)[] = [];

const linesOf = (from: number, to: number): ShownLine[] =>
  Array.from({ length: to - from }, (_, i) => shownLine(logLine(from + i, { text: `line ${from + i}`, level: null })));

/** What a browser does and jsdom does not: a box has a height, and no position beyond its end. */
function layOut(): void {
  const inside = (el: HTMLElement): number => parseFloat(el.querySelector<HTMLElement>('.det-log-lines')?.style.height ?? '') || 0;
  const box = (name: 'clientHeight' | 'scrollHeight' | 'scrollTop', get: (el: HTMLElement) => number, set?: (el: HTMLElement, to: number) => void): void => {
    Object.defineProperty(HTMLDivElement.prototype, name, {
      configurable: true,
      get(this: HTMLElement) { return this.className === 'det-log-box' ? get(this) : 0; },
      set(this: HTMLElement, to: number) { set?.(this, to); }
    });
  };
  const most = (el: HTMLElement): number => Math.max(0, inside(el) - high);
  Object.defineProperty(HTMLDivElement.prototype, 'offsetHeight', {
    configurable: true,
    get(this: HTMLElement) { return this.className === 'det-log-box' ? high : LINE; }
  });
  box('clientHeight', () => high);
  box('scrollHeight', el => Math.max(high, inside(el)));
  box('scrollTop', el => Math.min(tops.get(el) ?? 0, most(el)), (el, to) => tops.set(el, Math.max(0, Math.min(to, most(el)))));
  HTMLDivElement.prototype.scrollTo = function scrollTo(this: HTMLDivElement, to?: unknown): void {
    this.scrollTop = (to as ScrollToOptions).top ?? 0;
  } as typeof HTMLDivElement.prototype.scrollTo;
}

beforeEach(() => {
  high = 300;
  tops = new WeakMap();
  watched = [];
  vi.stubGlobal('ResizeObserver', class {
    constructor(private readonly tell: () => void) {}
    observe(el: Element): void { if (el.className === 'det-log-box') watched.push(this.tell as () => void); }
    unobserve(): void {}
    disconnect(): void { watched = watched.filter(one => one !== this.tell); }
  });
  layOut();
});

afterEach(() => {
  vi.unstubAllGlobals();
  for (const name of ['offsetHeight', 'clientHeight', 'scrollHeight', 'scrollTop', 'scrollTo'] as const) delete (HTMLDivElement.prototype as Partial<HTMLDivElement>)[name];
});

interface Props { lines: ShownLine[]; wrap?: boolean; target?: number | null; starts?: boolean }

function Log({ lines, wrap = false, target = null, starts = true }: Props): ReactElement {
  const [follow, setFollow] = useState(starts);
  const look = { times: false, zone: 'UTC', wrap, lanes: false };
  return <section data-follow={follow}><Lines lines={lines} label="Logs" search="" look={look} follow={follow} onFollow={setFollow} target={target} /></section>;
}

function open(props: Props) {
  const shown = render(<Log {...props} />);
  const box = (): HTMLElement => shown.getByRole('log');
  return {
    box,
    set: (more: Props) => shown.rerender(<Log {...more} />),
    follows: () => shown.container.querySelector('section')!.dataset['follow'] === 'true',
    atEnd: () => box().scrollHeight - box().scrollTop - box().clientHeight < 2,
    scrollTo: (top: number) => { box().scrollTop = top; fireEvent.scroll(box()); },
    first: () => Math.floor(box().scrollTop / LINE)
  };
}

/** The window, or what stands above: the browser keeps the position as far as it can, and may send a scroll event. */
function resize(box: HTMLElement, to: number, eventFirst: boolean): void {
  high = to;
  const tell = (): void => act(() => watched.forEach(one => one()));
  if (!eventFirst) tell();
  fireEvent.scroll(box);
  if (eventFirst) tell();
}

describe.each([false, true])('with lines that wrap: %s', wrap => {
  it.each([true, false])('a box of another size stays at its newest line, and Follow on (event first: %s)', eventFirst => {
    const log = open({ lines: linesOf(1, 200), wrap });
    for (const to of [120, 500, 80]) {
      resize(log.box(), to, eventFirst);
      expect([log.follows(), log.atEnd()]).toEqual([true, true]);
    }
    log.set({ lines: linesOf(1, 260), wrap });
    expect([log.follows(), log.atEnd()]).toEqual([true, true]);
  });

  it('its reader leaves the end, and comes back', () => {
    const log = open({ lines: linesOf(1, 200), wrap });
    log.scrollTo(900);
    expect(log.follows()).toBe(false);
    log.set({ lines: linesOf(1, 260), wrap });
    expect(log.box().scrollTop).toBe(900);
    log.scrollTo(1e6);
    expect(log.follows()).toBe(true);
  });

  it('a box that comes to show its end by its size alone does not begin to follow', () => {
    const log = open({ lines: linesOf(1, 200), wrap });
    log.scrollTo(199 * LINE - 500);
    expect(log.follows()).toBe(false);
    resize(log.box(), 900, true);
    expect(log.atEnd()).toBe(true);
    expect(log.follows()).toBe(false);
  });

  it('a filter neither ends nor begins it', () => {
    const all = linesOf(1, 200);
    const log = open({ lines: all, wrap });
    log.set({ lines: all.filter(line => line.id % 10 === 0), wrap });
    fireEvent.scroll(log.box());
    expect([log.follows(), log.atEnd()]).toEqual([true, true]);
    log.set({ lines: all, wrap });
    fireEvent.scroll(log.box());
    expect([log.follows(), log.atEnd()]).toEqual([true, true]);
    log.scrollTo(900);
    log.set({ lines: all.slice(0, 20), wrap });
    fireEvent.scroll(log.box());
    expect(log.follows()).toBe(false);
  });
});

it('a jump to a line near the end is none of its reader\'s scrolling', () => {
  const log = open({ lines: linesOf(1, 200), starts: false });
  log.set({ lines: linesOf(1, 200), target: 199, starts: false });
  fireEvent.scroll(log.box());
  expect(log.follows()).toBe(false);
});

it('the lines in sight stay where older ones come, where old ones go, and where lines come to wrap', () => {
  const log = open({ lines: linesOf(500, 700) });
  log.scrollTo(100 * LINE + 5);
  expect(log.follows()).toBe(false);
  log.set({ lines: linesOf(300, 700) });
  expect(log.box().scrollTop).toBe(300 * LINE + 5);
  log.set({ lines: linesOf(550, 700) });
  expect(log.box().scrollTop).toBe(50 * LINE + 5);
  log.set({ lines: linesOf(550, 700), wrap: true });
  expect([log.first(), log.follows()]).toEqual([50, false]);
  log.set({ lines: linesOf(550, 700), wrap: false });
  expect([log.first(), log.follows()]).toEqual([50, false]);
});

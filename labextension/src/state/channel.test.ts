/** The one stream of a page, against a server that keeps a log: nothing is lost, nothing comes twice, one is open. */

import { act } from '@testing-library/react';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import type { Api } from './api';
import { Channel, Subject, Subscription } from './channel';
import type { Event } from './wire';

const tick = (ms = 50): Promise<unknown> => act(() => vi.advanceTimersByTimeAsync(ms));

/** A log of events of experiments 1 to 4, told as the master tells it. */
class Server {
  log: Event[] = [];
  opened: string[] = [];
  private readers = new Map<object, { at: number; follow: Subject[]; line(line: unknown): void; fail(error: Error): void }>();

  get open(): number { return this.readers.size; }

  api = {
    stream: (path: string, line: (line: unknown) => void, signal: AbortSignal) => new Promise<void>((resolve, fail) => {
      this.opened.push(path);
      const query = new URLSearchParams(path.split('?')[1]);
      const reader = { at: Number(query.get('after')), follow: JSON.parse(query.get('follow') ?? '[]') as Subject[], line, fail };
      this.readers.set(signal, reader);
      const beat = setInterval(() => line(null), 5000);
      signal.addEventListener('abort', () => { clearInterval(beat); this.readers.delete(signal); resolve(); });
      line(null);
      this.tell();
    })
  } as unknown as Api;

  add(kind: 'experiment' | 'metrics' | 'cluster', experiment: number | null, trial: number | null = null): void {
    const data = kind === 'metrics' ? { group: 'validation', metrics: { loss: 1 } } : {};
    this.log.push({ id: this.log.length + 1, kind, time: 0, experiment_id: experiment, trial_id: trial, task_id: null, data } as Event);
  }

  tell(): void {
    for (const reader of [...this.readers.values()]) {
      while (reader.at < this.log.length) {
        const event = this.log[reader.at]!;
        reader.at = event.id;
        const wanted = reader.follow.some(f => f.experiment === event.experiment_id && (f.trial ?? event.trial_id) === event.trial_id);
        if (event.kind !== 'metrics' || wanted) reader.line(event);
      }
    }
  }

  cut(): void {
    for (const [key, reader] of [...this.readers]) {
      this.readers.delete(key);
      reader.fail(new Error('cut'));
    }
  }
}

interface View { heard: number[]; of: Subject | null; begun: number; subscription: Subscription }

describe('the stream of a page', () => {
  let server: Server;
  let channel: Channel;

  beforeEach(() => {
    vi.useFakeTimers();
    server = new Server();
    channel = new Channel(server.api);
  });

  afterEach(() => {
    channel.dispose();
    vi.useRealTimers();
  });

  function view(of: Subject | null, cursor = server.log.length): View {
    const made = { heard: [] as number[], of, begun: cursor } as unknown as View;
    made.subscription = channel.subscribe({
      subject: of, cursor, onLink: () => undefined,
      onEvent: event => void (event.kind === 'resync' ? expect.unreachable() : made.heard.push(event.id))
    });
    return made;
  }

  /** What a view must have heard of the log: all that concerns it beyond its snapshot. */
  function due(one: View): number[] {
    return server.log.filter(e => e.id > one.begun && (one.of ? e.experiment_id === one.of.experiment
      && (e.kind !== 'metrics' || one.of.trial === undefined || e.trial_id === one.of.trial) : e.kind !== 'metrics')).map(e => e.id);
  }

  it('is one for the panel, views of experiments and of a trial', async () => {
    const views = [view(null), view({ experiment: 1, group: 'validation', name: 'loss' })];
    await tick();
    views.push(view({ experiment: 2 }), view({ experiment: 2, trial: 20 }));
    await tick();
    expect(server.open).toBe(1);
    expect(server.opened.length).toBe(2);
    server.add('metrics', 1, 10);
    server.add('metrics', 2, 20);
    server.add('metrics', 2, 21);
    server.add('metrics', 3, 30);
    server.add('experiment', 2);
    server.tell();
    expect(views.map(v => v.heard)).toEqual([[5], [1], [2, 3, 5], [2, 5]]);
  });

  it('gives a view whose snapshot is older than the stream what it lacks, and nobody else anything twice', async () => {
    const panel = view(null);
    await tick();
    server.add('experiment', 1);
    server.add('metrics', 1, 10);
    server.add('experiment', 1);
    server.tell();
    const late = view({ experiment: 1 }, 1);
    await tick();
    server.add('experiment', 1);
    server.tell();
    expect([panel.heard, late.heard]).toEqual([[1, 3, 4], [2, 3, 4]]);
    expect(server.opened[1]).toMatch(/^stream\?after=1&follow=/);
  });

  it('is not opened anew for a view that it serves already, nor for a short look away', async () => {
    view(null);
    const first = view({ experiment: 1 });
    await tick();
    const second = view({ experiment: 1 });
    first.subscription.pause();
    await tick(5000);
    first.subscription.resume();
    second.subscription.stop();
    await tick(40_000);
    expect(server.opened.length).toBe(1);
  });

  it('carries nothing for long for what is closed or out of sight, which catches up when it is looked at again', async () => {
    view(null);
    const away = view({ experiment: 1 });
    await tick();
    away.subscription.pause();
    await tick(40_000);
    expect(server.opened[1]).toBe('stream?after=0');
    server.add('metrics', 1, 10);
    server.add('experiment', 2);
    server.tell();
    expect(away.heard).toEqual([]);
    away.subscription.resume();
    await tick();
    expect(away.heard).toEqual([1]);
    expect(server.open).toBe(1);
  });

  it('has a view that was away for long take its snapshot anew instead of all that it missed', async () => {
    const panel = view(null);
    const resync = vi.fn();
    const away = channel.subscribe({ subject: { experiment: 1 }, cursor: 0, onLink: () => undefined, onEvent: resync });
    await tick();
    away.pause();
    await tick(40_000);
    for (let i = 0; i < 6000; i++) server.add('experiment', 2);
    server.tell();
    away.resume();
    expect(resync).toHaveBeenCalledTimes(1);
    expect(resync.mock.calls[0]![0]).toMatchObject({ kind: 'resync' });
    away.rebase(6000);
    await tick();
    expect(server.opened[server.opened.length - 1]).toMatch(/after=6000&follow/);
    expect(panel.heard.length).toBe(6000);
  });

  it('asks for all metrics of an experiment when the names would make an address that no proxy takes', async () => {
    for (let i = 0; i < 30; i++) view({ experiment: 1 + i % 2, group: 'validation', name: `${'n'.repeat(300)}${i},` });
    await tick();
    expect(server.opened.length).toBe(1);
    expect(new URLSearchParams(server.opened[0]!.split('?')[1]).get('follow')).toBe('[{"experiment":1},{"experiment":2}]');
  });

  it.each([1, 2, 3, 4, 5, 6])('loses and doubles nothing, whatever opens, closes, hides and breaks (seed %i)', async seed => {
    let state = seed * 7919;
    const random = (below: number): number => (state = (state * 48271) % 2147483647) % below;
    const views = [view(null)];
    const gone: View[] = [];
    for (let round = 0; round < 150; round++) {
      for (let i = random(4); i > 0; i--) server.add((['experiment', 'metrics', 'cluster'] as const)[random(3)]!, 1 + random(4), random(3));
      if (random(3)) server.tell();
      const some = views[1 + random(views.length - 1)];
      switch (random(9)) {
        case 0: case 1: {
          const trial = random(2) ? random(3) : undefined;
          // a snapshot is a little older than the log
          views.push(view({ experiment: 1 + random(4), trial }, Math.max(0, server.log.length - random(5))));
          break;
        }
        case 2: some?.subscription.pause(); break;
        case 3: some?.subscription.resume(); break;
        case 4: if (some) { some.subscription.stop(); gone.push(...views.splice(views.indexOf(some), 1)); } break;
        case 5: server.cut(); break;
        case 6: await tick(random(60_000)); break;
        default: await tick(random(30));
      }
      expect(server.open).toBeLessThanOrEqual(1);
    }
    for (const one of views) one.subscription.resume();
    await tick(60_000);
    server.tell();
    for (const one of views) expect(one.heard).toEqual(due(one));
    for (const one of gone) expect(one.heard).toEqual([...new Set(one.heard)].sort((a, b) => a - b));
  });
});

import { act } from '@testing-library/react';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { FakeApi } from '../testing/app';
import { experiment, overview, task } from '../testing/fixtures';
import { ApiError } from './api';
import { Store } from './store';

let visibility = 'visible';

function look(state: 'visible' | 'hidden'): void {
  visibility = state;
  document.dispatchEvent(new Event('visibilitychange'));
}

const tick = (ms = 50): Promise<unknown> => act(() => vi.advanceTimersByTimeAsync(ms));

describe('the store', () => {
  let api: FakeApi;
  let store: Store;

  beforeEach(async () => {
    vi.useFakeTimers();
    vi.spyOn(document, 'visibilityState', 'get').mockImplementation(() => visibility as DocumentVisibilityState);
    visibility = 'visible';
    api = new FakeApi({ overview: overview() });
    store = new Store(api);
    store.start();
    await tick();
  });

  afterEach(() => {
    store.dispose();
    vi.useRealTimers();
    vi.restoreAllMocks();
  });

  it('takes one overview and goes on from its cursor by one stream', () => {
    expect(api.asked).toEqual(['GET overview', 'STREAM stream?after=7']);
    expect(store.getSnapshot().experiments.map(e => e.id)).toEqual([2, 1]);
    expect(store.getSnapshot().link.kind).toBe('open');
  });

  it('folds many events into one change a frame', async () => {
    const heard = vi.fn();
    store.subscribe(heard);
    for (let i = 0; i < 100; i++) {
      api.say('stream', { id: 8 + i, kind: 'experiment', data: experiment(1, { progress: i / 100 }) });
    }
    api.say('stream', { id: 200, kind: 'experiment', data: experiment(3) });
    api.say('stream', { id: 201, kind: 'task', data: task('sh-1', { kind: 'shell' }) });
    await tick();
    expect(heard).toHaveBeenCalledTimes(1);
    const now = store.getSnapshot();
    expect(now.experiments.map(e => e.id)).toEqual([3, 2, 1]);
    expect(now.experiments[2]!.progress).toBe(0.99);
    expect(now.tasks.map(t => t.id)).toEqual(['sh-1', 'nb-1']);
  });

  it('shows nothing of others and forgets what was deleted', async () => {
    api.say('stream', { id: 8, kind: 'experiment', data: experiment(9, { owner: 'ben' }) });
    api.say('stream', { id: 9, kind: 'experiment', data: experiment(1, { state: 'DELETED' }) });
    await tick();
    expect(store.getSnapshot().experiments.map(e => e.id)).toEqual([2]);
  });

  it('closes the stream while the page is hidden and goes on where it was', async () => {
    api.say('stream', { id: 41, kind: 'cursor', data: {} });
    look('hidden');
    expect(api.streams).toEqual([]);
    expect(store.getSnapshot().link.kind).toBe('paused');
    const asked = api.asked.length;
    await tick(600_000);
    expect(api.asked.length).toBe(asked);
    look('visible');
    await tick();
    expect(api.asked.slice(asked)).toEqual(['STREAM stream?after=41']);
  });

  it('says that the connection is lost, and tries again less and less often', async () => {
    api.fail('stream');
    await tick(0);
    const link = store.getSnapshot().link;
    expect(link.kind).toBe('lost');
    api.stream = (path: string) => {
      api.asked.push(`STREAM ${path}`);
      return Promise.reject(new ApiError(0, { message: 'gone' }));
    };
    const before = api.asked.length;
    await tick(60_000);
    const tries = api.asked.length - before;
    expect(tries).toBeGreaterThan(3);
    expect(tries).toBeLessThan(10);
    expect(store.getSnapshot().experiments.length).toBe(2);
  });

  it('takes silence for a loss', async () => {
    await tick(10_900);
    expect(store.getSnapshot().link.kind).toBe('open');
    await tick(200);
    expect(store.getSnapshot().link.kind).toBe('lost');
    await tick(1_000);
    expect(store.getSnapshot().link.kind).toBe('open');
  });

  it('takes the overview anew after a resync', async () => {
    api.answers['overview'] = overview({ cursor: 90, experiments: [experiment(5)] });
    api.say('stream', { id: 80, kind: 'resync', data: {} });
    await tick();
    expect(store.getSnapshot().experiments.map(e => e.id)).toEqual([5]);
  });

  it('asks for agents and the queue once for a burst of cluster events', async () => {
    Object.assign(api.answers, { cluster: overview().cluster, agents: [], queue: { items: [] } });
    for (let i = 0; i < 20; i++) api.say('stream', { id: 8 + i, kind: 'cluster', data: {} });
    await tick(100);
    expect(api.asked.filter(path => path === 'GET queue').length).toBe(1);
    expect(store.getSnapshot().agents).toEqual([]);
  });
});

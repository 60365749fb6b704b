/** The notebook widget: a page that is drawn late, or misses something, gets all there is. */

import { act } from '@testing-library/react';
import { describe, expect, it, vi } from 'vitest';

import type { Frame } from './frames';
import widget from './index';

const EXPERIMENT = {
  id: 7, title: 'digits', state: 'ACTIVE' as const, ended: false, metric: 'loss', progress: 0, line: '', url: null,
  best: null, smallerIsBetter: true, notices: []
};

function frame(steps: number[], more: Partial<Frame> = {}): Frame {
  const curves = [{ trial: 1, from: 0, steps, values: steps.map(() => 0.5), gaps: [] }];
  const trials = [{ id: 1, index: 0, cells: ['1'], grey: false, running: true }];
  return { experiment: EXPERIMENT, header: ['Trial'], trials, drawn: [1], lengths: [steps.length], count: 1, curves, ...more };
}

/** The kernel's side: what it is asked, and a way to tell the page something. */
class Kernel {
  readonly asked: unknown[] = [];
  private heard = new Map<string, (message: unknown) => void>();

  constructor(private snapshot: Frame) {}

  get(): Frame {
    return this.snapshot;
  }

  on(name: string, callback: (message: unknown) => void): void {
    this.heard.set(name, callback);
  }

  off(name: string): void {
    this.heard.delete(name);
  }

  send(message: unknown): void {
    this.asked.push(message);
  }

  tell(message: Frame): void {
    this.heard.get('msg:custom')?.(message);
  }
}

const ALL = { need: 'snapshot' };

describe('the notebook widget', () => {
  it('shows a search that waits as queued, and one of an older kernel by its state', async () => {
    for (const [word, more] of [['queued', { shown: 'QUEUED' as const }], ['running', {}]] as const) {
      const { el, end } = await shown(new Kernel(frame([], { experiment: { ...EXPERIMENT, ...more }, whole: true })));
      expect(el.querySelector('.det-badge')?.textContent).toContain(word);
      act(end);
    }
  });

  it('hands the picture over that the kernel sends at the end, and draws on if nobody takes it', async () => {
    const kernel = new Kernel(frame([1]));
    const { el, end } = await shown(kernel);
    const heard = vi.fn();
    document.body.addEventListener('detlab-still', event => heard((event as CustomEvent<unknown>).detail));
    document.body.append(el);
    act(() => kernel.tell({ still: { 'text/html': 'picture' } } as unknown as Frame));
    expect(heard.mock.calls).toEqual([[{ 'text/html': 'picture' }]]);
    expect(el.querySelector('.det-badge')).not.toBeNull();
    act(end);
    el.remove();
  });

  it('asks for all there is as soon as it listens: what came before is lost', () => {
    const kernel = new Kernel(frame([1, 2]));
    const end = widget.render({ model: kernel, el: document.createElement('div') });
    expect(kernel.asked).toEqual([ALL]);
    end();
  });

  it('asks once until it is answered, and again when something is missed later', () => {
    const kernel = new Kernel(frame([1, 2]));
    const end = widget.render({ model: kernel, el: document.createElement('div') });
    kernel.tell(frame([5], { lengths: [5] }));
    expect(kernel.asked).toEqual([ALL]);
    kernel.tell(frame([1, 2, 3, 4, 5], { whole: true }));
    kernel.tell(frame([1, 2, 3, 4, 5, 6]));
    expect(kernel.asked).toEqual([ALL]);
    kernel.tell(frame([8], { lengths: [8] }));
    expect(kernel.asked).toEqual([ALL, ALL]);
    end();
  });

  it('asks again if no answer comes, less often each time, and not forever', () => {
    vi.useFakeTimers();
    try {
      const kernel = new Kernel(frame([1, 2]));
      const end = widget.render({ model: kernel, el: document.createElement('div') });
      kernel.tell(frame([5], { lengths: [5] }));
      vi.advanceTimersByTime(1999);
      expect(kernel.asked).toHaveLength(1);
      vi.advanceTimersByTime(1);
      expect(kernel.asked).toHaveLength(2);
      kernel.tell(frame([1, 2, 3, 4, 5], { whole: true }));
      vi.advanceTimersByTime(600_000);
      expect(kernel.asked).toHaveLength(2);
      kernel.tell(frame([8], { lengths: [8] }));
      vi.advanceTimersByTime(600_000);
      expect(kernel.asked).toHaveLength(2 + 6);
      kernel.tell(frame([9], { lengths: [9] }));
      expect(kernel.asked).toHaveLength(2 + 7);
      end();
      vi.advanceTimersByTime(600_000);
      expect(kernel.asked).toHaveLength(2 + 7);
    } finally {
      vi.useRealTimers();
    }
  });

  it('shows what is known where the kernel is gone', async () => {
    const kernel = new Kernel(frame([1, 2]));
    kernel.send = () => {
      throw new Error('Cannot send');
    };
    const { el, end } = await shown(kernel);
    expect(el.textContent).toContain('digits');
    expect(el.querySelector('.det-live-plot')?.getAttribute('aria-label')).toBe('Learning curves of loss: 1 trial, 2 points');
    act(end);
    expect(el.textContent).toBe('');
  });

  it('has the controls, the legend and the table, with names of users as text', async () => {
    const hostile = '<img src=x onerror=alert(1)>';
    const kernel = new Kernel(frame([1, 2], { experiment: { ...EXPERIMENT, title: hostile } }));
    const { el, end } = await shown(kernel);
    expect(el.querySelector('img')).toBeNull();
    expect(el.textContent).toContain(hostile);
    expect([...el.querySelectorAll('button')].map(button => button.textContent)).toEqual(['Log scale', 'Smooth', 'Image ▾']);
    expect(el.querySelector('[aria-label=Legend]')?.textContent).toBe(' trial 1');
    expect(el.querySelector('tbody td')?.textContent).toBe('1');
    act(end);
  });
});

/** Render a widget and wait for its first drawing. */
async function shown(kernel: Kernel): Promise<{ el: HTMLElement; end: () => void }> {
  const el = document.createElement('div');
  let end = (): void => undefined;
  await act(async () => {
    end = widget.render({ model: kernel, el });
    await new Promise(requestAnimationFrame);
  });
  return { el, end };
}

/** The notebook widget: a page that is drawn late, or misses something, gets all there is. */

import { describe, expect, it } from 'vitest';

import { Update } from '../components/model';
import widget from './index';

const EXPERIMENT = {
  id: 7, title: 'digits', state: 'running', ended: false, metric: 'loss', progress: 0, line: '', url: null,
  best: null, smallerIsBetter: true, notices: []
};

function update(steps: number[], more: Partial<Update> = {}): Update {
  const curves = [{ trial: 1, from: 0, steps, values: steps.map(() => 0.5), gaps: [] }];
  const trials = [{ id: 1, index: 0, cells: ['1'], grey: false, running: true }];
  return { experiment: EXPERIMENT, header: ['Trial'], trials, drawn: [1], lengths: [steps.length], count: 1, curves, ...more };
}

/** The kernel's side: what it is asked, and a way to tell the page something. */
class Kernel {
  readonly asked: unknown[] = [];
  private heard = new Map<string, (message: unknown) => void>();

  constructor(private snapshot: Update) {}

  get(): Update {
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

  tell(message: Update): void {
    this.heard.get('msg:custom')?.(message);
  }
}

const ALL = { need: 'snapshot' };

describe('the notebook widget', () => {
  it('asks for all there is as soon as it listens: what came before is lost', () => {
    const kernel = new Kernel(update([1, 2]));
    const end = widget.render({ model: kernel, el: document.createElement('div') });
    expect(kernel.asked).toEqual([ALL]);
    end();
  });

  it('asks once until it is answered, and again when something is missed later', () => {
    const kernel = new Kernel(update([1, 2]));
    const end = widget.render({ model: kernel, el: document.createElement('div') });
    kernel.tell(update([5], { lengths: [5] }));
    expect(kernel.asked).toEqual([ALL]);
    kernel.tell(update([1, 2, 3, 4, 5], { whole: true }));
    kernel.tell(update([1, 2, 3, 4, 5, 6]));
    expect(kernel.asked).toEqual([ALL]);
    kernel.tell(update([8], { lengths: [8] }));
    expect(kernel.asked).toEqual([ALL, ALL]);
    end();
  });

  it('shows what is known where the kernel is gone', () => {
    const kernel = new Kernel(update([1, 2]));
    kernel.send = () => {
      throw new Error('Cannot send');
    };
    const el = document.createElement('div');
    const end = widget.render({ model: kernel, el });
    expect(el.querySelector('.det-view, .det-head')).not.toBeNull();
    end();
  });
});

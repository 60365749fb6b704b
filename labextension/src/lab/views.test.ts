/** What tabs of the main area read. */

import { describe, expect, it } from 'vitest';

import { tabLabel } from './views';

describe('a tab', () => {
  it('begins with the number, which many tabs side by side still show', () => {
    expect(tabLabel({ kind: 'experiment', id: 12 })).toBe('#12 experiment');
    expect(tabLabel({ kind: 'trial', id: 345 })).toBe('#345 trial');
    expect(tabLabel({ kind: 'new' })).toBe('New experiment');
    expect(tabLabel({ kind: 'new', path: 'a/train.py' })).toBe('New experiment');
    expect(tabLabel({ kind: 'new', path: 'a/train.ipynb' })).toBe('New notebook run');
  });
});

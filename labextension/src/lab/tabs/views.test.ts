/** What tabs of the main area read. */

import { describe, expect, it } from 'vitest';

import { placeKey, placeTitle, tabLabel } from './views';

describe('a tab', () => {
  it('begins with the number, which many tabs side by side still show', () => {
    expect(tabLabel({ kind: 'experiment', id: 12 })).toBe('#12 experiment');
    expect(tabLabel({ kind: 'trial', id: 345 })).toBe('#345 trial');
    expect(tabLabel({ kind: 'version', model: 'digits', version: 3 })).toBe('v3 digits');
    expect(tabLabel({ kind: 'model', name: 'dig\u202eits' })).toBe('dig⟨U+202E⟩its');
    expect(tabLabel({ kind: 'storage' })).toBe('Storage');
    expect(tabLabel({ kind: 'new' })).toBe('New experiment');
    expect(tabLabel({ kind: 'new', path: 'a/train.py' })).toBe('New experiment');
    expect(tabLabel({ kind: 'new', path: 'a/train.ipynb' })).toBe('New notebook run');
  });

  it('of the registry is found again by what it shows', () => {
    expect(placeKey({ kind: 'version', model: 'digits', version: 3 })).toBe('version:digits@3');
    expect(placeKey({ kind: 'compare', model: 'digits', versions: ['3', 'production'] })).toBe('compare:digits@3,production');
    expect(placeKey({ kind: 'models' })).toBe('models');
    expect(placeTitle({ kind: 'compare', model: 'digits', versions: ['3'] })).toBe('Compare digits');
  });
});

import { renderHook } from '@testing-library/react';
import { describe, expect, it } from 'vitest';

import { newKey, useSubmitKey } from './submitkey';

describe('the key of a submit', () => {
  it('is of 128 bits, and another one each time', () => {
    const keys = Array.from({ length: 100 }, newKey);
    expect(keys.filter(key => !/^[0-9a-f]{32}$/.test(key))).toEqual([]);
    expect(new Set(keys).size).toBe(100);
  });

  it('stays the same while its form is shown', () => {
    const first = renderHook(useSubmitKey), second = renderHook(useSubmitKey);
    const key = first.result.current;
    first.rerender();
    expect(first.result.current).toBe(key);
    expect(second.result.current).not.toBe(key);
  });
});

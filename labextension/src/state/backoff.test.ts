import { expect, it } from 'vitest';

import { Backoff } from './backoff';

it('waits longer after each failure, up to a limit, and begins anew after a success', () => {
  const backoff = new Backoff(() => 0.5);
  const waits = Array.from({ length: 8 }, () => backoff.next());
  expect(waits).toEqual([500, 1000, 2000, 4000, 8000, 16_000, 20_000, 20_000]);
  backoff.reset();
  expect(backoff.next()).toBe(500);
  expect(backoff.next(false)).toBe(20_000);
});

it('spreads the attempts of many pages', () => {
  expect([new Backoff(() => 0).next(), new Backoff(() => 1).next()]).toEqual([375, 625]);
});

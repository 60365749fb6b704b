import { describe, expect, it } from 'vitest';

import { viaHub } from './serverurl';

describe('the address of a server', () => {
  it('goes by the Hub, whatever its prefix', () => {
    expect(viaHub('/user/ada/shell-1/terminals/1')).toBe('/hub/user/ada/shell-1/terminals/1');
    expect(viaHub('/jup/user/user/lab')).toBe('/jup/hub/user/user/lab');
  });
});

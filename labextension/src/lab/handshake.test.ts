import { describe, expect, it } from 'vitest';

import { ApiError } from '../state/api';
import { hubPage, mismatch } from './handshake';

const state = (panel: string, server: string, cluster: string | null) => ({
  panel, versions: { server, cluster, hub: null, page: '/services/detlab/', error: null, hint: null }, error: null
});

describe('the handshake', () => {
  it('is silent when all fit', () => {
    expect(mismatch(state('0.1.0', '0.1.0', '0.1.3'))).toBeNull();
    expect(mismatch(state('1.2.0', '1.2.0', '1.9.0'))).toBeNull();
    expect(mismatch(state('0.1.0', '0.1.0', null))).toBeNull();
  });

  it('says both versions and what to do', () => {
    expect(mismatch(state('0.1.0', '0.2.0', null))!.hint).toMatch(/Reload the page/);
    expect(mismatch(state('0.2.0', '0.1.0', null))!.hint).toMatch(/Restart the Jupyter server/);
    expect(mismatch(state('0.1.0', '0.1.0', '0.2.0'))!.hint).toMatch(/detlab\[lab\]==0.2.0/);
    expect(mismatch(state('0.10.0', '0.10.0', '0.9.0'))!.message).toBe('Version mismatch: panel 0.10.0, cluster 0.9.0.');
  });

  it('leads to the hub page, which may be at another address', () => {
    const { versions } = state('0.1.0', '0.1.0', '0.1.0');
    expect(hubPage(versions, 'http://here')).toBe('http://here/services/detlab/');
    expect(hubPage({ ...versions, hub: 'http://there' }, 'http://here')).toBe('http://there/services/detlab/');
    expect(hubPage({ ...versions, page: null })).toBeNull();
    expect(hubPage(null)).toBeNull();
  });

  it('says when the server half is missing', () => {
    const error = new ApiError(404, { message: 'no' });
    expect(mismatch({ panel: '0.1.0', versions: null, error })!.hint).toMatch(/pip install/);
  });
});

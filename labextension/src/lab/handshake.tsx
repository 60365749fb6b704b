/** Versions of the three halves: this script, the server extension, the cluster. */

import type { ReactElement } from 'react';
import { useSyncExternalStore } from 'react';

import { ApiError, asApiError } from '../state/api';
import type { LabApi, Versions } from './api';

export interface Handshake {
  panel: string;
  versions: Versions | null;
  error: ApiError | null;
}

/** Asks once at the start, and again when asked to. */
export class Versioning {
  private state: Handshake;
  private listeners = new Set<() => void>();

  constructor(private api: LabApi, panel: string) {
    this.state = { panel, versions: null, error: null };
  }

  getState = (): Handshake => this.state;

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  async ask(): Promise<void> {
    try {
      this.state = { ...this.state, versions: await this.api.own<Versions>('version'), error: null };
    } catch (error) {
      this.state = { ...this.state, error: asApiError(error) };
    }
    for (const listener of this.listeners) listener();
  }
}

/** A version mismatch and what to do about it, or null. */
export function mismatch(state: Handshake): { message: string; hint: string } | null {
  const { panel, versions, error } = state;
  if (error?.status === 404) {
    return {
      message: `detlab is not installed in the Jupyter server (panel ${panel}).`,
      hint: 'Install it where the server runs and restart the server: pip install "detlab[lab]"'
    };
  }
  if (!versions) return null;
  if (versions.server !== panel) {
    return {
      message: `Version mismatch: panel ${panel}, server extension ${versions.server}.`,
      hint: older(panel, versions.server)
        ? 'Reload the page; if that does not help, reinstall detlab and restart JupyterLab.'
        : 'Restart the Jupyter server to load the installed version.'
    };
  }
  if (versions.cluster && line(versions.cluster) !== line(panel)) {
    return {
      message: `Version mismatch: panel ${panel}, cluster ${versions.cluster}.`,
      hint: older(panel, versions.cluster)
        ? `Update this side: pip install "detlab[lab]==${versions.cluster}"`
        : 'Ask the operator to update the cluster; until then, new features may fail.'
    };
  }
  return null;
}

/** The release line of a version (0.1.x, 1.x), within which versions are compatible. */
function line(version: string): string {
  const [major = '0', minor = '0'] = version.split('.');
  return major === '0' ? `0.${minor}` : major;
}

function older(a: string, b: string): boolean {
  return new Intl.Collator('en', { numeric: true }).compare(a, b) < 0;
}

export function VersionNotice({ versioning }: { versioning: Versioning }): ReactElement | null {
  const state = useSyncExternalStore(versioning.subscribe, versioning.getState);
  const found = mismatch(state);
  if (!found) return null;
  return (
    <div className="det-banner" data-tone="paused" role="alert">
      <div>
        {found.message}
        <div className="det-soft">{found.hint}</div>
      </div>
    </div>
  );
}

export function VersionFoot({ versioning }: { versioning: Versioning }): ReactElement {
  const { panel, versions } = useSyncExternalStore(versioning.subscribe, versioning.getState);
  const parts = [`panel ${panel}`, `server ${versions?.server ?? '–'}`, `cluster ${versions?.cluster ?? '–'}`];
  const page = hubPage(versions);
  return (
    <div className="det-panel-foot det-num">
      {parts.join(' · ')}
      {page && <>{' · '}<a href={page} target="_blank" rel="noopener">hub page</a></>}
    </div>
  );
}

/** The address of the hub page, or null if there is no cluster. */
export function hubPage(versions: Versions | null, origin = window.location.origin): string | null {
  return versions?.page ? `${versions.hub ?? origin}${versions.page}` : null;
}

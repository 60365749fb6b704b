/** The Api in JupyterLab: through the server extension, with the user's own login there. */

import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import { Api, ApiError, asApiError, read, readBlob, readLines } from '../state/api';

export interface Versions {
  server: string;
  cluster: string | null;
  /** Origin of the Hub if it is not this page's. */
  hub: string | null;
  /** Path of the hub page there. */
  page: string | null;
  error: string | null;
  hint: string | null;
}

export class LabApi implements Api {
  constructor(private settings: ServerConnection.ISettings) {}

  get<T>(path: string, signal?: AbortSignal): Promise<T> {
    return this.ask<T>(`api/${path}`, { signal });
  }

  post<T>(path: string, body?: unknown): Promise<T> {
    return this.ask<T>(`api/${path}`, { method: 'POST', body: body === undefined ? undefined : JSON.stringify(body) });
  }

  del<T>(path: string): Promise<T> {
    return this.ask<T>(`api/${path}`, { method: 'DELETE' });
  }

  replace<T>(path: string, body: unknown): Promise<T> {
    return this.ask<T>(`api/${path}`, { method: 'PUT', body: JSON.stringify(body) });
  }

  async text(path: string): Promise<string> {
    return read<string>(await this.fetch(`api/${path}`, {}), 'text');
  }

  async blob(path: string): Promise<Blob> {
    return readBlob(await this.fetch(`api/${path}`, {}));
  }

  async stream(path: string, onLine: (line: unknown) => void, signal: AbortSignal): Promise<void> {
    try {
      await readLines(await this.fetch(`api/${path}`, { signal, cache: 'no-store' }), onLine, signal);
    } catch (error) {
      if (!signal.aborted) throw asApiError(error);
    }
  }

  href(path: string): string {
    return URLExt.join(this.settings.baseUrl, 'detlab', 'api') + `/${path}`;
  }

  /** A route of the server extension itself. */
  async own<T>(path: string, body?: unknown): Promise<T> {
    return this.ask<T>(path, body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) });
  }

  private async ask<T>(path: string, init: RequestInit): Promise<T> {
    return read<T>(await this.fetch(path, init));
  }

  private async fetch(path: string, init: RequestInit): Promise<Response> {
    const url = `${URLExt.join(this.settings.baseUrl, 'detlab')}/${path}`;
    try {
      return await ServerConnection.makeRequest(url, init, this.settings);
    } catch (error) {
      if (init.signal?.aborted) throw error;
      throw new ApiError(0, {
        code: 'unreachable', message: 'the Jupyter server does not answer', hint: 'It may have been stopped; reload the page.'
      });
    }
  }
}

/** The master's API from the hub page, with the session's cookie and the page's XSRF token. */

import { ApiError, asApiError, read, readBlob, readLines, type Api } from '../state/api';
import { cookieToken, type PageInfo } from './page';

const NO_SESSION = 401;
const LOST = new ApiError(NO_SESSION, {
  code: 'session_ended',
  message: 'your session has ended',
  hint: 'log in again; running work continues'
});

export class HubApi implements Api {
  /** Called once when the session has ended and a new login is needed. */
  onSessionEnd: (() => void) | null = null;
  private token: string;
  private ended = false;

  constructor(private page: PageInfo, private fetcher: typeof fetch = (...args) => fetch(...args)) {
    this.token = page.xsrf;
  }

  async get<T>(path: string, signal?: AbortSignal): Promise<T> {
    return read<T>(await this.ask('GET', path, { signal }));
  }

  async post<T>(path: string, body: unknown = {}): Promise<T> {
    const init = { body: JSON.stringify(body), headers: { 'Content-Type': 'application/json' } };
    return read<T>(await this.ask('POST', path, init));
  }

  async del<T>(path: string): Promise<T> {
    return read<T>(await this.ask('DELETE', path, {}));
  }

  async replace<T>(path: string, body: unknown): Promise<T> {
    const init = { body: JSON.stringify(body), headers: { 'Content-Type': 'application/json' } };
    return read<T>(await this.ask('PUT', path, init));
  }

  /** PUT bytes at a path. */
  async put<T>(path: string, body: Blob, signal: AbortSignal): Promise<T> {
    return read<T>(await this.ask('PUT', path, { body, headers: { 'Content-Type': body.type }, signal }));
  }

  async text(path: string): Promise<string> {
    return read<string>(await this.ask('GET', path, { headers: { Accept: 'text/csv, text/plain, */*' } }), 'text');
  }

  async blob(path: string): Promise<Blob> {
    return readBlob(await this.ask('GET', path, { headers: { Accept: '*/*' } }));
  }

  async stream(path: string, onLine: (line: unknown) => void, signal: AbortSignal): Promise<void> {
    try {
      return await readLines(await this.ask('GET', path, { signal }), onLine, signal);
    } catch (error) {
      if (signal.aborted) return;
      throw error;
    }
  }

  href(path: string): string {
    return `${this.page.base}api/v1/${path}`;
  }

  private async ask(method: string, path: string, init: RequestInit): Promise<Response> {
    const reply = await this.send(method, path, init);
    if (reply.status !== NO_SESSION) return reply;
    const newer = cookieToken(document);
    if (newer && newer !== this.token) {
      this.token = newer;
      const again = await this.send(method, path, init);
      if (again.status !== NO_SESSION) return again;
    }
    this.end();
    throw LOST;
  }

  private end(): void {
    if (this.ended) return;
    this.ended = true;
    this.onSessionEnd?.();
  }

  private async send(method: string, path: string, init: RequestInit): Promise<Response> {
    try {
      return await this.fetcher(this.href(path), {
        ...init,
        method,
        headers: { Accept: 'application/json', 'X-XSRFToken': this.token, ...init.headers },
        credentials: 'same-origin',
        cache: 'no-store',
        redirect: 'error'
      });
    } catch (error) {
      throw asApiError(error);
    }
  }
}

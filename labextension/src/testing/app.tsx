/** A host for component tests: an Api whose answers the test gives, and a record of what was asked. */

import { render, RenderResult } from '@testing-library/react';
import type { ReactElement } from 'react';

import { Api, ApiError } from '../state/api';
import { AppContext, AppProvider } from '../state/context';
import { Store } from '../state/store';

export class FakeApi implements Api {
  /** `GET path`, `POST path`, `DELETE path`, `STREAM path`, in order. */
  asked: string[] = [];
  bodies: unknown[] = [];
  private open = new Map<string, { line: (line: unknown) => void; end: () => void; fail: (e: unknown) => void }>();

  /** Answers by path (without the query if there is no answer with it); a function is called, an Error is thrown. */
  constructor(public answers: Record<string, unknown> = {}) {}

  private async answer<T>(method: string, path: string, body?: unknown): Promise<T> {
    this.asked.push(`${method} ${path}`);
    if (method === 'POST' || method === 'PUT') this.bodies.push(body);
    const bare = path.split('?')[0]!;
    const keys = [`${method} ${path}`, `${method} ${bare}`, path, bare];
    const key = keys.find(k => k in this.answers);
    if (key === undefined) throw new ApiError(404, { code: 'not_found', message: `no answer for ${path}` });
    const found = this.answers[key];
    const value = typeof found === 'function' ? await (found as (body: unknown) => unknown)(body) : found;
    if (value instanceof Error) throw value;
    return structuredClone(value) as T;
  }

  get<T>(path: string): Promise<T> { return this.answer('GET', path); }
  post<T>(path: string, body?: unknown): Promise<T> { return this.answer('POST', path, body); }
  del<T>(path: string): Promise<T> { return this.answer('DELETE', path); }
  replace<T>(path: string, body: unknown): Promise<T> { return this.answer('PUT', path, body); }
  text(path: string): Promise<string> { return this.answer('GET', path); }
  async blob(path: string): Promise<Blob> { return new Blob([await this.answer<string>('GET', path)]); }
  href(path: string): string { return `/api/v1/${path}`; }

  stream(path: string, onLine: (line: unknown) => void, signal: AbortSignal): Promise<void> {
    this.asked.push(`STREAM ${path}`);
    const bare = path.split('?')[0]!;
    return new Promise((resolve, reject) => {
      const closed = (): void => { this.open.delete(bare); };
      this.open.set(bare, {
        line: onLine,
        end: () => { closed(); resolve(); },
        fail: error => { closed(); reject(error); }
      });
      signal.addEventListener('abort', () => { closed(); resolve(); });
      onLine(null);
    });
  }

  /** Streams that are open now, by path without the query. */
  get streams(): string[] { return [...this.open.keys()]; }
  /** Say a line on an open stream. */
  say(path: string, line: unknown): void { this.open.get(path)!.line(line); }
  end(path: string): void { this.open.get(path)!.end(); }
  fail(path: string, error: unknown = new ApiError(0, { message: 'gone' })): void { this.open.get(path)!.fail(error); }
}

export interface Shown extends RenderResult {
  api: FakeApi;
  app: AppContext;
  /** What the component asked of its host: `navigate …`, `insert …`, `open …`, `confirm …`, `notify …`. */
  done: string[];
}

/** Show a component in a host. `confirm` is answered with yes unless `over` says otherwise. */
export function show(element: ReactElement, answers: Record<string, unknown> = {}, over: Partial<AppContext> = {}): Shown {
  const api = new FakeApi(answers);
  const done: string[] = [];
  const app: AppContext = {
    api,
    store: new Store(over.api ?? api),
    host: 'lab',
    navigate: place => void done.push(`navigate ${JSON.stringify(place)}`),
    address: () => null,
    insertCode: code => void done.push(`insert ${code}`),
    openUrl: url => void done.push(`open ${url}`),
    confirm: async question => { done.push(`confirm ${question.title}`); return true; },
    notify: message => void done.push(`notify ${message}`),
    ...over
  };
  app.store.start();
  const shown = render(<AppProvider value={app}><div className="det-app">{element}</div></AppProvider>);
  return { ...shown, api, app, done };
}

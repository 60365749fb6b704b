/** How front ends ask the master; JupyterLab and the hub page bring each an implementation. Paths are relative to api/v1/. */

import type { ErrorView, ProblemView } from './wire';

export interface Api {
  get<T>(path: string, signal?: AbortSignal): Promise<T>;
  post<T>(path: string, body?: unknown): Promise<T>;
  del<T>(path: string): Promise<T>;
  /** PUT: replace the resource at the path. */
  replace<T>(path: string, body: unknown): Promise<T>;
  /** Text instead of JSON: code, CSV. */
  text(path: string): Promise<string>;
  /** Bytes: a file that is saved. */
  blob(path: string): Promise<Blob>;
  /**
   * Read newline-delimited JSON. The start and keep-alives (empty lines) are passed as null. Resolves when the stream
   * ends or the signal aborts; rejects with ApiError when it cannot be opened or breaks.
   */
  stream(path: string, onLine: (line: unknown) => void, signal: AbortSignal): Promise<void>;
  /** An address for <a href download>. */
  href(path: string): string;
}

/**
 * All items of a list, part by part: each is bounded in bytes and says by `next` where the following one begins.
 * `cursor` is the parameter that takes it.
 */
export async function everyItem<T>(api: Api, path: string, cursor: 'skip' | 'after', signal?: AbortSignal): Promise<T[]> {
  return (await everyPart<{ items: T[]; next: number | string | null }>(api, path, cursor, signal)).flatMap(part => part.items);
}

/** The parts themselves. */
export async function everyPart<P extends { next?: number | string | null }>(
  api: Api, path: string, cursor: 'skip' | 'after', signal?: AbortSignal
): Promise<P[]> {
  const parts = [await api.get<P>(path, signal)];
  for (let next = parts[0]!.next ?? null; next !== null; next = parts.at(-1)!.next ?? null) {
    const more = await api.get<P>(`${path}${path.includes('?') ? '&' : '?'}${cursor}=${encodeURIComponent(next)}`, signal);
    parts.push(more);
    if (more.next === next) break; // a master that does not move on would be asked for ever
  }
  return parts;
}

/** An error answer of the master, or no answer (status 0). */
export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  readonly hint: string | null;
  readonly problems: ProblemView[];

  constructor(status: number, view: Partial<ErrorView>) {
    super(view.message || (status ? `request failed (HTTP ${status})` : 'no answer'));
    this.name = 'ApiError';
    this.status = status;
    this.code = view.code ?? 'unknown';
    this.hint = view.hint ?? null;
    this.problems = view.problems ?? [];
  }

  /** Whether trying again later may help. */
  get retryable(): boolean {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

/** Make an ApiError of anything that was thrown. */
export function asApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new ApiError(0, { code: 'unreachable', message: `no answer: ${message}` });
}

/** Turn a reply into JSON or text, or into the ApiError that it is. */
export async function read<T>(reply: Response, as: 'json' | 'text' = 'json'): Promise<T> {
  const body = await reply.text();
  if (!reply.ok) throw errorOf(reply.status, body);
  if (as === 'text') return body as T;
  try {
    return JSON.parse(body) as T;
  } catch {
    throw new ApiError(reply.status, { code: 'not_json', message: 'the answer is not JSON', hint: LOGIN });
  }
}

/** The bytes of a reply; one that breaks off is an ApiError. */
export async function readBlob(reply: Response): Promise<Blob> {
  if (!reply.ok) throw errorOf(reply.status, await reply.text());
  try {
    return await reply.blob();
  } catch (error) {
    throw asApiError(error);
  }
}

const LOGIN = 'reload the page: you may have to log in';

/** Make an ApiError of the body of an error reply, which may come from a proxy. */
export function errorOf(status: number, body: string): ApiError {
  try {
    const view = JSON.parse(body) as Partial<ErrorView>;
    if (typeof view === 'object' && view !== null && typeof view.message === 'string') return new ApiError(status, view);
  } catch {
    // A proxy's page: the number says more than its HTML.
  }
  if (status === 401 || status === 403) {
    return new ApiError(status, { code: 'forbidden', message: `refused (${status})`, hint: LOGIN });
  }
  return new ApiError(status, { code: 'http', message: `request failed (HTTP ${status})` });
}

/** Read the body of a reply as newline-delimited JSON, until its end or the signal. */
export async function readLines(
  reply: Response, onLine: (line: unknown) => void, signal: AbortSignal
): Promise<void> {
  if (!reply.ok) throw errorOf(reply.status, await reply.text());
  onLine(null);
  const reader = reply.body!.getReader();
  const stop = (): void => void reader.cancel().catch(() => undefined);
  signal.addEventListener('abort', stop);
  const decoder = new TextDecoder();
  let rest = '';
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (signal.aborted) return;
      const lines = (rest + decoder.decode(value, { stream: !done })).split('\n');
      rest = lines.pop()!;
      for (const line of lines) onLine(line.trim() ? JSON.parse(line) : null);
      if (done) return;
    }
  } catch (error) {
    if (signal.aborted) return;
    throw asApiError(error);
  } finally {
    signal.removeEventListener('abort', stop);
    stop();
  }
}

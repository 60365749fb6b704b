/** Keep one stream open: reconnect with backoff from the last cursor, and close it while the page is hidden. */

import { Api, ApiError, asApiError } from './api';
import { Backoff } from './backoff';

/** The master sends a heartbeat every five seconds: a stream is dead after two missed ones and some slack. */
const SILENT_MS = 11_000;

export type Link =
  | { kind: 'opening' }
  | { kind: 'open' }
  | { kind: 'paused' }
  | { kind: 'lost'; error: ApiError; retryAt: number }
  | { kind: 'ended' };

export interface Followed {
  /** The path with the current cursor. */
  path(): string;
  onLine(line: unknown): void;
  onLink?(link: Link): void;
  /** Called before each connection: load the snapshot that the stream continues, if there is none. */
  prepare?(): Promise<void>;
  /** The stream ends with its subject (log streams); otherwise an end is a lost connection. */
  finite?: boolean;
}

/** Follow until `stop()`. It pauses with the page, and with `pause()`. */
export class Follower {
  private controller: AbortController | null = null;
  private timer = 0;
  private watch = 0;
  private backoff = new Backoff();
  /** The open stream has received something. */
  private connected = false;
  private stopped = false;
  private paused = false;
  private ended = false;

  constructor(private api: Api, private what: Followed) {
    document.addEventListener('visibilitychange', this.update);
    window.addEventListener('online', this.retry);
    this.update();
  }

  /** Close it until `resume()`, while its view is not visible. */
  pause(): void {
    this.paused = true;
    this.update();
  }

  resume(): void {
    this.paused = false;
    this.update();
  }

  /** Reconnect now. */
  retry = (): void => {
    if (this.controller || this.stopped || this.ended || this.hidden) return;
    window.clearTimeout(this.timer);
    void this.open();
  };

  /** Reconnect with the current path, without notifying `onLink`. A closed stream uses that path when it opens. */
  reopen(): void {
    if (!this.controller || this.stopped) return;
    this.close();
    void this.open(true);
  }

  stop(): void {
    this.stopped = true;
    document.removeEventListener('visibilitychange', this.update);
    window.removeEventListener('online', this.retry);
    this.close();
  }

  private get hidden(): boolean {
    return this.paused || document.visibilityState === 'hidden';
  }

  private update = (): void => {
    if (this.stopped || this.ended) return;
    if (this.hidden) {
      this.close();
      this.report({ kind: 'paused' });
    } else if (!this.controller) {
      this.connected = false;
      this.backoff.reset();
      this.retry();
    }
  };

  private report(link: Link): void {
    this.what.onLink?.(link);
  }

  private close(): void {
    window.clearTimeout(this.timer);
    window.clearTimeout(this.watch);
    this.controller?.abort();
    this.controller = null;
  }

  private async open(quiet = false): Promise<void> {
    const mine = new AbortController();
    this.controller = mine;
    if (!quiet) this.report({ kind: 'opening' });
    let error = new ApiError(0, { code: 'ended', message: 'the cluster closed the connection' });
    try {
      await this.what.prepare?.();
      if (mine.signal.aborted) return;
      this.expectHeartbeat(mine);
      await this.api.stream(this.what.path(), line => this.received(mine, line), mine.signal);
      if (this.what.finite && this.controller === mine) {
        this.ended = true;
        this.close();
        this.report({ kind: 'ended' });
        return;
      }
    } catch (problem) {
      error = asApiError(problem);
    }
    // After a pause or a stop, the link was reported there.
    if (this.controller === mine) this.lost(error);
  }

  private received(mine: AbortController, line: unknown): void {
    if (this.controller !== mine) return;
    if (!this.connected) this.report({ kind: 'open' });
    this.connected = true;
    this.backoff.reset();
    this.expectHeartbeat(mine);
    if (line !== null) this.what.onLine(line);
  }

  private expectHeartbeat(mine: AbortController): void {
    window.clearTimeout(this.watch);
    this.watch = window.setTimeout(() => {
      if (this.controller === mine) this.lost(new ApiError(0, { code: 'silent', message: `no data for ${SILENT_MS / 1000} seconds` }));
    }, SILENT_MS);
  }

  private lost(error: ApiError): void {
    this.close();
    this.connected = false;
    const wait = this.backoff.next(error.retryable);
    this.report({ kind: 'lost', error, retryAt: Date.now() + wait });
    this.timer = window.setTimeout(this.retry, wait);
  }
}

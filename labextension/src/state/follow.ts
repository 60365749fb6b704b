/** One stream kept open: opened again with back-off, from where it broke, and closed while nobody looks. */

import { Api, ApiError, asApiError } from './api';
import { Backoff } from './backoff';

/** The master says something every five seconds: after two heartbeats that did not come, and a moment, a stream is dead. */
const SILENT_MS = 11_000;

export type Link =
  | { kind: 'opening' }
  | { kind: 'open' }
  | { kind: 'paused' }
  | { kind: 'lost'; error: ApiError; retryAt: number }
  | { kind: 'ended' };

export interface Followed {
  /** The path now, with the cursor of now. */
  path(): string;
  onLine(line: unknown): void;
  onLink?(link: Link): void;
  /** Before each opening: take the snapshot that the stream goes on from, if there is none. */
  prepare?(): Promise<void>;
  /** The stream ends by itself when its subject has ended (log streams); otherwise an end is a break. */
  finite?: boolean;
}

/** Follow until `stop()`. It pauses with the page, and with `pause()`. */
export class Follower {
  private controller: AbortController | null = null;
  private timer = 0;
  private watch = 0;
  private backoff = new Backoff();
  /** The stream that is open has said something. */
  private connected = false;
  private stopped = false;
  private held = false;
  private ended = false;

  constructor(private api: Api, private what: Followed) {
    document.addEventListener('visibilitychange', this.look);
    window.addEventListener('online', this.retry);
    this.look();
  }

  /** Close it until `resume()`: what it feeds is not visible. */
  pause(): void {
    this.held = true;
    this.look();
  }

  resume(): void {
    this.held = false;
    this.look();
  }

  /** Try again at once. */
  retry = (): void => {
    if (this.controller || this.stopped || this.ended || this.hidden) return;
    window.clearTimeout(this.timer);
    void this.open();
  };

  /** Open anew by the path of now, without a word about it. One that is not open has that path when it opens. */
  reopen(): void {
    if (!this.controller || this.stopped) return;
    this.close();
    void this.open(true);
  }

  stop(): void {
    this.stopped = true;
    document.removeEventListener('visibilitychange', this.look);
    window.removeEventListener('online', this.retry);
    this.close();
  }

  private get hidden(): boolean {
    return this.held || document.visibilityState === 'hidden';
  }

  private look = (): void => {
    if (this.stopped || this.ended) return;
    if (this.hidden) {
      this.close();
      this.tell({ kind: 'paused' });
    } else if (!this.controller) {
      this.connected = false;
      this.backoff.reset();
      this.retry();
    }
  };

  private tell(link: Link): void {
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
    if (!quiet) this.tell({ kind: 'opening' });
    let error = new ApiError(0, { code: 'ended', message: 'the cluster closed the connection' });
    try {
      await this.what.prepare?.();
      if (mine.signal.aborted) return;
      this.expectLife(mine);
      await this.api.stream(this.what.path(), line => this.heard(mine, line), mine.signal);
      if (this.what.finite && this.controller === mine) {
        this.ended = true;
        this.close();
        this.tell({ kind: 'ended' });
        return;
      }
    } catch (problem) {
      error = asApiError(problem);
    }
    // A pause or a stop closed it: whoever did that has told.
    if (this.controller === mine) this.broke(error);
  }

  private heard(mine: AbortController, line: unknown): void {
    if (this.controller !== mine) return;
    if (!this.connected) this.tell({ kind: 'open' });
    this.connected = true;
    this.backoff.reset();
    this.expectLife(mine);
    if (line !== null) this.what.onLine(line);
  }

  private expectLife(mine: AbortController): void {
    window.clearTimeout(this.watch);
    this.watch = window.setTimeout(() => {
      if (this.controller === mine) this.broke(new ApiError(0, { code: 'silent', message: `no data for ${SILENT_MS / 1000} seconds` }));
    }, SILENT_MS);
  }

  private broke(error: ApiError): void {
    this.close();
    this.connected = false;
    const wait = this.backoff.next(error.retryable);
    this.tell({ kind: 'lost', error, retryAt: Date.now() + wait });
    this.timer = window.setTimeout(this.retry, wait);
  }
}

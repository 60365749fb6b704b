/** The state behind a view, changed by snapshots and streams; listeners are called at most once a frame. */

import { Api, ApiError, asApiError } from './api';
import { Backoff } from './backoff';
import type { Channel, Subject, Subscription } from './channel';
import type { Link } from './follow';
import type { Event } from './wire';

export interface FeedState {
  /** Grows when there is something new to draw. */
  version: number;
  link: Link;
  /** Why there is nothing to show; later errors are in `link`. */
  error: ApiError | null;
}

/** A state with listeners. */
export abstract class Feed<S extends FeedState> {
  protected stopped = false;
  private listeners = new Set<() => void>();
  private frame = 0;

  constructor(protected state: S) {}

  getState = (): S => this.state;

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  /** Called once, when it is first shown. */
  begin(): void {}

  abstract setVisible(visible: boolean): void;

  stop(): void {
    this.stopped = true;
    cancelAnimationFrame(this.frame);
    this.listeners.clear();
  }

  protected set(change: Partial<S>): void {
    if (this.stopped) return;
    this.state = { ...this.state, ...change, version: this.state.version + 1 };
    for (const listener of this.listeners) listener();
  }

  /** Notify in the next frame: a burst of events is drawn once. */
  protected later(change: Partial<S>): void {
    this.state = { ...this.state, ...change };
    if (this.frame || this.stopped) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.beforeDrawing();
      this.set({});
    });
  }

  /** Work that is cheaper once a frame than once an event. */
  protected beforeDrawing(): void {}
}

/** A snapshot, then events of the page's stream; after a resync, a new snapshot. */
export abstract class SnapshotFeed<S extends FeedState> extends Feed<S> {
  private subscription: Subscription | null = null;
  /** Answers to requests of an earlier round are ignored. */
  private round = 0;
  private again = 0;
  private backoff = new Backoff();
  private paused = false;

  constructor(protected api: Api, private channel: Channel, state: S) {
    super(state);
  }

  /** Load the snapshot and set it, unless it is stale by then: replaced by a newer request, or stopped. */
  protected abstract load(stale: () => boolean): Promise<void>;
  /** Load what is not needed for the first drawing. */
  protected async loadRest(_stale: () => boolean): Promise<void> {}
  /** Whether there is a snapshot to show, and whether its subject has ended. */
  protected abstract get shown(): boolean;
  protected abstract get over(): boolean;
  /** The subject to follow, and the cursor to start from. */
  protected abstract get wanted(): { subject: Subject; cursor: number };
  protected abstract take(event: Event): void;

  /** Load the snapshot, also again after an error. */
  start = async (): Promise<void> => {
    const round = (this.round += 1);
    const stale = (): boolean => round !== this.round || this.stopped;
    window.clearTimeout(this.again);
    this.subscription?.stop();
    this.subscription = null;
    try {
      await this.load(stale);
    } catch (error) {
      if (!stale()) this.failed(asApiError(error));
      return;
    }
    if (stale()) return;
    this.backoff.reset();
    if (this.over) this.set({ link: { kind: 'ended' } } as Partial<S>);
    else this.follow(stale);
    await this.loadRest(stale);
  };

  begin(): void {
    void this.start();
  }

  /** Retry now: reconnect the stream, or load the snapshot if there is none. */
  retry = (): void => {
    if (this.subscription) this.channel.retry();
    else void this.start();
  };

  setVisible(visible: boolean): void {
    this.paused = !visible;
    if (visible) this.subscription?.resume();
    else this.subscription?.pause();
  }

  stop(): void {
    super.stop();
    this.subscription?.stop();
    window.clearTimeout(this.again);
  }

  /** The stream's link changed. */
  protected linked(link: Link, _stale: () => boolean): void {
    this.set({ link } as Partial<S>);
  }

  private follow(stale: () => boolean): void {
    this.subscription = this.channel.subscribe({
      ...this.wanted,
      onEvent: event => this.take(event),
      onLink: link => this.linked(link, stale)
    });
    if (this.paused) this.subscription.pause();
  }

  /** Show the error if there is no snapshot; else keep showing the old one and retry. */
  private failed(error: ApiError): void {
    if (!this.shown || !error.retryable) return this.set({ error } as Partial<S>);
    const wait = this.backoff.next();
    this.set({ link: { kind: 'lost', error, retryAt: Date.now() + wait } } as Partial<S>);
    this.again = window.setTimeout(() => void this.start(), wait);
  }
}

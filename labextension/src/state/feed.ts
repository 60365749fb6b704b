/** What a view lives on: a state that snapshots and streams change, told at most once a frame while much happens. */

import { Api, ApiError, asApiError } from './api';
import { Backoff } from './backoff';
import type { Channel, Subject, Subscription } from './channel';
import type { Link } from './follow';
import type { Event } from './wire';

export interface FeedState {
  /** Grows when there is something new to draw. */
  version: number;
  link: Link;
  /** Why there is nothing to show; trouble after that is told by `link`. */
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

  /** Called once, when somebody wants to see it. */
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

  /** Tell in the next frame: a burst of events is one drawing. */
  protected later(change: Partial<S>): void {
    this.state = { ...this.state, ...change };
    if (this.frame || this.stopped) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.beforeDrawing();
      this.set({});
    });
  }

  /** What is cheaper once a frame than once an event. */
  protected beforeDrawing(): void {}
}

/** A snapshot, then what the page's stream says of it; when the stream has lost the thread, a snapshot anew. */
export abstract class SnapshotFeed<S extends FeedState> extends Feed<S> {
  private subscription: Subscription | null = null;
  /** Answers to an older question than this are not heard. */
  private round = 0;
  private again = 0;
  private backoff = new Backoff();
  private held = false;

  constructor(protected api: Api, private channel: Channel, state: S) {
    super(state);
  }

  /** Take the snapshot and set it, unless it is stale when it comes: a newer one is on its way, or nobody looks. */
  protected abstract load(stale: () => boolean): Promise<void>;
  /** What of the snapshot is beside the first sight. */
  protected async loadRest(_stale: () => boolean): Promise<void> {}
  /** Whether there is a snapshot to show, and whether nothing will happen to it any more. */
  protected abstract get shown(): boolean;
  protected abstract get over(): boolean;
  /** What of the stream it wants, from which cursor on. */
  protected abstract get wanted(): { subject: Subject; cursor: number };
  protected abstract take(event: Event): void;

  /** Begin, or begin again after an error. */
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

  /** Try again now: the stream goes on where it was; without anything to show, from the beginning. */
  retry = (): void => {
    if (this.subscription) this.channel.retry();
    else void this.start();
  };

  setVisible(visible: boolean): void {
    this.held = !visible;
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
    if (this.held) this.subscription.pause();
  }

  /** Without a snapshot there is nothing to show; if there is an old one, it is shown until the new one can be had. */
  private failed(error: ApiError): void {
    if (!this.shown || !error.retryable) return this.set({ error } as Partial<S>);
    const wait = this.backoff.next();
    this.set({ link: { kind: 'lost', error, retryAt: Date.now() + wait } } as Partial<S>);
    this.again = window.setTimeout(() => void this.start(), wait);
  }
}

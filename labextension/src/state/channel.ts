/**
 * The one push stream of a page. Each view subscribes with its own cursor; the stream carries all states and the metrics of
 * the subscribed subjects. When a view needs what it does not carry, it is reopened at the smallest of all cursors, and
 * each subscription skips events at or before its cursor: nothing is lost and nothing comes twice.
 */

import type { Api } from './api';
import { Follower, Link } from './follow';
import type { Event } from './wire';

/** Reopenings within this time (when a layout is restored) are one. */
const TOGETHER_MS = 20;
/** A hidden subscription is kept this long, so that switching tabs does not reopen the stream. */
const LINGER_MS = 30_000;
/** A view that missed more events than this reloads its snapshot, which is cheaper than replaying them. */
const FAR = 5000;
/** Longest URL; for a longer one, all metrics of the experiments are requested. Proxies accept 8 kB. */
const LONGEST = 6000;

/** Whose metrics to receive; without a trial, group or name, all of them. */
export interface Subject {
  experiment: number;
  trial?: number;
  group?: string;
  name?: string;
}

export interface Subscriber {
  /** null: all states, no metrics. */
  subject: Subject | null;
  /** Events up to here are known. */
  cursor: number;
  /** An event beyond the cursor, once and in order; or `resync`: reload the snapshot, then call `rebase`. */
  onEvent(event: Event): void;
  onLink(link: Link): void;
  /** Called before each connection: load the snapshot that the stream continues, if there is none. */
  prepare?(): Promise<void>;
}

export class Subscription {
  cursor: number;
  /** The open stream carries what it needs. */
  live = false;
  /** Not visible; after a while it is frozen: the stream continues without it. */
  paused = false;
  frozen = false;

  constructor(private channel: Channel, readonly of: Subscriber) {
    this.cursor = of.cursor;
  }

  /** A snapshot was taken as of this cursor. */
  rebase(cursor: number): void {
    this.cursor = cursor;
    this.channel.rebased(this);
  }

  pause(): void {
    this.paused = true;
    this.channel.trimLater();
  }

  resume(): void {
    this.paused = false;
    if (this.frozen) this.channel.thaw(this);
  }

  stop(): void {
    this.channel.remove(this);
  }
}

export class Channel {
  private subscriptions = new Set<Subscription>();
  private follower: Follower | null = null;
  private link: Link = { kind: 'opening' };
  /** The last event of the open stream, and the subjects it carries; null while none is open. */
  private position = 0;
  private carried: Set<string> | null = null;
  private reopening = 0;
  private trimming = 0;
  private hidden = false;
  private resting = false;
  private disposed = false;

  constructor(private api: Api) {}

  subscribe(of: Subscriber): Subscription {
    const made = new Subscription(this, of);
    this.subscriptions.add(made);
    of.onLink(this.link);
    if (this.follower) this.check();
    else this.begin();
    return made;
  }

  /** Reconnect now instead of after the backoff. */
  retry(): void {
    this.follower?.retry();
  }

  /** Reconnect, with a new snapshot for subscriptions that need one. */
  reopen(): void {
    this.closed();
    this.follower?.reopen();
  }

  /** Close the stream while none of its views are visible; the page's own visibility counts as well. */
  setVisible(visible: boolean): void {
    this.hidden = !visible;
    this.rest();
  }

  dispose(): void {
    this.disposed = true;
    this.follower?.stop();
    window.clearTimeout(this.reopening);
    window.clearTimeout(this.trimming);
    this.subscriptions.clear();
  }

  /** @internal */
  rebased(one: Subscription): void {
    if (one.cursor < this.position) one.live = false;
    this.check();
  }

  /** @internal */
  remove(one: Subscription): void {
    this.subscriptions.delete(one);
    this.trimLater();
  }

  /** @internal */
  thaw(one: Subscription): void {
    one.frozen = false;
    if (this.position - one.cursor > FAR) one.of.onEvent({ ...BLANK, id: this.position, kind: 'resync' });
    this.check();
  }

  /** Drop hidden subscriptions after a while. @internal */
  trimLater(): void {
    if (this.trimming || this.disposed) return;
    this.trimming = window.setTimeout(() => {
      this.trimming = 0;
      this.trim();
    }, LINGER_MS);
  }

  private get active(): Subscription[] {
    return [...this.subscriptions].filter(one => !one.frozen);
  }

  private begin(): void {
    this.follower = new Follower(this.api, {
      path: () => this.path(),
      prepare: async () => { await Promise.all(this.active.map(one => one.of.prepare?.())); },
      onLine: line => this.take(line as Event),
      onLink: link => this.linked(link)
    });
    this.rest();
  }

  private path(): string {
    const active = this.active;
    this.position = active.length ? Math.min(...active.map(one => one.cursor)) : 0;
    this.carried = new Set(active.flatMap(one => keyOf(one.of.subject) ?? []));
    for (const one of active) one.live = true;
    return `stream?after=${this.position}${followed(this.carried)}`;
  }

  private take(event: Event): void {
    this.position = event.id;
    for (const one of this.active) {
      if (!one.live || (event.kind !== 'resync' && event.id <= one.cursor)) continue;
      one.cursor = event.id;
      if (event.kind === 'resync' || concerns(one.of.subject, event)) one.of.onEvent(event);
    }
  }

  private linked(link: Link): void {
    this.link = link;
    if (link.kind !== 'open') this.closed();
    for (const one of [...this.subscriptions]) one.of.onLink(link);
  }

  private closed(): void {
    this.carried = null;
    for (const one of this.subscriptions) one.live = false;
  }

  /** Reopen the stream if it does not carry what all active subscriptions need. */
  private check(): void {
    this.rest();
    if (!this.carried) return;
    for (const one of this.active) {
      const key = keyOf(one.of.subject);
      one.live ||= one.cursor >= this.position && (key === null || this.carried.has(key));
    }
    if (this.active.every(one => one.live) || this.reopening) return;
    this.reopening = window.setTimeout(() => {
      this.reopening = 0;
      if (this.carried && !this.active.every(one => one.live)) this.reopen();
    }, TOGETHER_MS);
  }

  private trim(): void {
    for (const one of this.subscriptions) {
      if (!one.paused) continue;
      one.frozen = true;
      one.live = false;
    }
    this.rest();
    const wanted = new Set(this.active.map(one => keyOf(one.of.subject)));
    if (this.carried && [...this.carried].some(key => !wanted.has(key))) this.reopen();
  }

  /** Pause the stream while there is no active subscription. */
  private rest(): void {
    const resting = this.hidden || this.active.length === 0;
    if (resting === this.resting || !this.follower) return;
    this.resting = resting;
    if (resting) this.follower.pause();
    else this.follower.resume();
  }
}

const BLANK = { time: 0, experiment_id: null, trial_id: null, task_id: null, data: {} };

function keyOf(subject: Subject | null): string | null {
  if (!subject) return null;
  const { experiment, trial, group, name } = subject;
  return JSON.stringify({ experiment, trial, group, name });
}

function followed(keys: ReadonlySet<string>): string {
  if (!keys.size) return '';
  const text = encodeURIComponent(`[${[...keys].sort().join()}]`);
  if (text.length <= LONGEST) return `&follow=${text}`;
  const numbers = [...new Set([...keys].map(key => (JSON.parse(key) as Subject).experiment))];
  return `&follow=${encodeURIComponent(JSON.stringify(numbers.map(experiment => ({ experiment }))))}`;
}

function concerns(subject: Subject | null, event: Event): boolean {
  if (!subject) return event.kind !== 'metrics';
  if (event.experiment_id !== subject.experiment) return false;
  return event.kind !== 'metrics' || subject.trial === undefined || event.trial_id === subject.trial;
}

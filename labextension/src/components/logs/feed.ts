/** The lines of one task: its last ones, then its stream until it ends. */

import { Api, ApiError, asApiError } from '../../state/api';
import { Follower, Link } from '../../state/follow';
import type { LogLine } from '../../state/wire';
import { LogBuffer } from './filter';

export const TAIL = 2000;
/** The most that the service gives at once. */
export const MOST_TAIL = 10_000;

/** What the service is asked to pick; the rest is picked here. */
export interface LogQuery {
  rank: number | null;
  search: string;
  tail: number;
}

export interface LogState {
  buffer: LogBuffer;
  version: number;
  ready: boolean;
  /** There are older lines than those that were fetched. */
  older: boolean;
  link: Link;
  error: ApiError | null;
}

interface Page {
  items: LogLine[];
}

export class LogFeed {
  private state: LogState = { buffer: new LogBuffer(), version: 0, ready: false, older: false, link: { kind: 'opening' }, error: null };
  private listeners = new Set<() => void>();
  private follower: Follower | null = null;
  private head = 0;
  private frame = 0;
  private round = 0;
  private waiting: LogLine[] = [];
  private stopped = false;
  private held = false;

  /** `base`: `trials/5/logs` or `tasks/x/logs`. */
  constructor(private api: Api, private base: string) {}

  getState = (): LogState => this.state;

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  /** Fetch the lines that fit, then follow. Ask again with another query at any time. */
  async start(query: LogQuery): Promise<void> {
    const round = (this.round += 1);
    const buffer = new LogBuffer();
    // Ranks that were seen stay choosable when only one is shown.
    this.state.buffer.ranks.forEach(rank => buffer.ranks.add(rank));
    const picky = query.rank !== null || query.search !== '';
    try {
      // Where the log ends now, before the lines that fit: what is written in between comes with both, once.
      const head = picky ? (await this.api.get<Page>(`${this.base}?tail=1`)).items[0]?.id ?? 0 : 0;
      const { items } = await this.api.get<Page>(`${this.base}?${params(query)}`);
      if (round !== this.round || this.stopped) return;
      buffer.add(items);
      this.head = Math.max(head, buffer.last);
      this.waiting = [];
      this.set({ buffer, ready: true, error: null, older: items.length >= query.tail });
    } catch (error) {
      if (round === this.round) this.set({ error: asApiError(error) });
      return;
    }
    this.follow();
  }

  setVisible(visible: boolean): void {
    this.held = !visible;
    if (visible) this.follower?.resume();
    else this.follower?.pause();
  }

  stop(): void {
    this.stopped = true;
    this.follower?.stop();
    cancelAnimationFrame(this.frame);
  }

  private follow(): void {
    this.follower?.stop();
    this.follower = new Follower(this.api, {
      path: () => `${this.base}/stream?after=${this.head}`,
      onLine: line => this.take(line as LogLine),
      onLink: link => this.set({ link }),
      finite: true
    });
    if (this.held) this.follower.pause();
  }

  private take(line: LogLine): void {
    if (line.id <= this.head) return;
    this.head = line.id;
    this.waiting.push(line);
    if (!this.frame) {
      this.frame = requestAnimationFrame(() => {
        this.frame = 0;
        this.state.buffer.add(this.waiting);
        this.waiting = [];
        this.set({});
      });
    }
  }

  private set(change: Partial<LogState>): void {
    if (this.stopped) return;
    this.state = { ...this.state, ...change, version: this.state.version + 1 };
    for (const listener of this.listeners) listener();
  }
}

function params(query: LogQuery): string {
  const parts = [`tail=${query.tail}`];
  if (query.rank !== null) parts.push(`rank=${query.rank}`);
  if (query.search) parts.push(`search=${encodeURIComponent(query.search)}`);
  return parts.join('&');
}

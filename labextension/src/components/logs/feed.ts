/** The lines of one task: its last ones, then its stream until it ends. */

import { Api, asApiError } from '../../state/api';
import { Feed, FeedState } from '../../state/feed';
import { Follower } from '../../state/follow';
import type { LogLine } from '../../state/wire';
import { Level, LogBuffer } from './filter';

/** Lines asked for at once. */
export const TAIL = 2000;

/** What the service is asked to pick; the rest is picked here. */
export interface LogQuery {
  rank: number | null;
  node: string;
  level: Level | '';
  search: string;
}

export interface LogState extends FeedState {
  buffer: LogBuffer;
  ready: boolean;
  /** There may be older lines that fit, before this one; the service looks at so many at once. */
  older: number | null;
  /** Older ones are on their way. */
  reaching: boolean;
}

interface Page {
  items: LogLine[];
  older?: number | null;
}

export class LogFeed extends Feed<LogState> {
  private follower: Follower | null = null;
  private head = 0;
  private query: LogQuery = { rank: null, node: '', level: '', search: '' };
  private round = 0;
  private waiting: LogLine[] = [];
  private held = false;

  /** `base`: `trials/5/logs` or `tasks/x/logs`. */
  constructor(private api: Api, private base: string) {
    super({ buffer: new LogBuffer(), version: 0, ready: false, older: null, reaching: false, link: { kind: 'opening' }, error: null });
  }

  /** Fetch the lines that fit, then follow. Ask again with another query at any time. */
  async start(query: LogQuery): Promise<void> {
    const round = (this.round += 1);
    this.query = query;
    const buffer = new LogBuffer();
    // Ranks and nodes that were seen stay choosable when only one is shown.
    this.state.buffer.ranks.forEach(rank => buffer.ranks.add(rank));
    this.state.buffer.nodes.forEach(node => buffer.nodes.add(node));
    const picky = query.rank !== null || query.node !== '' || query.level !== '' || query.search !== '';
    try {
      // Where the log ends now, before the lines that fit: what is written in between comes with both, once.
      const head = picky ? (await this.api.get<Page>(`${this.base}?tail=1`)).items[0]?.id ?? 0 : 0;
      const { items, older } = await this.api.get<Page>(`${this.base}?tail=${TAIL}${params(query)}`);
      if (round !== this.round || this.stopped) return;
      buffer.add(items);
      this.head = Math.max(head, buffer.last);
      this.waiting = [];
      this.set({ buffer, ready: true, error: null, older: older ?? null, reaching: false });
    } catch (error) {
      if (round === this.round) this.set({ error: asApiError(error) });
      return;
    }
    this.follow();
  }

  /** Fetch lines from before those that are shown. */
  async reach(): Promise<void> {
    const { older, reaching, buffer } = this.state;
    if (older === null || reaching) return;
    const round = this.round;
    this.set({ reaching: true });
    try {
      const page = await this.api.get<Page>(`${this.base}?before=${older}&limit=${TAIL}${params(this.query)}`);
      if (round !== this.round || this.stopped) return;
      buffer.prepend(page.items);
      this.set({ older: buffer.full ? null : page.older ?? null, error: null, reaching: false });
    } catch (error) {
      if (round === this.round) this.set({ error: asApiError(error), reaching: false });
    }
  }

  setVisible(visible: boolean): void {
    this.held = !visible;
    if (visible) this.follower?.resume();
    else this.follower?.pause();
  }

  stop(): void {
    super.stop();
    this.follower?.stop();
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
    this.later({});
  }

  protected beforeDrawing(): void {
    this.state.buffer.add(this.waiting);
    this.waiting = [];
  }
}

function params(query: LogQuery): string {
  const parts = [];
  if (query.rank !== null) parts.push(`&rank=${query.rank}`);
  if (query.node) parts.push(`&node=${encodeURIComponent(query.node)}`);
  if (query.level) parts.push(`&level=${query.level}`);
  if (query.search) parts.push(`&search=${encodeURIComponent(query.search)}`);
  return parts.join('');
}

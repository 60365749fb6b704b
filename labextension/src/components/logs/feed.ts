/** The lines of one task: its last ones, then its stream until it ends; or those around one line. */

import { Api, asApiError } from '../../state/api';
import { Feed, FeedState } from '../../state/feed';
import { Follower } from '../../state/follow';
import type { LogLine } from '../../state/wire';
import { byService, LogBuffer, type LogFilter, NO_FILTER, picky } from './filter';

/** Lines asked for at once. */
export const TAIL = 2000;
/** Lines before one that was jumped to. */
const BEFORE = 500;
/** Where the service alone can say which new lines fit, it is asked at most this often. */
const ASK_MS = 1000;
/** Most questions for the first error: each looks at a part of a long log. */
const MOST_QUESTIONS = 40;
/** What begins an error in output without levels, in RE2's syntax. */
const ERROR = String.raw`^(Traceback \(most recent call last\)|(\w+\.)*\w*(Error|Exception)(:|$)|(FATAL|fatal|panic|Segmentation fault|Fatal Python error)\b)`;

export interface LogState extends FeedState {
  buffer: LogBuffer;
  ready: boolean;
  /** There may be older lines that fit, before this one; the service looks at so many at once. */
  older: number | null;
  /** There are newer lines, after this one, which are not followed: a jump led to the middle. */
  newer: number | null;
  /** Others are on their way. */
  reaching: boolean;
}

interface Page {
  items: LogLine[];
  older?: number | null;
  next?: number | null;
  context?: number[];
}

export class LogFeed extends Feed<LogState> {
  private follower: Follower | null = null;
  private head = 0;
  /** The service was asked for lines that fit up to here. */
  private matched = 0;
  private asking = 0;
  private query: LogFilter = NO_FILTER;
  private round = 0;
  private waiting: LogLine[] = [];
  private held = false;

  /** `base`: `trials/5/logs` or `tasks/x/logs`. */
  constructor(private api: Api, private base: string) {
    super({
      buffer: new LogBuffer(), version: 0, ready: false, older: null, newer: null, reaching: false, link: { kind: 'opening' }, error: null
    });
  }

  /** Fetch the lines that fit, then follow. Ask again with another query at any time. */
  async start(query: LogFilter): Promise<void> {
    const round = this.begun(query);
    const buffer = this.emptied();
    try {
      // Where the log ends now, before the lines that fit: what is written in between comes with both, once.
      const head = picky(query) ? (await this.api.get<Page>(`${this.base}?tail=1`)).items[0]?.id ?? 0 : 0;
      const page = await this.api.get<Page>(`${this.base}?tail=${TAIL}${params(query)}`);
      if (round !== this.round || this.stopped) return;
      buffer.add(page.items, new Set(page.context));
      this.head = this.matched = Math.max(head, buffer.last);
      this.waiting = [];
      this.set({ buffer, ready: true, error: null, older: page.older ?? null, newer: null, reaching: false });
    } catch (error) {
      if (round === this.round) this.set({ error: asApiError(error) });
      return;
    }
    this.follow();
  }

  /** Fetch the lines around one, of all lines. They are followed only where they reach the end. */
  async show(id: number): Promise<void> {
    const round = this.begun(NO_FILTER);
    const buffer = this.emptied();
    this.follower?.stop();
    this.follower = null;
    try {
      const before = await this.api.get<Page>(`${this.base}?before=${id + 1}&limit=${BEFORE}`);
      const after = await this.api.get<Page>(`${this.base}?after=${id}&limit=${TAIL}`);
      if (round !== this.round || this.stopped) return;
      buffer.add([...before.items, ...after.items]);
      this.head = buffer.last;
      this.waiting = [];
      const newer = after.next ?? null;
      this.set({ buffer, ready: true, error: null, older: before.older ?? null, newer, reaching: false });
      if (newer === null) this.follow();
    } catch (error) {
      if (round === this.round) this.set({ error: asApiError(error) });
    }
  }

  /** The id of the first line that tells of an error: by its level, or by what it says. */
  async firstError(): Promise<number | null> {
    const found = await Promise.all([this.first('&level=ERROR'), this.first(`&regex=${encodeURIComponent(ERROR)}`)]);
    const ids = found.filter(id => id !== null);
    return ids.length ? Math.min(...ids) : null;
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
      buffer.prepend(page.items, new Set(page.context));
      this.set({ older: buffer.full ? null : page.older ?? null, error: null, reaching: false });
    } catch (error) {
      if (round === this.round) this.set({ error: asApiError(error), reaching: false });
    }
  }

  /** Fetch lines from after those that are shown, where a jump led to the middle. */
  async reachNewer(): Promise<void> {
    const { newer, reaching, buffer } = this.state;
    if (newer === null || reaching) return;
    const round = this.round;
    this.set({ reaching: true });
    try {
      const page = await this.api.get<Page>(`${this.base}?after=${newer}&limit=${TAIL}`);
      if (round !== this.round || this.stopped) return;
      buffer.add(page.items);
      this.head = buffer.last;
      this.set({ newer: page.next ?? null, error: null, reaching: false });
      if ((page.next ?? null) === null) this.follow();
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
    window.clearTimeout(this.asking);
    this.follower?.stop();
  }

  private begun(query: LogFilter): number {
    this.query = query;
    window.clearTimeout(this.asking);
    this.asking = 0;
    return (this.round += 1);
  }

  /** Ranks and nodes that were seen stay choosable when only one is shown. */
  private emptied(): LogBuffer {
    const buffer = new LogBuffer();
    this.state.buffer.ranks.forEach(rank => buffer.ranks.add(rank));
    this.state.buffer.nodes.forEach(node => buffer.nodes.add(node));
    return buffer;
  }

  private async first(condition: string): Promise<number | null> {
    let after = 0;
    for (let asked = 0; asked < MOST_QUESTIONS; asked += 1) {
      const page = await this.api.get<Page>(`${this.base}?after=${after}&limit=1${condition}`);
      if (page.items.length) return page.items[0]!.id;
      const next = page.next ?? null;
      if (next === null || next <= after) return null;
      after = next;
    }
    return null;
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
    if (byService(this.query)) {
      this.askLater();
      return;
    }
    this.waiting.push(line);
    this.later({});
  }

  /** New lines have come, and the service says which fit. */
  private askLater(): void {
    this.asking ||= window.setTimeout(() => void this.ask(), ASK_MS);
  }

  private async ask(): Promise<void> {
    const [round, upto] = [this.round, this.head];
    try {
      const page = await this.api.get<Page>(`${this.base}?after=${this.matched}&limit=${TAIL}${params(this.query)}`);
      if (round !== this.round || this.stopped) return;
      this.state.buffer.add(page.items, new Set(page.context));
      this.matched = Math.max(this.matched, page.next ?? upto);
      this.set({ error: null });
    } catch (error) {
      if (round === this.round) this.set({ error: asApiError(error) });
    }
    if (round !== this.round) return;
    this.asking = 0;
    if (this.matched < this.head) this.askLater();
  }

  protected beforeDrawing(): void {
    this.state.buffer.add(this.waiting);
    this.waiting = [];
  }
}

/** What the service is asked to pick. */
export function params(query: LogFilter): string {
  const parts = [];
  if (query.rank !== null) parts.push(`&rank=${query.rank}`);
  if (query.node) parts.push(`&node=${encodeURIComponent(query.node)}`);
  if (query.level) parts.push(`&level=${query.level}`);
  if (query.search) parts.push(`&${query.regex ? 'regex' : 'search'}=${encodeURIComponent(query.search)}`);
  if (query.since !== null) parts.push(`&since=${query.since}`);
  if (query.until !== null) parts.push(`&until=${query.until}`);
  if (query.context && picky(query)) parts.push(`&context=${query.context}`);
  return parts.join('');
}

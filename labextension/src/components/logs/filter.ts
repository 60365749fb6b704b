/** Which log lines are shown, and what is kept of a stream that never ends. */

import type { LogLine } from '../../state/wire';
import { logText } from '../common/text';

export const LEVELS = ['DEBUG', 'INFO', 'WARNING', 'ERROR', 'CRITICAL'] as const;
export type Level = (typeof LEVELS)[number];

export interface LogFilter {
  /** null: all. */
  rank: number | null;
  /** An agent; '': all. */
  node: string;
  /** The least severe that is shown; '' shows lines without a level, too. */
  level: Level | '';
  search: string;
  /** The search is a regular expression, in RE2's syntax: the service alone matches it, in bounded time. */
  regex: boolean;
  /** Seconds since the epoch, the first one included. */
  since: number | null;
  until: number | null;
  /** So many lines before and after each line that fits. */
  context: number;
}

export const NO_FILTER: LogFilter = { rank: null, node: '', level: '', search: '', regex: false, since: null, until: null, context: 0 };

/** Whether a filter leaves lines out. */
export function picky(filter: LogFilter): boolean {
  const { rank, node, level, search, since, until } = filter;
  return rank !== null || node !== '' || level !== '' || search !== '' || since !== null || until !== null;
}

/** Whether only the service can say which lines fit, and which stand around them. */
export function byService(filter: LogFilter): boolean {
  return (filter.regex && filter.search !== '') || (filter.context > 0 && picky(filter));
}

/** Lines kept in memory; the oldest go first. */
export const KEPT = 50_000;

/** A line ready to be drawn. */
export interface ShownLine {
  id: number;
  rank: number | null;
  node: string | null;
  level: string | null;
  stdtype: string;
  time: number;
  run: number;
  text: string;
  /** It only stands beside a line that fits. */
  context?: boolean;
}

export function shownLine(line: LogLine): ShownLine {
  return {
    id: line.id,
    rank: line.rank,
    node: line.node ?? null,
    level: line.level,
    stdtype: line.stdtype,
    time: line.time,
    run: line.run,
    text: logText(line.text)
  };
}

/** A row of the view: a line, or the mark where another attempt of the task begins. */
export type LogRow = ShownLine | { mark: number; id: string };

/** Lines with a mark before the first line of each attempt after the first, unless the output says itself that it begins:
 * it does not for tasks, and a filter by rank, level or text leaves that line out. */
export function withMarks(lines: readonly ShownLine[]): LogRow[] {
  const said = new Set(lines.filter(line => line.text.startsWith(`detlab: attempt ${line.run} of trial `)).map(line => line.run));
  const rows: LogRow[] = [];
  let run = 1;
  for (const line of lines) {
    if (line.run > run && !said.has(line.run)) rows.push({ mark: line.run, id: `attempt ${line.run}` });
    run = Math.max(run, line.run);
    rows.push(line);
  }
  return rows;
}

/** Whether a line passes the filter. Severity counts from the filter's level up; case does not count in a search. */
export function passes(line: ShownLine, filter: LogFilter): boolean {
  if (line.context) return filter.context > 0;
  if (filter.rank !== null && line.rank !== filter.rank) return false;
  if (filter.node && line.node !== filter.node) return false;
  if (filter.level && severity(line.level) < severity(filter.level)) return false;
  if (filter.since !== null && line.time < filter.since) return false;
  if (filter.until !== null && line.time >= filter.until) return false;
  return !filter.search || filter.regex || line.text.toLowerCase().includes(filter.search.toLowerCase());
}

function severity(level: string | null): number {
  return LEVELS.indexOf((level ?? '') as Level);
}

const NONE: ReadonlySet<number> = new Set();

/** Lines by id, ascending and without doubles: a stream that was taken up again may repeat some. */
export class LogBuffer {
  lines: ShownLine[] = [];
  /** Lines that were let go because there were too many. */
  dropped = 0;
  ranks = new Set<number>();
  nodes = new Set<string>();

  constructor(private readonly kept = KEPT) {}

  get last(): number {
    return this.lines.length ? this.lines[this.lines.length - 1]!.id : 0;
  }

  /** Add lines; returns how many were new. `context`: ids of those that only stand beside one that fits. */
  add(more: readonly LogLine[], context: ReadonlySet<number> = NONE): number {
    const last = this.last;
    const fresh = this.marked(more, context).filter(line => line.id > last || line.id === 0);
    for (const line of fresh) {
      this.note(line);
      this.lines.push(line);
    }
    const surplus = this.lines.length - this.kept;
    if (surplus > 0) {
      this.lines.splice(0, surplus);
      this.dropped += surplus;
    }
    return fresh.length;
  }

  /** No more older lines are taken: there is no room, or a gap would be left. */
  get full(): boolean {
    return this.dropped > 0 || this.lines.length >= this.kept;
  }

  /** Put older lines before the others, as many as fit; doubles are left out. */
  prepend(older: readonly LogLine[], context: ReadonlySet<number> = NONE): void {
    const first = this.lines[0]?.id ?? Infinity;
    const fresh = this.marked(older, context).filter(line => line.id < first);
    fresh.forEach(line => this.note(line));
    const room = Math.max(0, this.kept - this.lines.length);
    this.lines = [...fresh.slice(Math.max(0, fresh.length - room)), ...this.lines];
  }

  /** Lines as they are shown; one that was there beside another, and fits itself, is no mere context any more. */
  private marked(lines: readonly LogLine[], context: ReadonlySet<number>): ShownLine[] {
    const shown = lines.map(line => (context.has(line.id) ? { ...shownLine(line), context: true } : shownLine(line)));
    const fits = new Set(shown.filter(line => !line.context).map(line => line.id));
    if (this.lines.some(line => line.context && fits.has(line.id))) {
      this.lines = this.lines.map(line => (line.context && fits.has(line.id) ? { ...line, context: false } : line));
    }
    return shown;
  }

  /** What can be chosen. */
  private note(line: ShownLine): void {
    if (line.rank !== null && this.ranks.size < 4096) this.ranks.add(line.rank);
    if (line.node !== null && this.nodes.size < 4096) this.nodes.add(line.node);
  }

  clear(): void {
    this.lines = [];
    this.dropped = 0;
  }
}

const RANK_COLOURS = 8;

/** Which of the rank colours (`--det-rank-0` …) a rank has. */
export function rankColour(rank: number | null): string {
  return rank === null ? 'inherit' : `var(--det-rank-${rank % RANK_COLOURS})`;
}

/** A part of a text that matches the search, or does not. */
export interface Piece {
  text: string;
  hit: boolean;
}

/** Cut a text at the places where it matches, for marking them. */
export function pieces(text: string, search: string): Piece[] {
  if (!search) return [{ text, hit: false }];
  const [hay, needle] = [text.toLowerCase(), search.toLowerCase()];
  if (hay.length !== text.length) return [{ text, hit: false }];
  const found: Piece[] = [];
  let at = 0;
  for (let hit = hay.indexOf(needle); hit >= 0; hit = hay.indexOf(needle, at)) {
    if (hit > at) found.push({ text: text.slice(at, hit), hit: false });
    found.push({ text: text.slice(hit, hit + needle.length), hit: true });
    at = hit + needle.length;
  }
  if (at < text.length) found.push({ text: text.slice(at), hit: false });
  return found;
}

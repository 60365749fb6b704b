/** Log lines: filters, colours of ranks, follow; only the lines in sight are drawn, and text stays text. */

import {
  ReactElement, useDeferredValue, useEffect, useId, useLayoutEffect, useMemo, useRef, useState
} from 'react';

import { EmptyState, ErrorBanner, formatTime, Loading, useFeed } from '../common';
import { LinkNotice } from '../view/LinkNotice';
import { LogFeed, LogState } from './feed';
import { LEVELS, Level, LogFilter, NO_FILTER, passes, pieces, rankColour, ShownLine, withMarks } from './filter';
import { nameText } from '../common/text';

/** Height of a line, pixels. */
const LINE = 18;
const SPARE = 12;
/** A search is sent after a pause in typing of this length. */
const TYPING_MS = 350;

export function LogView({ base, label, visible = true }: {
  /** `trials/5/logs` or `tasks/x/logs` */
  base: string;
  label: string;
  visible?: boolean;
}): ReactElement {
  const [filter, setFilter] = useState<LogFilter>(NO_FILTER);
  const [times, setTimes] = useState(false);
  const [follow, setFollow] = useState(true);
  const search = useSettled(filter.search, TYPING_MS);
  const { feed, state } = useFeed(({ api }) => new LogFeed(api, base), base, visible);
  const { rank, node, level } = filter;
  useEffect(() => void feed?.start({ rank, node, level, search }), [feed, rank, node, level, search]);
  const again = (): void => void feed?.start({ rank, node, level, search });
  const wanted = useDeferredValue(filter);
  const buffer = state?.buffer;
  const lines = useMemo(
    () => (buffer ? buffer.lines.filter(line => passes(line, wanted)) : []),
    // eslint-disable-next-line react-hooks/exhaustive-deps -- lines come into the buffer: the version says when
    [buffer, wanted, state?.version]
  );
  if (state?.error && !state.ready) return <ErrorBanner error={state.error} what="Logs" onRetry={again} />;
  if (!state?.ready || !buffer) return <Loading what="Loading the logs" />;
  const busy = filter.search !== search || wanted !== filter || state.reaching;
  return (
    <div className="det-logs">
      <Filters
        filter={filter} onFilter={setFilter} ranks={[...buffer.ranks].sort((a, b) => a - b)} nodes={[...buffer.nodes].sort()}
        times={times} onTimes={setTimes} follow={follow} onFollow={setFollow} ended={state.link.kind === 'ended'}
      />
      <LinkNotice link={state.link} onRetry={again} />
      {state.error && <ErrorBanner error={state.error} what="Logs" onRetry={again} />}
      {state.older !== null && (
        <p className="det-log-older">
          {lines.length ? 'There are older lines.' : 'Only the newest lines were searched.'}{' '}
          <button type="button" className="det-link" aria-disabled={state.reaching || undefined} onClick={() => void feed?.reach()}>
            {state.reaching ? 'Loading …' : lines.length ? 'Load older' : 'Search older'}
          </button>
        </p>
      )}
      {state.older === null && buffer.full && <p className="det-log-older">Only the last {buffer.lines.length} lines are shown; the command line shows all.</p>}
      {lines.length === 0
        ? <NoLines filter={wanted} busy={busy} state={state} onClear={() => setFilter(NO_FILTER)} />
        : <Lines lines={lines} label={label} search={wanted.search} times={times} follow={follow} onFollow={setFollow} />}
    </div>
  );
}

function useSettled<T>(value: T, afterMs: number): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = window.setTimeout(() => setSettled(value), afterMs);
    return () => window.clearTimeout(timer);
  }, [value, afterMs]);
  return settled;
}

function NoLines({ filter, busy, state, onClear }: {
  filter: LogFilter; busy: boolean; state: LogState; onClear: () => void;
}): ReactElement {
  if (busy) return <Loading what="Searching" />;
  const filtered = filter.rank !== null || filter.node !== '' || filter.level !== '' || filter.search !== '';
  if (filtered) {
    return (
      <EmptyState title="No line matches.">
        <button type="button" className="det-link" onClick={onClear}>Show all lines</button>
      </EmptyState>
    );
  }
  return <EmptyState title={state.link.kind === 'ended' ? 'No output.' : 'No output yet.'} />;
}

function Filters({ filter, onFilter, ranks, nodes, times, onTimes, follow, onFollow, ended }: {
  filter: LogFilter;
  onFilter: (filter: LogFilter) => void;
  ranks: readonly number[];
  nodes: readonly string[];
  times: boolean;
  onTimes: (on: boolean) => void;
  follow: boolean;
  onFollow: (on: boolean) => void;
  ended: boolean;
}): ReactElement {
  const id = useId();
  return (
    <div className="det-controls" role="group" aria-label="Log filters">
      <input
        className="det-input det-grow" type="search" aria-label="Search in the logs" placeholder="Search" value={filter.search}
        onChange={event => onFilter({ ...filter, search: event.target.value })}
      />
      <span className="det-labelled">
        <label htmlFor={`${id}-r`}>Rank</label>
        <select
          id={`${id}-r`} className="det-input" value={filter.rank ?? ''}
          onChange={event => onFilter({ ...filter, rank: event.target.value === '' ? null : Number(event.target.value) })}
        >
          <option value="">all</option>
          {ranks.map(rank => <option key={rank} value={rank}>{rank}</option>)}
        </select>
      </span>
      {nodes.length > 1 && (
        <span className="det-labelled">
          <label htmlFor={`${id}-n`}>Node</label>
          <select
            id={`${id}-n`} className="det-input" value={filter.node}
            onChange={event => onFilter({ ...filter, node: event.target.value })}
          >
            <option value="">all</option>
            {nodes.map(node => <option key={node} value={node}>{nameText(node)}</option>)}
          </select>
        </span>
      )}
      <span className="det-labelled">
        <label htmlFor={`${id}-l`}>Level</label>
        <select
          id={`${id}-l`} className="det-input" value={filter.level}
          onChange={event => onFilter({ ...filter, level: event.target.value as Level | '' })}
        >
          <option value="">all</option>
          {LEVELS.map(level => <option key={level} value={level}>{level.toLowerCase()}{level === 'CRITICAL' ? '' : ' and above'}</option>)}
        </select>
      </span>
      <button type="button" className="det-button det-toggle-button" aria-pressed={times} onClick={() => onTimes(!times)}>Times</button>
      <button
        type="button" className="det-button det-toggle-button" aria-pressed={follow} onClick={() => onFollow(!follow)}
        title={ended ? 'Ended: no more output' : 'Stay at the newest line'}
      >
        {ended ? 'End' : 'Follow'}
      </button>
    </div>
  );
}

function Lines({ lines, label, search, times, follow, onFollow }: {
  lines: readonly ShownLine[];
  label: string;
  search: string;
  times: boolean;
  follow: boolean;
  onFollow: (on: boolean) => void;
}): ReactElement {
  const box = useRef<HTMLDivElement>(null);
  const [range, setRange] = useState({ from: 0, to: 60 });
  const expected = useRef(-1);
  const first = useRef<number | null>(null);
  const rows = useMemo(() => withMarks(lines), [lines]);
  const longest = useMemo(() => lines.reduce((most, line) => Math.max(most, line.text.length), 0), [lines]);
  const ranked = useMemo(() => lines.some(line => line.rank !== null), [lines]);
  const measure = (): void => {
    const el = box.current!;
    const from = Math.max(0, Math.floor(el.scrollTop / LINE) - SPARE);
    const to = Math.ceil((el.scrollTop + (el.clientHeight || 600)) / LINE) + SPARE;
    setRange(old => (old.from === from && old.to === to ? old : { from, to }));
  };
  useLayoutEffect(() => {
    const el = box.current!;
    // Older lines were put before those in sight: stay with these.
    const before = first.current === null ? -1 : rows.findIndex(row => row.id === first.current);
    if (before > 0 && !follow) el.scrollTop += before * LINE;
    first.current = lines[0]!.id;
    if (follow) {
      el.scrollTop = el.scrollHeight;
      expected.current = el.scrollTop;
    }
    measure();
  }, [lines, rows, follow]);
  const scrolled = (): void => {
    const el = box.current!;
    measure();
    if (Math.abs(el.scrollTop - expected.current) < 2) return;
    expected.current = -1;
    const atEnd = el.scrollHeight - el.scrollTop - el.clientHeight < 1.5 * LINE;
    if (atEnd !== follow) onFollow(atEnd);
  };
  return (
    <div
      ref={box} className="det-log-box" role="log" aria-live="off" aria-label={label} tabIndex={0} onScroll={scrolled}
    >
      <div className="det-log-lines" style={{ height: rows.length * LINE, minWidth: `calc(${Math.min(longest, 8100)}ch + ${times ? 260 : 110}px)` }}>
        {rows.slice(range.from, range.to).map((row, i) => ('mark' in row
          ? <Mark key={row.id} attempt={row.mark} top={(range.from + i) * LINE} />
          : <Line key={row.id} line={row} top={(range.from + i) * LINE} search={search} times={times} ranked={ranked} />
        ))}
      </div>
    </div>
  );
}

function Mark({ attempt, top }: { attempt: number; top: number }): ReactElement {
  return (
    <div className="det-log-line det-log-mark" role="separator" style={{ transform: `translateY(${top}px)` }}>
      attempt {attempt}
    </div>
  );
}

function place(line: ShownLine): string | undefined {
  const words = [line.rank === null ? '' : `rank ${line.rank}`, line.node === null ? '' : `on ${nameText(line.node)}`].filter(Boolean);
  return words.length ? words.join(' ') : undefined;
}

function Line({ line, top, search, times, ranked }: {
  line: ShownLine; top: number; search: string; times: boolean; ranked: boolean;
}): ReactElement {
  return (
    <div className="det-log-line" data-level={line.level ?? undefined} data-std={line.stdtype} style={{ transform: `translateY(${top}px)` }}>
      {times && <span className="det-log-time">{formatTime(line.time)}</span>}
      {ranked && (
        <span className="det-log-rank" style={{ color: rankColour(line.rank) }} title={place(line)}>
          {line.rank === null ? '' : `[${line.rank}]`}
        </span>
      )}
      <span className="det-log-text" dir="ltr">
        {pieces(line.text, search).map((piece, i) => (piece.hit ? <mark key={i}>{piece.text}</mark> : piece.text))}
      </span>
    </div>
  );
}

/** Log lines: only those in sight are drawn, and text stays text. */

import { observeElementRect, useVirtualizer } from '@tanstack/react-virtual';
import { CSSProperties, ReactElement, RefObject, useEffect, useLayoutEffect, useMemo, useRef, useState } from 'react';

import { formatTime } from '../common';
import { nameText } from '../common/text';
import { LogRow, pieces, rankColour, ShownLine, withMarks } from './filter';
import type { Look } from './Filters';

/** Height of a line, pixels. */
const LINE = 18;
const SPARE = 12;
/** Where nothing can be measured yet. */
const HEIGHT = 600;
/** Most lanes: more would have no room. */
export const MOST_LANES = 8;

interface LinesProps {
  lines: readonly ShownLine[];
  label: string;
  /** What is marked in the text. */
  search: string;
  look: Look;
  follow: boolean;
  onFollow: (on: boolean) => void;
  /** The line that was jumped to. */
  target: number | null;
}

export function Lines(props: LinesProps): ReactElement {
  const rows = useMemo(() => withMarks(props.lines), [props.lines]);
  const ranked = useMemo(() => props.lines.some(line => line.rank !== null), [props.lines]);
  if (props.look.wrap) return <Wrapped {...props} rows={rows} ranked={ranked} />;
  return <Straight {...props} rows={rows} ranked={ranked} />;
}

interface RowsProps extends LinesProps {
  rows: readonly LogRow[];
  ranked: boolean;
}

function Straight({ lines, rows, ranked, label, search, look, follow, onFollow, target }: RowsProps): ReactElement {
  const box = useRef<HTMLDivElement>(null);
  const [range, setRange] = useState({ from: 0, to: 60 });
  const expected = useRef(-1);
  const first = useRef<number | null>(null);
  const longest = useMemo(() => lines.reduce((most, line) => Math.max(most, line.text.length), 0), [lines]);
  const lanes = useLanes(lines, look.lanes);
  const measure = (): void => {
    const el = box.current!;
    const from = Math.max(0, Math.floor(el.scrollTop / LINE) - SPARE);
    const to = Math.ceil((el.scrollTop + (el.clientHeight || HEIGHT)) / LINE) + SPARE;
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
  const at = target === null ? -1 : rows.findIndex(row => row.id === target);
  useLayoutEffect(() => {
    if (at < 0) return;
    box.current!.scrollTop = Math.max(0, at * LINE - (box.current!.clientHeight || HEIGHT) / 3);
    measure();
    // eslint-disable-next-line react-hooks/exhaustive-deps -- once for each jump, not whenever lines come
  }, [target, at >= 0]);
  const scrolled = (): void => {
    const el = box.current!;
    measure();
    if (Math.abs(el.scrollTop - expected.current) < 2) return;
    expected.current = -1;
    const end = el.scrollHeight - el.scrollTop - el.clientHeight < 1.5 * LINE;
    if (end !== follow) onFollow(end);
  };
  const width = lanes ? `${lanes.length * 220}px` : `calc(${Math.min(longest, 8100)}ch + ${look.times ? 290 : 110}px)`;
  return (
    <>
      {lanes && <LaneHeads lanes={lanes} more={new Set(lines.map(line => line.rank)).size > MOST_LANES} box={box} />}
      <div ref={box} className="det-log-box" role="log" aria-live="off" aria-label={label} tabIndex={0} onScroll={scrolled}>
        <div className="det-log-lines" style={{ height: rows.length * LINE, minWidth: width }}>
          {rows.slice(range.from, range.to).map((row, i) => {
            const style: CSSProperties = { transform: `translateY(${(range.from + i) * LINE}px)` };
            if ('mark' in row) return <Mark key={row.id} attempt={row.mark} style={style} />;
            const lane = lanes && row.rank !== null ? lanes.indexOf(row.rank) : -1;
            if (lanes && lane >= 0) Object.assign(style, { left: `${(100 * lane) / lanes.length}%`, width: `${100 / lanes.length}%` });
            return <Line key={row.id} line={row} style={style} search={search} look={look} ranked={ranked} inLane={lane >= 0} target={row.id === target} />;
          })}
        </div>
      </div>
    </>
  );
}

/** The first ranks, each with a lane; null where there are none to show. */
function useLanes(lines: readonly ShownLine[], wanted: boolean): number[] | null {
  return useMemo(() => {
    if (!wanted) return null;
    const ranks = [...new Set(lines.flatMap(line => (line.rank === null ? [] : [line.rank])))].sort((a, b) => a - b);
    return ranks.length > 1 ? ranks.slice(0, MOST_LANES) : null;
  }, [lines, wanted]);
}

function LaneHeads({ lanes, more, box }: { lanes: readonly number[]; more: boolean; box: RefObject<HTMLDivElement> }): ReactElement {
  const heads = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const el = box.current!;
    const along = (): void => { heads.current!.scrollLeft = el.scrollLeft; };
    el.addEventListener('scroll', along);
    return () => el.removeEventListener('scroll', along);
  }, [box]);
  return (
    <>
      <div ref={heads} className="det-log-lanes" aria-hidden="true">
        <div style={{ minWidth: lanes.length * 220 }}>
          {lanes.map(rank => <span key={rank} style={{ color: rankColour(rank) }}>rank {rank}</span>)}
        </div>
      </div>
      {more && <p className="det-log-older">The first {MOST_LANES} ranks have lanes; lines of others go across.</p>}
    </>
  );
}

/** Long lines go on below: each row is as high as its text. */
function Wrapped({ lines, rows, ranked, label, search, look, follow, onFollow, target }: RowsProps): ReactElement {
  const box = useRef<HTMLDivElement>(null);
  const own = useRef(-1);
  const first = useRef<number | null>(null);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => box.current,
    estimateSize: () => LINE,
    getItemKey: index => rows[index]!.id,
    overscan: SPARE,
    initialRect: { width: 800, height: HEIGHT },
    observeElementRect: (instance, tell) => observeElementRect(instance, rect => tell({ width: rect.width, height: rect.height || HEIGHT }))
  });
  const items = virtual.getVirtualItems();
  const total = virtual.getTotalSize();
  useLayoutEffect(() => {
    const el = box.current!;
    const before = first.current === null ? -1 : rows.findIndex(row => row.id === first.current);
    if (before > 0 && !follow) virtual.scrollToIndex(before, { align: 'start' });
    first.current = lines[0]!.id;
    if (follow) {
      el.scrollTop = el.scrollHeight;
      own.current = el.scrollTop;
    }
    // eslint-disable-next-line react-hooks/exhaustive-deps -- `total` changes when rows in sight have been measured
  }, [rows, follow, total]);
  const at = target === null ? -1 : rows.findIndex(row => row.id === target);
  useLayoutEffect(() => {
    if (at >= 0) virtual.scrollToIndex(at, { align: 'center' });
    // eslint-disable-next-line react-hooks/exhaustive-deps -- once for each jump
  }, [target, at >= 0]);
  const scrolled = (): void => {
    const el = box.current!;
    if (Math.abs(el.scrollTop - own.current) < 2) return;
    own.current = -1;
    const end = el.scrollHeight - el.scrollTop - el.clientHeight < 1.5 * LINE;
    if (end !== follow) onFollow(end);
  };
  return (
    <div ref={box} className="det-log-box" role="log" aria-live="off" aria-label={label} tabIndex={0} onScroll={scrolled}>
      <div className="det-log-lines det-log-wrapped" style={{ height: total }}>
        {items.map(item => {
          const row = rows[item.index]!;
          const style: CSSProperties = { transform: `translateY(${item.start}px)` };
          return (
            <div key={item.key} ref={virtual.measureElement} data-index={item.index} className="det-log-row" style={style}>
              {'mark' in row ? <Mark attempt={row.mark} /> : <Line line={row} search={search} look={look} ranked={ranked} inLane={false} target={row.id === target} />}
            </div>
          );
        })}
      </div>
    </div>
  );
}

function Mark({ attempt, style }: { attempt: number; style?: CSSProperties }): ReactElement {
  return <div className="det-log-line det-log-mark" role="separator" style={style}>attempt {attempt}</div>;
}

function place(line: ShownLine): string | undefined {
  const words = [line.rank === null ? '' : `rank ${line.rank}`, line.node === null ? '' : `on ${nameText(line.node)}`].filter(Boolean);
  return words.length ? words.join(' ') : undefined;
}

function Line({ line, style, search, look, ranked, inLane, target }: {
  line: ShownLine; style?: CSSProperties; search: string; look: Look; ranked: boolean; inLane: boolean; target: boolean;
}): ReactElement {
  return (
    <div
      className={`det-log-line${inLane ? ' det-log-inlane' : ''}`} data-level={line.level ?? undefined} data-std={line.stdtype} data-context={line.context || undefined}
      data-target={target || undefined} style={style} title={inLane ? `${formatTime(line.time, look.zone)} ${line.text}` : undefined}
    >
      {look.times && <span className="det-log-time">{formatTime(line.time, look.zone)}</span>}
      {ranked && !inLane && (
        <span className="det-log-rank" style={{ color: rankColour(line.rank) }} title={place(line)}>
          {line.rank === null ? '' : `[${line.rank}]`}
        </span>
      )}
      <span className="det-log-text" dir="ltr">
        {pieces(line.text, line.context ? '' : search).map((piece, i) => (piece.hit ? <mark key={i}>{piece.text}</mark> : piece.text))}
      </span>
    </div>
  );
}

/** Log lines: only those in sight are drawn, and text stays text. */

import { elementScroll, observeElementRect, useVirtualizer } from '@tanstack/react-virtual';
import { CSSProperties, MutableRefObject, ReactElement, RefObject, useEffect, useLayoutEffect, useMemo, useRef, useState } from 'react';

import { formatTime } from '../common';
import { nameText } from '../common/text';
import { LogRow, pieces, rankColour, ShownLine, withMarks } from './filter';
import type { Look } from './Filters';
import { readPlace, type ReadPlace, rowOf, useKeptEnd } from './following';

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
  const reading = useRef<ReadPlace | null>(null);
  if (props.look.wrap) return <Wrapped {...props} rows={rows} ranked={ranked} reading={reading} />;
  return <Straight {...props} rows={rows} ranked={ranked} reading={reading} />;
}

interface RowsProps extends LinesProps {
  rows: readonly LogRow[];
  ranked: boolean;
  /** Outlives a change between lines that wrap and those that do not. */
  reading: MutableRefObject<ReadPlace | null>;
}

function Straight({ lines, rows, ranked, reading, label, search, look, follow, onFollow, target }: RowsProps): ReactElement {
  const box = useRef<HTMLDivElement>(null);
  const [range, setRange] = useState({ from: 0, to: 60 });
  const longest = useMemo(() => lines.reduce((most, line) => Math.max(most, line.text.length), 0), [lines]);
  const lanes = useLanes(lines, look.lanes);
  const measure = (): void => {
    const el = box.current!;
    const from = Math.max(0, Math.floor(el.scrollTop / LINE) - SPARE);
    const to = Math.ceil((el.scrollTop + (el.clientHeight || HEIGHT)) / LINE) + SPARE;
    setRange(old => (old.from === from && old.to === to ? old : { from, to }));
    const place = readPlace(rows, Math.floor(el.scrollTop / LINE));
    reading.current = place && { ...place, above: el.scrollTop - place.index * LINE };
  };
  const began = useRef(false);
  const { settle, note, onScroll } = useKeptEnd(box, follow, onFollow, measure);
  useLayoutEffect(() => {
    const was = reading.current;
    const index = was && !follow ? rowOf(rows, was.line) : -1;
    // Lines before those in sight have come or gone: stay with these.
    if (was && index >= 0 && (index !== was.index || !began.current)) box.current!.scrollTop = index * LINE + was.above;
    began.current = true;
    settle();
    measure();
    // eslint-disable-next-line react-hooks/exhaustive-deps -- whenever rows change, and nothing else
  }, [rows, follow]);
  const at = target === null ? -1 : rows.findIndex(row => row.id === target);
  useLayoutEffect(() => {
    if (at < 0) return;
    box.current!.scrollTop = Math.max(0, at * LINE - (box.current!.clientHeight || HEIGHT) / 3);
    note();
    measure();
    // eslint-disable-next-line react-hooks/exhaustive-deps -- once for each jump, not whenever lines come
  }, [target, at >= 0]);
  const scrolled = (): void => {
    measure();
    onScroll();
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
function Wrapped({ rows, ranked, reading, label, search, look, follow, onFollow, target }: RowsProps): ReactElement {
  const box = useRef<HTMLDivElement>(null);
  const began = useRef(false);
  const { settle, note, onScroll } = useKeptEnd(box, follow, onFollow);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => box.current,
    estimateSize: () => LINE,
    getItemKey: index => rows[index]!.id,
    overscan: SPARE,
    initialRect: { width: 800, height: HEIGHT },
    scrollToFn: (offset, options, instance) => {
      elementScroll(offset, options, instance);
      if (box.current) note();
    },
    observeElementRect: (instance, tell) => observeElementRect(instance, rect => tell({ width: rect.width, height: rect.height || HEIGHT }))
  });
  const items = virtual.getVirtualItems();
  const total = virtual.getTotalSize();
  const read = (): void => { reading.current = readPlace(rows, virtual.getVirtualItemForOffset(box.current!.scrollTop)?.index ?? 0); };
  useLayoutEffect(() => {
    const was = reading.current;
    if (was && !follow) {
      const index = rowOf(rows, was.line);
      if (index !== (began.current ? was.index : 0)) virtual.scrollToIndex(index, { align: 'start' });
      reading.current = { ...was, index };
    } else {
      read();
    }
    began.current = true;
    // eslint-disable-next-line react-hooks/exhaustive-deps -- whenever rows change, and nothing else
  }, [rows, follow]);
  // `total` changes when rows in sight have been measured.
  useLayoutEffect(() => settle(), [rows, follow, total, settle]);
  const at = target === null ? -1 : rows.findIndex(row => row.id === target);
  useLayoutEffect(() => {
    if (at >= 0) virtual.scrollToIndex(at, { align: 'center' });
    // eslint-disable-next-line react-hooks/exhaustive-deps -- once for each jump
  }, [target, at >= 0]);
  const scrolled = (): void => {
    read();
    onScroll();
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

/** A virtualized table for tens of thousands of rows: only visible rows exist. Sortable, also by keyboard. */

import {
  CSSProperties, KeyboardEvent, memo, ReactElement, ReactNode, useCallback, useEffect, useId, useLayoutEffect, useMemo,
  useRef, useState
} from 'react';

import { sortRows, Sort, SortValue } from './sorting';

export interface Column<R> {
  key: string;
  title: string;
  /** Pixels; the columns with `grow` share what is left. */
  width: number;
  grow?: number;
  align?: 'left' | 'right';
  /** What it is sorted by, and shown if there is no `render`. Nothing (null) goes last in both directions. */
  value(row: R): SortValue;
  render?(row: R): ReactNode;
  /** The column cannot be sorted. */
  fixed?: boolean;
  /** First click sorts descending (metrics where more is better, dates). */
  descending?: boolean;
  /** The tooltip of the title. */
  about?: string;
}

export interface TableProps<R> {
  label: string;
  rows: readonly R[];
  columns: readonly Column<R>[];
  rowKey(row: R): string;
  /** Enter, or a click on the row. */
  onOpen?(row: R): void;
  /** The active row moved (arrow keys, hover is not followed). */
  onActive?(row: R | null): void;
  initialSort?: Sort | null;
  rowHeight?: number;
  /** A class of a row, such as for the best one. */
  rowClass?(row: R): string;
  /** Shown in place of rows. */
  empty?: ReactNode;
  /** Height of the whole table in CSS; by default it fills its parent, at most as high as its rows. */
  maxHeight?: string;
}

const HEADER = 30;
const OVERSCAN = 8;

export function Table<R>(props: TableProps<R>): ReactElement {
  const { rows, columns, rowKey, onOpen, onActive, rowHeight = 28 } = props;
  const [sort, setSort] = useState<Sort | null>(props.initialSort ?? null);
  const [active, setActive] = useState<string | null>(null);
  const scroller = useRef<HTMLDivElement>(null);
  const [range, setRange] = useState({ first: 0, last: 40 });
  const id = useId();

  const sorted = useMemo(() => {
    const column = columns.find(c => c.key === sort?.key);
    return column && sort ? sortRows(rows, row => column.value(row), sort.descending) : rows;
  }, [rows, columns, sort]);
  const keys = useMemo(() => sorted.map(rowKey), [sorted, rowKey]);
  const least = columns.reduce((sum, c) => sum + c.width, 0);

  const measure = useCallback(() => {
    const el = scroller.current;
    if (!el) return;
    const first = Math.max(0, Math.floor(el.scrollTop / rowHeight) - OVERSCAN);
    const shown = Math.ceil((el.clientHeight || 600) / rowHeight) + 2 * OVERSCAN;
    setRange(old => (old.first === first && old.last === first + shown ? old : { first, last: first + shown }));
  }, [rowHeight]);

  useLayoutEffect(measure, [measure, sorted.length]);
  useEffect(() => {
    if (!scroller.current || typeof ResizeObserver === 'undefined') return;
    const sized = new ResizeObserver(measure);
    sized.observe(scroller.current);
    return () => sized.disconnect();
  }, [measure]);

  const move = (index: number): void => {
    const to = Math.min(Math.max(index, 0), sorted.length - 1);
    const row = sorted[to];
    const el = scroller.current;
    if (row === undefined || !el) return;
    setActive(keys[to]!);
    onActive?.(row);
    const top = to * rowHeight;
    const inner = el.clientHeight - HEADER;
    if (top < el.scrollTop) el.scrollTop = top;
    else if (top + rowHeight > el.scrollTop + inner) el.scrollTop = top + rowHeight - inner;
    measure();
  };

  const onKey = (event: KeyboardEvent): void => {
    if (event.target !== scroller.current || event.ctrlKey || event.metaKey || event.altKey) return;
    const at = active === null ? -1 : keys.indexOf(active);
    const page = Math.max(Math.floor((scroller.current.clientHeight - HEADER) / rowHeight) - 1, 1);
    const steps: Record<string, number> = {
      ArrowDown: at + 1, ArrowUp: Math.max(at - 1, 0), PageDown: at + page, PageUp: at - page, Home: 0,
      End: sorted.length - 1
    };
    if (event.key in steps) {
      event.preventDefault();
      move(steps[event.key]!);
    } else if ((event.key === 'Enter' || event.key === ' ') && at >= 0 && onOpen) {
      event.preventDefault();
      onOpen(sorted[at]!);
    }
  };

  const toggle = (column: Column<R>): void => {
    const descending = sort?.key === column.key ? !sort.descending : Boolean(column.descending);
    setSort({ key: column.key, descending });
  };

  const slice = sorted.slice(range.first, range.last);
  const activeAt = active === null ? -1 : keys.indexOf(active, range.first);
  const shownActive = activeAt >= range.first && activeAt < range.last;
  return (
    <div
      ref={scroller} className="det-grid" role="grid" aria-label={props.label} tabIndex={0}
      aria-rowcount={sorted.length + 1} aria-colcount={columns.length}
      aria-activedescendant={shownActive ? `${id}-${activeAt}` : undefined}
      style={{ maxHeight: props.maxHeight ?? '100%' }}
      onScroll={measure} onKeyDown={onKey}
    >
      <div className="det-grid-head" role="row" aria-rowindex={1} style={{ minWidth: least }}>
        {columns.map(column => (
          <HeaderCell key={column.key} column={column} sort={sort} onToggle={() => toggle(column)} />
        ))}
      </div>
      <div
        role="rowgroup" className="det-grid-body" style={{ height: sorted.length * rowHeight, minWidth: least }}
      >
        {slice.map((row, i) => {
          const index = range.first + i;
          const key = keys[index]!;
          return (
            <Row
              key={key} row={row} id={`${id}-${index}`} index={index} columns={columns as readonly Column<never>[]}
              top={index * rowHeight} height={rowHeight} active={key === active}
              extra={props.rowClass?.(row) ?? ''} onOpen={onOpen as ((row: unknown) => void) | undefined}
            />
          );
        })}
      </div>
      {sorted.length === 0 && props.empty}
    </div>
  );
}

/** Rows are flex boxes of known widths: as a grid, each took three times as long to lay out while scrolling. */
function widthOf(column: { width: number; grow?: number }): CSSProperties {
  return { flex: `${column.grow ?? 0} 0 ${column.width}px` };
}

function HeaderCell<R>({ column, sort, onToggle }: {
  column: Column<R>; sort: Sort | null; onToggle: () => void;
}): ReactElement {
  const sorted = sort?.key === column.key;
  const direction = !sorted ? 'none' : sort.descending ? 'descending' : 'ascending';
  const className = `det-th${column.align === 'right' ? ' det-right' : ''}`;
  if (column.fixed) {
    return <div role="columnheader" className={className} style={widthOf(column)} title={column.about}>{column.title}</div>;
  }
  return (
    <div role="columnheader" className={className} style={widthOf(column)} aria-sort={direction}>
      <button type="button" className="det-sort" onClick={onToggle} title={column.about ?? `Sort by ${column.title}`}>
        <span className="det-ellipsis">{column.title}</span>
        <span aria-hidden="true" className="det-sort-sign">{sorted ? (sort.descending ? '▾' : '▴') : ''}</span>
      </button>
    </div>
  );
}

interface RowProps {
  row: unknown;
  id: string;
  index: number;
  columns: readonly Column<never>[];
  top: number;
  height: number;
  active: boolean;
  extra: string;
  onOpen?: (row: unknown) => void;
}

const Row = memo(function Row({ row, id, index, columns, top, height, active, extra, onOpen }: RowProps): ReactElement {
  const open = onOpen && ((event: { target: EventTarget }) => {
    if (!(event.target as Element).closest('button, a, input, label')) onOpen(row);
  });
  return (
    <div
      id={id} role="row" aria-rowindex={index + 2} aria-selected={active}
      className={`det-tr${active ? ' det-active' : ''}${onOpen ? ' det-opens' : ''} ${extra}`}
      style={{ height, lineHeight: `${height - 1}px`, transform: `translateY(${top}px)` }} onClick={open}
    >
      {columns.map(column => {
        const shown = column.render ? column.render(row as never) : column.value(row as never);
        return (
          <div
            key={column.key} role="gridcell" className={`det-td${column.align === 'right' ? ' det-right' : ''}`}
            style={widthOf(column)} title={typeof shown === 'string' && shown.length > 12 ? shown : undefined}
          >
            {shown ?? '–'}
          </div>
        );
      })}
    </div>
  );
});

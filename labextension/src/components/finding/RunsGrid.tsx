/** A table of tens of thousands of rows: only those in view exist. Titles sort, rows are selected, columns stay in place. */

import { useVirtualizer } from '@tanstack/react-virtual';
import { memo, ReactElement, Ref, useCallback, useEffect, useId, useImperativeHandle, useMemo, useRef, type CSSProperties, type MouseEvent, type UIEvent } from 'react';

import { useApp, type Place } from '../../state/context';
import { Menu } from '../common';
import { nameText } from '../common/text';
import { Go } from '../admin/parts';
import { ALWAYS, Cell, cellText, heatOf, heatRange, type Run, type RunColumn } from './columns';
import { fieldOf } from './request';

const ROW = 30;
const HEAD = 34;
const CHOICE = 36;
/** Rows before the end of what is loaded at which more is loaded. */
const AHEAD = 60;

export interface GridHandle {
  show(index: number): void;
  focus(): void;
}

export interface GridProps {
  label: string;
  rows: readonly Run[];
  columns: readonly RunColumn[];
  sort: readonly string[];
  pinned: readonly string[];
  heat: readonly string[];
  /** Columns in which no row has a value. */
  empty: readonly string[];
  selected: ReadonlySet<number>;
  active: number | null;
  more: boolean;
  busy: boolean;
  onSort(column: RunColumn, more: boolean): void;
  onPin(name: string): void;
  onHeat(name: string): void;
  onHide(name: string): void;
  onSelect(ids: readonly number[], on: boolean): void;
  onActive(index: number): void;
  onMore(): void;
  placeOf(row: Run): Place;
  handle?: Ref<GridHandle>;
}

interface PlacedColumn { column: RunColumn; pinned: boolean }

/** Pinned columns first. */
function laid(columns: readonly RunColumn[], pinned: readonly string[]): PlacedColumn[] {
  const stay = (one: RunColumn): boolean => one.name === ALWAYS || pinned.includes(one.name);
  return [true, false].flatMap(first => columns.filter(one => stay(one) === first).map(column => ({ column, pinned: first })));
}

/** Pinned columns follow what is scrolled sideways. */
function keepInView({ currentTarget: scroller }: UIEvent<HTMLElement>): void {
  const aside = `${scroller.scrollLeft}px`;
  if (scroller.style.getPropertyValue('--det-aside') === aside) return;
  scroller.style.setProperty('--det-aside', aside);
  scroller.toggleAttribute('data-aside', scroller.scrollLeft > 0);
}

export function RunsGrid(props: GridProps): ReactElement {
  const { rows, columns, selected, active, onMore, onSelect, onActive, more } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const id = useId();
  const places = useMemo(() => laid(columns, props.pinned), [columns, props.pinned]);
  const least = CHOICE + columns.reduce((sum, one) => sum + one.width, 0);
  const ranges = useMemo(
    () => new Map(props.heat.flatMap(name => {
      const column = columns.find(one => one.name === name);
      const range = column && heatRange(column, rows);
      return range ? [[name, range] as const] : [];
    })), [columns, props.heat, rows]
  );
  const virtual = useVirtualizer({
    count: rows.length, getScrollElement: () => scroller.current, estimateSize: () => ROW, overscan: 8, scrollMargin: 0, scrollPaddingStart: HEAD,
    getItemKey: index => rows[index]!.id, initialRect: { width: 1000, height: 600 }, useFlushSync: false
  });
  const items = virtual.getVirtualItems();
  const last = items.at(-1)?.index ?? 0;
  useEffect(() => {
    if (more && last >= rows.length - AHEAD) onMore();
  });
  useImperativeHandle(props.handle, () => ({
    show: index => virtual.scrollToIndex(index, { align: 'auto' }),
    focus: () => scroller.current?.focus({ preventScroll: true })
  }), [virtual]);

  const anchor = useRef<number | null>(null);
  const state = useRef({ rows, selected });
  state.current = { rows, selected };
  // The same functions for all rows and renders: a row is drawn again only when something of it changes.
  const choose = useCallback((index: number, range: boolean) => {
    const { rows: now, selected: chosen } = state.current;
    const on = !chosen.has(now[index]!.id);
    const from = range && anchor.current !== null ? Math.min(anchor.current, index) : index;
    const to = range && anchor.current !== null ? Math.max(anchor.current, index) : index;
    anchor.current = index;
    onSelect(now.slice(from, to + 1).map(row => row.id), on);
  }, [onSelect]);
  const all = rows.length > 0 && rows.every(row => selected.has(row.id));
  const some = !all && rows.some(row => selected.has(row.id));
  return (
    <div
      ref={scroller} className="det-grid det-runs-grid" role="grid" aria-label={props.label} tabIndex={0} aria-busy={props.busy}
      aria-rowcount={more ? -1 : rows.length + 1} aria-colcount={columns.length + 1} aria-multiselectable="true"
      onScroll={keepInView} aria-activedescendant={active !== null && items.some(item => item.index === active) ? `${id}-${active}` : undefined}
    >
      <div className="det-grid-head" role="row" aria-rowindex={1} style={{ minWidth: least, height: HEAD }}>
        <div role="columnheader" className="det-th det-run-choice det-run-pinned">
          <input
            type="checkbox" aria-label={all ? 'Select none' : `Select the ${rows.length} rows that are loaded`} checked={all} disabled={!rows.length}
            ref={box => { if (box) box.indeterminate = some; }} onChange={() => onSelect(rows.map(row => row.id), !all)}
          />
        </div>
        {places.map(({ column, pinned }) => <HeadCell key={column.name} column={column} stays={pinned} props={props} />)}
      </div>
      <div role="rowgroup" className="det-grid-body" style={{ height: virtual.getTotalSize(), minWidth: least }}>
        {items.map(item => {
          const row = rows[item.index];
          return row && (
            <Row
              key={item.key} id={`${id}-${item.index}`} row={row} index={item.index} top={item.start} places={places} ranges={ranges}
              selected={selected.has(row.id)} active={item.index === active} onChoose={choose} onActive={onActive} placeOf={props.placeOf}
            />
          );
        })}
      </div>
    </div>
  );
}

function widthOf(column: RunColumn, pinned: boolean): CSSProperties {
  return { flex: `${pinned ? 0 : 1} 0 ${column.width}px` };
}

function HeadCell({ column, stays, props }: { column: RunColumn; stays: boolean; props: GridProps }): ReactElement {
  const { sort, pinned, heat } = props;
  const at = sort.findIndex(key => fieldOf(key) === column.name);
  const direction = at < 0 ? 'none' : sort[at]!.startsWith('-') ? 'descending' : 'ascending';
  const title = nameText(column.name, 200);
  const gone = props.empty.includes(column.name);
  const onSort = (event: MouseEvent): void => props.onSort(column, event.shiftKey);
  const actions = (): { key: string; label: string; run(): void }[] => [
    { key: 'sort', label: 'Sort by it', run: () => props.onSort(column, false) },
    { key: 'then', label: 'Then sort by it (Shift and a click)', run: () => props.onSort(column, true) },
    ...(column.name === ALWAYS ? [] : [{ key: 'pin', label: pinned.includes(column.name) ? 'Do not keep in view' : 'Keep in view', run: () => props.onPin(column.name) }]),
    { key: 'heat', label: heat.includes(column.name) ? 'No colours' : 'Colour by value', run: () => props.onHeat(column.name) },
    ...(column.name === ALWAYS ? [] : [{ key: 'hide', label: 'Hide', run: () => props.onHide(column.name) }])
  ];
  return (
    <div
      role="columnheader" aria-sort={direction} className={`det-th${stays ? ' det-run-pinned' : ''}${column.right ? ' det-right' : ''}`}
      style={widthOf(column, stays)}
    >
      <button type="button" className="det-sort" onClick={onSort} title={gone ? `${title}: no row here has it` : `Sort by ${title}; with Shift after what it is sorted by`}>
        <span className={`det-ellipsis${gone ? ' det-run-gone' : ''}`}><bdi>{title}</bdi></span>
        {at >= 0 && <span aria-hidden="true" className="det-sort-sign">{direction === 'descending' ? '▾' : '▴'}{sort.length > 1 ? at + 1 : ''}</span>}
      </button>
      <Menu label={`Column ${title}`} actions={actions}><span aria-hidden="true">⋮</span></Menu>
    </div>
  );
}

interface RowProps {
  id: string;
  row: Run;
  index: number;
  top: number;
  places: readonly PlacedColumn[];
  ranges: ReadonlyMap<string, { low: number; high: number }>;
  selected: boolean;
  active: boolean;
  onChoose(index: number, range: boolean): void;
  onActive(index: number): void;
  placeOf(row: Run): Place;
}

const Row = memo(function Row({ id, row, index, top, places, ranges, selected, active, onChoose, onActive, placeOf }: RowProps): ReactElement {
  const { navigate } = useApp();
  return (
    <div
      id={id} role="row" aria-rowindex={index + 2} aria-selected={selected} data-active={active || undefined} className={`det-tr${active ? ' det-active' : ''}`}
      style={{ height: ROW, lineHeight: `${ROW - 1}px`, transform: `translateY(${top}px)` }}
      onClick={() => onActive(index)} onDoubleClick={() => navigate(placeOf(row))}
    >
      <div role="gridcell" className="det-td det-run-choice det-run-pinned">
        <input
          type="checkbox" tabIndex={-1} aria-label={`Select ${row.id}`} checked={selected} onChange={() => undefined}
          onClick={event => { event.stopPropagation(); onChoose(index, event.shiftKey); }}
        />
      </div>
      {places.map(({ column, pinned }) => (
        <div
          key={column.name} role="gridcell" className={`det-td${pinned ? ' det-run-pinned' : ''}${column.right ? ' det-right' : ''}`}
          style={{ ...widthOf(column, pinned), background: heatOf(column, row, ranges.get(column.name)) }}
        >
          {column.name === ALWAYS || column.name === 'name'
            ? <Go to={placeOf(row)}><bdi>{cellText(column, row)}</bdi></Go>
            : <Cell column={column} row={row} />}
        </div>
      ))}
    </div>
  );
});

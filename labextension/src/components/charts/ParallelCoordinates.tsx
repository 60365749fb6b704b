/** Parallel coordinates: lines on a canvas (ten thousand are fine), axes and brushes in SVG above it. */

import { KeyboardEvent, PointerEvent, ReactElement, useEffect, useMemo, useRef, useState } from 'react';

import { plural, significant } from '../common/format';
import { nameText } from '../common/text';
import { SaveFigure } from './SaveFigure';
import { lineElement, PAPER, type Pen, pictureOf, short, SvgPen, textElement, type Picture as Saved } from './svg';
import { Axis, Brush, Item, axesOf, brushText, colourOf, moved, place, ticks, within, type Scale } from './parallel';

export interface ParallelProps {
  items: readonly Item[];
  /** Names of the axes in order; those that do not vary are left out. */
  names: readonly string[];
  /** What is known of the axes by their names. */
  scales?: ReadonlyMap<string, Scale>;
  /** The axis that colours, always shown last. */
  metric: string;
  smallerIsBetter: boolean;
  onPick: (trial: number) => void;
}

const LEAST_HEIGHT = 320;
const MOST_HEIGHT = 560;
const TOP = 44;
const BOTTOM = 16;
const SIDE = 58;
const LEAST_GAP = 116;
/** Pixels of a character in a name and in a tick's label, and what part of the way to the axis before a label may take. */
const NAME_CHAR = 6.8;
const TICK_CHAR = 6.1;
const TICK_SHARE = 0.5;
const MOST_LABEL = 280;
const HANDLE = 13;
/** A brush made by a key takes up so much of its axis. */
const KEY_BRUSH = 0.25;

export function ParallelCoordinates(props: ParallelProps): ReactElement {
  const { items, names, scales, metric, smallerIsBetter, onPick } = props;
  const host = useRef<HTMLDivElement>(null);
  const [{ wide, height }, setSize] = useState({ wide: 700, height: LEAST_HEIGHT });
  const [brushes, setBrushes] = useState<ReadonlyMap<string, Brush>>(new Map());
  const [lit, setLit] = useState<number | null>(null);
  const axes = useMemo(
    () => axesOf(items, [...names.filter(name => name !== metric), metric], [metric], scales), [items, names, scales, metric]
  );
  useEffect(() => {
    const measure = (): void => {
      const wanted = Math.round(window.innerHeight - 320);
      setSize({ wide: host.current?.clientWidth || 700, height: Math.min(MOST_HEIGHT, Math.max(LEAST_HEIGHT, wanted)) });
    };
    const sized = new ResizeObserver(measure);
    sized.observe(host.current!);
    measure();
    return () => sized.disconnect();
  }, []);
  const width = Math.max(wide, 2 * SIDE + (axes.length - 1) * LEAST_GAP);
  const xs = useMemo(
    () => axes.map((_, i) => (axes.length > 1 ? SIDE + (i * (width - 2 * SIDE)) / (axes.length - 1) : width / 2)), [axes, width]
  );
  const chosen = useMemo(() => items.filter(item => within(item, axes, brushes)), [items, axes, brushes]);
  const set = (name: string, brush: Brush | null): void => {
    const next = new Map(brushes);
    if (brush && brush[1] - brush[0] > 0.005) next.set(name, brush);
    else next.delete(name);
    setBrushes(next);
  };
  const picture = { items, chosen, axes, xs, width, height, metric, smallerIsBetter, lit, brushed: brushes.size > 0 };
  const point = (event: PointerEvent<SVGSVGElement>): void => {
    const box = event.currentTarget.getBoundingClientRect();
    setLit(nearestItem(chosen, axes, xs, height, event.clientX - box.left, event.clientY - box.top));
  };
  return (
    <div className="det-parallel">
      <div className="det-curve-foot">
        <p className="det-curve-hint" role="status">
          {brushes.size ? `${chosen.length} of ${items.length} trials inside the brushes. ` : `${plural(items.length, 'trial')}. Drag along an axis to keep a part of it. `}
          {lit !== null && litText(items.find(item => item.id === lit), axes)}
          {brushes.size > 0 && <button type="button" className="det-link" onClick={() => setBrushes(new Map())}>Clear brushes</button>}
        </p>
        <SaveFigure name={`parallel coordinates of ${metric}`} picture={() => saved(picture)} />
      </div>
      <div ref={host} className="det-parallel-scroll" tabIndex={0} role="group" aria-label={`Parallel coordinates of ${axes.length} axes`}>
        <div style={{ width, height, position: 'relative' }}>
          <Lines {...picture} />
          <svg
            width={width} height={height} className="det-parallel-axes"
            onPointerMove={point} onPointerLeave={() => setLit(null)}
          >
            {axes.map((axis, i) => (
              <AxisMark
                key={axis.name} axis={axis} x={xs[i]!} gap={axes.length > 1 ? xs[1]! - xs[0]! : LEAST_GAP} first={i === 0} height={height} brush={brushes.get(axis.name) ?? null} metric={axis.name === metric}
                onBrush={brush => set(axis.name, brush)} onMiss={() => lit !== null && onPick(lit)}
              />
            ))}
          </svg>
        </div>
      </div>
    </div>
  );
}

interface Picture {
  items: readonly Item[];
  chosen: readonly Item[];
  axes: readonly Axis[];
  xs: readonly number[];
  width: number;
  height: number;
  metric: string;
  smallerIsBetter: boolean;
  lit: number | null;
  brushed: boolean;
}

function Lines(picture: Picture): ReactElement {
  const canvas = useRef<HTMLCanvasElement>(null);
  const top = useRef<HTMLCanvasElement>(null);
  const { items, chosen, axes, xs, width, height, metric, smallerIsBetter, brushed, lit } = picture;
  useEffect(() => {
    const context = prepared(canvas.current!, width, height);
    if (!context) return;
    drawItems(context, { items, chosen, axes, xs, height, metric, smallerIsBetter, brushed });
  }, [items, chosen, axes, xs, width, height, metric, smallerIsBetter, brushed]);
  useEffect(() => {
    const context = prepared(top.current!, width, height);
    const item = lit === null ? undefined : chosen.find(one => one.id === lit);
    if (context && item) strokeItem(context, item, axes, xs, height, colourOf(goodness(item, axes, metric, smallerIsBetter)), 3.4);
  }, [lit, chosen, axes, xs, width, height, metric, smallerIsBetter]);
  return (
    <>
      <canvas ref={canvas} className="det-parallel-lines" style={{ opacity: lit === null ? 1 : 0.3 }} aria-hidden="true" />
      <canvas ref={top} className="det-parallel-lines" aria-hidden="true" />
    </>
  );
}

function drawItems(pen: Pen, { items, chosen, axes, xs, height, metric, smallerIsBetter, brushed }: Omit<Picture, 'lit' | 'width'>): void {
  if (brushed) for (const item of items) strokeItem(pen, item, axes, xs, height, 'rgba(140,150,160,0.10)', 1);
  pen.globalAlpha = Math.min(0.9, Math.max(0.12, 60 / Math.max(chosen.length, 1)));
  const ranked = [...chosen].sort((a, b) => (goodness(a, axes, metric, smallerIsBetter) ?? -1) - (goodness(b, axes, metric, smallerIsBetter) ?? -1));
  for (const item of ranked) strokeItem(pen, item, axes, xs, height, colourOf(goodness(item, axes, metric, smallerIsBetter)), 1.4);
  pen.globalAlpha = 1;
}

/** What is shown now, for a file. */
function saved(picture: Picture): Saved {
  const { axes, xs, width, height } = picture;
  const pen = new SvgPen();
  drawItems(pen, picture);
  const marks = axes.flatMap((axis, i) => [
    textElement(xs[i]!, 14, nameText(axis.name, 60), { anchor: 'middle', size: 12, fill: PAPER.ink, bold: axis.name === picture.metric }),
    textElement(xs[i]!, 29, axis.kind === 'log' ? 'log' : '', { anchor: 'middle', size: 10 }),
    lineElement(xs[i]!, yOf(0, height), xs[i]!, yOf(1, height)),
    ...ticks(axis).flatMap(tick => {
      const text = nameText(tick.text, 24);
      const [right, y, wide] = [xs[i]! - 5, yOf(tick.at, height), text.length * TICK_CHAR + 4];
      return [
        `<rect x="${short(right - wide)}" y="${short(y - 7)}" width="${short(wide)}" height="14" rx="2" fill="${PAPER.ground}" fill-opacity="0.88"/>`,
        textElement(right - 2, y + 3.5, text, { anchor: 'end', size: 10.5 })
      ];
    })
  ]);
  return pictureOf(width, height, [...pen.elements, ...marks]);
}

function prepared(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D | null {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext('2d');
  context?.scale(ratio, ratio);
  return context;
}

function goodness(item: Item, axes: readonly Axis[], metric: string, smallerIsBetter: boolean): number | null {
  const axis = axes.find(one => one.name === metric);
  const at = axis ? place(axis, item.values[metric] ?? null) : null;
  return at === null ? null : smallerIsBetter ? 1 - at : at;
}

function yOf(at: number, height: number): number {
  return height - BOTTOM - at * (height - TOP - BOTTOM);
}

function strokeItem(
  context: Pen, item: Item, axes: readonly Axis[], xs: readonly number[], height: number, colour: string, width: number
): void {
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.beginPath();
  let open = false;
  axes.forEach((axis, i) => {
    const at = place(axis, item.values[axis.name] ?? null);
    if (at === null) open = false;
    else if (open) context.lineTo(xs[i]!, yOf(at, height));
    else {
      context.moveTo(xs[i]!, yOf(at, height));
      open = true;
    }
  });
  context.stroke();
}

function nearestItem(items: readonly Item[], axes: readonly Axis[], xs: readonly number[], height: number, px: number, py: number): number | null {
  const right = xs.findIndex(x => x >= px);
  if (right < 1) return null;
  const share = (px - xs[right - 1]!) / (xs[right]! - xs[right - 1]!);
  let [found, least]: [number | null, number] = [null, 9];
  for (const item of items) {
    const a = place(axes[right - 1]!, item.values[axes[right - 1]!.name] ?? null);
    const b = place(axes[right]!, item.values[axes[right]!.name] ?? null);
    if (a === null || b === null) continue;
    const distance = Math.abs(yOf(a, height) + share * (yOf(b, height) - yOf(a, height)) - py);
    if (distance < least) [found, least] = [item.id, distance];
  }
  return found;
}

function litText(item: Item | undefined, axes: readonly Axis[]): string {
  if (!item) return '';
  const parts = axes.map(axis => {
    const value = item.values[axis.name] ?? null;
    return `${nameText(axis.name, 40)} ${value === null ? '–' : typeof value === 'number' ? significant(value, false) : nameText(value, 40)}`;
  });
  return `${parts.join(', ')}. `;
}

interface MarkProps {
  axis: Axis;
  x: number;
  /** Pixels between two axes. */
  gap: number;
  first: boolean;
  height: number;
  brush: Brush | null;
  metric: boolean;
  onBrush: (brush: Brush | null) => void;
  onMiss: () => void;
}

function AxisMark({ axis, x, gap, first, height, brush, metric, onBrush, onMiss }: MarkProps): ReactElement {
  const from = useRef<number | null>(null);
  const y = (at: number): number => yOf(at, height);
  const atOf = (event: PointerEvent<SVGRectElement>): number => {
    const box = event.currentTarget.ownerSVGElement!.getBoundingClientRect();
    return Math.min(1, Math.max(0, (height - BOTTOM - (event.clientY - box.top)) / (height - TOP - BOTTOM)));
  };
  const down = (event: PointerEvent<SVGRectElement>): void => {
    from.current = atOf(event);
    event.currentTarget.setPointerCapture(event.pointerId);
  };
  const move = (event: PointerEvent<SVGRectElement>): void => {
    if (from.current === null) return;
    const at = atOf(event);
    if (Math.abs(at - from.current) > 0.02) onBrush([Math.min(at, from.current), Math.max(at, from.current)]);
  };
  const up = (event: PointerEvent<SVGRectElement>): void => {
    if (from.current !== null && Math.abs(atOf(event) - from.current) <= 0.02) {
      if (brush) onBrush(null);
      else onMiss();
    }
    from.current = null;
  };
  const keys = (event: KeyboardEvent): void => {
    const next = brushKey(event, brush);
    if (next === undefined) return;
    event.preventDefault();
    onBrush(next);
  };
  const title = nameText(axis.name, 60);
  const most = Math.max(16, Math.floor(Math.min(gap - 8, MOST_LABEL) / NAME_CHAR));
  const label = title.length > most ? `…${title.slice(1 - most)}` : title;
  // The first name begins at the edge if half of it would not fit before its axis.
  const edge = first && label.length * NAME_CHAR > 2 * x - 8;
  const ticked = first ? 8 : Math.max(8, Math.floor((Math.min(gap, MOST_LABEL) * TICK_SHARE) / TICK_CHAR));
  const words = brush ? brushText(axis, brush) : 'everything';
  return (
    <g className={metric ? 'det-axis det-axis-metric' : 'det-axis'}>
      <title>{`${title}${axis.kind === 'log' ? ' (logarithmic)' : ''}: ${words}`}</title>
      <text x={edge ? 2 : x} y={14} textAnchor={edge ? 'start' : 'middle'} className="det-axis-name">{label}</text>
      <text x={x} y={29} textAnchor="middle" className="det-axis-kind">{brush ? nameText(words, 20) : axis.kind === 'log' ? 'log' : ''}</text>
      <line x1={x} x2={x} y1={y(0)} y2={y(1)} />
      {ticks(axis).map(tick => {
        const text = nameText(tick.text, ticked);
        const wide = text.length * TICK_CHAR + 4;
        return (
          <g key={tick.text + tick.at}>
            <title>{nameText(tick.text)}</title>
            <line x1={x - 4} x2={x} y1={y(tick.at)} y2={y(tick.at)} />
            <rect className="det-axis-ground" x={x - 5 - wide} width={wide} y={y(tick.at) - 7} height={14} rx={2} />
            <text x={x - 7} y={y(tick.at) + 3.5} textAnchor="end" className="det-axis-tick">{text}</text>
          </g>
        );
      })}
      {brush && (
        <rect className="det-brush" x={x - 6} width={12} y={y(brush[1])} height={Math.max(2, y(brush[0]) - y(brush[1]))} />
      )}
      <rect
        className="det-axis-handle" x={x - HANDLE} width={2 * HANDLE} y={TOP - 6} height={height - TOP - BOTTOM + 12}
        tabIndex={0} role="slider" aria-orientation="vertical" aria-label={`Range of ${title}`}
        aria-valuemin={0} aria-valuemax={100} aria-valuenow={Math.round(100 * (brush ? (brush[0] + brush[1]) / 2 : 0.5))}
        aria-valuetext={words}
        onPointerDown={down} onPointerMove={move} onPointerUp={up} onKeyDown={keys}
      />
    </g>
  );
}

/** What a key makes of a brush; undefined if it is not for us. */
export function brushKey(event: { key: string; shiftKey: boolean }, brush: Brush | null): Brush | null | undefined {
  if (event.key === 'Escape' || event.key === 'Delete') return null;
  const step = event.key === 'ArrowUp' ? 0.05 : event.key === 'ArrowDown' ? -0.05 : 0;
  if (!step) return undefined;
  if (!brush) return step > 0 ? [1 - KEY_BRUSH, 1] : [0, KEY_BRUSH];
  if (!event.shiftKey) return moved(brush, step);
  return [Math.max(0, brush[0] - step / 2), Math.min(1, brush[1] + step / 2)];
}

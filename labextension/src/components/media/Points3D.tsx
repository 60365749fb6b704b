/** Points in space on a canvas, turned by the pointer or by the arrow keys. */

import { KeyboardEvent, PointerEvent, ReactElement, useEffect, useMemo, useRef, useState } from 'react';

import { plural } from '../common';
import type { PointsData } from './shapes';

interface View {
  /** Around the upright axis, and towards the reader, in radians. */
  turn: number;
  tilt: number;
  zoom: number;
}

const FIRST: View = { turn: 0.6, tilt: 0.4, zoom: 1 };
const HEIGHT = 320;
const STEP = 0.12;

export function Points3D({ data, name }: { data: PointsData; name: string }): ReactElement {
  const canvas = useRef<HTMLCanvasElement>(null);
  const from = useRef<{ x: number; y: number } | null>(null);
  const [view, setView] = useState(FIRST);
  const placed = useMemo(() => centred(data.points), [data]);
  useEffect(() => {
    const element = canvas.current;
    const context = element?.getContext('2d');
    if (!element || !context) return;
    const ratio = window.devicePixelRatio || 1;
    const width = element.clientWidth || 320;
    element.width = Math.min(4096, Math.round(width * ratio));
    element.height = Math.round(HEIGHT * ratio);
    draw(context, placed, data.colours, view, element.width, element.height, getComputedStyle(element).color);
  }, [placed, data, view]);
  const turn = (x: number, y: number): void => setView(old => ({ ...old, turn: old.turn + x, tilt: Math.max(-1.5, Math.min(1.5, old.tilt + y)) }));
  const zoom = (by: number): void => setView(old => ({ ...old, zoom: Math.max(0.2, Math.min(20, old.zoom * by)) }));
  const onKey = (event: KeyboardEvent): void => {
    const act = { ArrowLeft: () => turn(-STEP, 0), ArrowRight: () => turn(STEP, 0), ArrowUp: () => turn(0, -STEP), ArrowDown: () => turn(0, STEP), '+': () => zoom(1.2), '-': () => zoom(1 / 1.2), Home: () => setView(FIRST) }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  };
  const onMove = (event: PointerEvent): void => {
    if (!from.current) return;
    turn((event.clientX - from.current.x) / 100, (event.clientY - from.current.y) / 100);
    from.current = { x: event.clientX, y: event.clientY };
  };
  return (
    <div className="det-media-points">
      <canvas
        ref={canvas} tabIndex={0} role="img" style={{ height: HEIGHT }}
        aria-label={`${name}: ${plural(data.points.length, 'point')} in space. Arrow keys turn, plus and minus zoom, Home begins anew.`}
        onKeyDown={onKey} onPointerMove={onMove}
        onPointerDown={event => { from.current = { x: event.clientX, y: event.clientY }; event.currentTarget.setPointerCapture?.(event.pointerId); }}
        onPointerUp={() => { from.current = null; }} onPointerCancel={() => { from.current = null; }}
      />
      {data.leftOut > 0 && <p className="det-soft">{plural(data.leftOut, 'point')} more {data.leftOut === 1 ? 'was' : 'were'} not logged.</p>}
    </div>
  );
}

/** Points around 0, the farthest coordinate at 1. */
function centred(points: PointsData['points']): Float64Array {
  const low = [Infinity, Infinity, Infinity];
  const high = [-Infinity, -Infinity, -Infinity];
  for (const point of points) {
    for (let axis = 0; axis < 3; axis++) {
      low[axis] = Math.min(low[axis]!, point[axis]!);
      high[axis] = Math.max(high[axis]!, point[axis]!);
    }
  }
  const half = Math.max(...high.map((one, axis) => (one - low[axis]!) / 2)) || 1;
  const found = new Float64Array(points.length * 3);
  points.forEach((point, i) => {
    for (let axis = 0; axis < 3; axis++) found[3 * i + axis] = (point[axis]! - (low[axis]! + high[axis]!) / 2) / half;
  });
  return found;
}

function draw(
  context: CanvasRenderingContext2D, points: Float64Array, colours: PointsData['colours'], view: View, width: number, height: number, ink: string
): void {
  const [sin, cos, down, up] = [Math.sin(view.turn), Math.cos(view.turn), Math.sin(view.tilt), Math.cos(view.tilt)];
  const scale = 0.3 * Math.min(width, height) * view.zoom;
  const count = points.length / 3;
  const size = Math.max(1, Math.min(5, Math.round(Math.sqrt(40_000 / count)))) * (window.devicePixelRatio || 1);
  const depth = new Float64Array(count);
  const at = new Float64Array(2 * count);
  for (let i = 0; i < count; i++) {
    const [x, y, z] = [points[3 * i]!, points[3 * i + 1]!, points[3 * i + 2]!];
    const across = x * cos + y * sin;
    const away = -x * sin + y * cos;
    at[2 * i] = width / 2 + scale * across;
    at[2 * i + 1] = height / 2 - scale * (z * up - away * down);
    depth[i] = z * down + away * up;
  }
  const order = Array.from({ length: count }, (_, i) => i).sort((a, b) => depth[b]! - depth[a]!);
  context.clearRect(0, 0, width, height);
  context.fillStyle = ink;
  for (const i of order) {
    const colour = colours[i];
    if (colour) context.fillStyle = `rgb(${colour.map(Math.round).join(',')})`;
    else context.globalAlpha = 0.35 + 0.6 * Math.max(0, Math.min(1, (1 - depth[i]!) / 2));
    context.fillRect(at[2 * i]! - size / 2, at[2 * i + 1]! - size / 2, size, size);
  }
  context.globalAlpha = 1;
}

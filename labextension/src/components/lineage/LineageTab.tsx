/** The lineage graph: drawn in layers from what it was made of to the version, and the same as a list. */

import { ReactElement, useEffect, useMemo, useRef, useState } from 'react';

import { useApp } from '../../state/context';
import type { LineageEdge, LineageGraph, LineageNode } from '../../state/wire';
import { Go } from '../admin/parts';
import { EmptyState, ErrorBanner, Loading, plural, useLoaded } from '../common';
import { nameText } from '../common/text';
import { layersOf } from './layered';
import { placeOf } from './places';

/** Nodes that are drawn; the list has more of them. */
const MOST_DRAWN = 120;
const MOST_LISTED = 1000;
/** Below this width (pixels) the layers lie below one another. */
const NARROW = 620;
const BOX = { width: 168, height: 46 };
const GAP = { layer: 56, least: 26, node: 14, row: 40 };
const MARGIN = 2;

/** `path`: of the graph, below the API. */
export function LineageTab({ path }: { path: string }): ReactElement {
  const { api } = useApp();
  const { data, error, reload } = useLoaded(path, signal => api.get<LineageGraph>(path, signal));
  if (error && !data) return <ErrorBanner error={error} what="Lineage" onRetry={reload} />;
  if (!data) return <Loading what="Loading the lineage" />;
  if (!data.nodes.length) return <EmptyState title="No lineage was recorded." />;
  return (
    <div className="det-lineage">
      <Drawing graph={data} />
      <LineageList graph={data} />
    </div>
  );
}

interface Box {
  node: LineageNode;
  x: number;
  y: number;
}

interface Drawn {
  boxes: Map<string, Box>;
  /** Heights at which a long edge passes the layers between, by the edge's number. */
  passes: Map<number, { x: number; y: number }[]>;
  width: number;
  height: number;
  down: boolean;
}

/** Boxes, ways and their frame, in pixels. */
export function drawingOf(graph: LineageGraph, width: number): Drawn {
  const drawn = graph.nodes.slice(0, MOST_DRAWN);
  const layout = layersOf(drawn.map(node => node.id), graph.edges);
  const nodes = new Map(drawn.map(node => [node.id, node]));
  const down = width < NARROW;
  const boxes = new Map<string, Box>();
  if (down) {
    // As many boxes of a layer in a row as fit.
    const fits = Math.max(1, Math.floor((width + GAP.node) / (BOX.width + GAP.node)));
    let y = MARGIN;
    for (const layer of layout.layers.map(all => all.filter(one => nodes.has(one.id)))) {
      layer.forEach(({ id }, at) => {
        const row = Math.floor(at / fits);
        const inRow = Math.min(fits, layer.length - row * fits);
        const left = (width - inRow * BOX.width - (inRow - 1) * GAP.node) / 2;
        boxes.set(id, { node: nodes.get(id)!, x: Math.max(MARGIN, left) + (at % fits) * (BOX.width + GAP.node), y: y + row * (BOX.height + GAP.node) });
      });
      y += Math.ceil(layer.length / fits) * (BOX.height + GAP.node) - GAP.node + GAP.row;
    }
    return { boxes, passes: new Map(), width: Math.max(width, BOX.width + 2 * MARGIN), height: y - GAP.row + MARGIN, down };
  }
  const { layers } = layout;
  const room = (width - 2 * MARGIN - layers.length * BOX.width) / Math.max(1, layers.length - 1);
  const gap = Math.min(GAP.layer, Math.max(GAP.least, Math.floor(room)));
  const most = Math.max(...layers.map(layer => layer.length));
  const height = most * (BOX.height + GAP.node) - GAP.node + 2 * MARGIN;
  const places = new Map<string, { x: number; y: number }>();
  layers.forEach((layer, l) => {
    const top = (height - layer.length * (BOX.height + GAP.node) + GAP.node) / 2;
    for (const { id, at } of layer) places.set(id, { x: MARGIN + l * (BOX.width + gap), y: top + at * (BOX.height + GAP.node) });
  });
  for (const node of drawn) boxes.set(node.id, { node, ...places.get(node.id)! });
  const passes = new Map([...layout.passes].map(([edge, way]) => [edge, way.map(id => places.get(id)!)]));
  return { boxes, passes, width: layers.length * (BOX.width + gap) - gap + 2 * MARGIN, height, down };
}

function Drawing({ graph }: { graph: LineageGraph }): ReactElement {
  const { navigate } = useApp();
  const frame = useRef<HTMLDivElement>(null);
  const width = useWidth(frame);
  const drawing = useMemo(() => drawingOf(graph, width), [graph, width]);
  const left = graph.nodes.length - drawing.boxes.size;
  return (
    <figure className="det-lineage-figure">
      <div ref={frame} className="det-x-scroll" tabIndex={0} role="group" aria-label="Drawing of the lineage; the list below says the same">
        <svg width={drawing.width} height={drawing.height} role="img" aria-label={`Lineage graph of ${plural(graph.nodes.length, 'node')}`}>
          {graph.edges.map((edge, i) => <Edge key={i} edge={edge} at={i} drawing={drawing} />)}
          {[...drawing.boxes.values()].map(({ node, x, y }) => {
            const place = placeOf(node);
            return (
              <g key={node.id} transform={`translate(${x} ${y})`} className={`det-node${place ? ' det-opens' : ''}`} data-kind={kindOf(node)} onClick={place ? () => navigate(place) : undefined}>
                <title>{`${kindOf(node)} ${nameText(labelOf(node), 200)}${node.detail ? `: ${nameText(node.detail, 300)}` : ''}`}</title>
                <rect width={BOX.width} height={BOX.height} rx="5" />
                <svg width={BOX.width - 6} height={BOX.height}>
                  <text x="10" y="18" className="det-node-kind">{kindOf(node)}</text>
                  <text x="10" y="35" className="det-node-label">{nameText(shownName(node), 20)}</text>
                </svg>
              </g>
            );
          })}
        </svg>
      </div>
      <figcaption className="det-soft">
        {drawing.down ? 'From top to bottom' : 'From left to right'}: what it was made of and by.{left > 0 && ` ${plural(left, 'node')} more ${left === 1 ? 'is' : 'are'} not drawn.`}
      </figcaption>
    </figure>
  );
}

/** From what something was made of to what was made. */
function Edge({ edge, at, drawing }: { edge: LineageEdge; at: number; drawing: Drawn }): ReactElement | null {
  const from = drawing.boxes.get(edge.target);
  const to = drawing.boxes.get(edge.source);
  if (!from || !to || from === to) return null;
  const [x1, y1, x2, y2] = drawing.down
    ? [from.x + BOX.width / 2, from.y + BOX.height, to.x + BOX.width / 2, to.y]
    : [from.x + BOX.width, from.y + BOX.height / 2, to.x, to.y + BOX.height / 2];
  const points: [number, number][] = [[x1, y1]];
  for (const { x, y } of drawing.passes.get(at) ?? []) points.push([x, y + BOX.height / 2], [x + BOX.width, y + BOX.height / 2]);
  points.push([x2, y2]);
  const tip = drawing.down ? `M${x2 - 4} ${y2 - 7}L${x2} ${y2}L${x2 + 4} ${y2 - 7}` : `M${x2 - 7} ${y2 - 4}L${x2} ${y2}L${x2 - 7} ${y2 + 4}`;
  return (
    <g className="det-edge">
      <path d={curve(points, drawing.down)} />
      <path d={tip} />
      {edge.label && <title>{nameText(edge.label, 200)}</title>}
    </g>
  );
}

/** A line through points that leaves and reaches each along the layers' direction. */
function curve(points: readonly [number, number][], down: boolean): string {
  return points.map(([x, y], i) => {
    const [px, py] = points[i - 1] ?? [x, y];
    if (i === 0) return `M${x} ${y}`;
    return down ? `C${px} ${(py + y) / 2} ${x} ${(py + y) / 2} ${x} ${y}` : `C${(px + x) / 2} ${py} ${(px + x) / 2} ${y} ${x} ${y}`;
  }).join('');
}

function LineageList({ graph }: { graph: LineageGraph }): ReactElement {
  const nodes = new Map(graph.nodes.map(node => [node.id, node]));
  const inputs = new Map<string, LineageEdge[]>();
  for (const edge of graph.edges) inputs.set(edge.source, [...(inputs.get(edge.source) ?? []), edge]);
  return (
    <ul className="det-lineage-list" aria-label="Lineage">
      {graph.nodes.slice(0, MOST_LISTED).map(node => (
        <li key={node.id}>
          <span className="det-lineage-kind det-soft">{kindOf(node)}</span>
          <span>
            <NodeName node={node} />
            {node.detail && <span className="det-soft"> {nameText(node.detail, 300)}</span>}
            {(inputs.get(node.id) ?? []).map((edge, i) => {
              const input = nodes.get(edge.target);
              return input && <span key={i} className="det-lineage-from"> ← {edge.label && `${nameText(edge.label, 60)} `}{kindOf(input)} <bdi>{nameText(labelOf(input), 60)}</bdi></span>;
            })}
          </span>
        </li>
      ))}
      {graph.nodes.length > MOST_LISTED && <li className="det-soft">and {graph.nodes.length - MOST_LISTED} more</li>}
    </ul>
  );
}

function NodeName({ node }: { node: LineageNode }): ReactElement {
  const place = placeOf(node);
  const name = <bdi>{nameText(labelOf(node), 120)}</bdi>;
  return place ? <Go to={place}>{name}</Go> : name;
}

/** The label without the kind, which is said beside it. */
function labelOf(node: LineageNode): string {
  return node.label.startsWith(`${node.kind} `) ? node.label.slice(node.kind.length + 1) : node.label;
}

/** What stands in a box: of an experiment also its name. */
function shownName(node: LineageNode): string {
  if (node.kind === 'run') return node.detail || labelOf(node).slice(0, 12);
  if (node.kind === 'experiment' && node.detail) return `${labelOf(node)} · ${node.detail}`;
  return node.kind === 'checkpoint' ? labelOf(node).slice(0, 13) : node.kind === 'code' ? labelOf(node).slice(0, 17) : labelOf(node);
}

const KINDS = new Set(['version', 'checkpoint', 'trial', 'experiment', 'code', 'data', 'run', 'artifact']);

function kindOf(node: LineageNode): string {
  return KINDS.has(node.kind) ? node.kind : nameText(node.kind, 20);
}

function useWidth(of: { readonly current: HTMLElement | null }): number {
  const [width, setWidth] = useState(900);
  useEffect(() => {
    const el = of.current;
    if (!el) return;
    const measure = (): void => { if (el.clientWidth) setWidth(el.clientWidth); };
    measure();
    const sized = new ResizeObserver(measure);
    sized.observe(el);
    return () => sized.disconnect();
  }, [of]);
  return width;
}

/** The lineage graph: drawn in layers from what it was made of to the version, and the same as a list. */

import { ReactElement, useEffect, useMemo, useRef, useState } from 'react';

import { useApp } from '../../state/context';
import type { LineageEdge, LineageGraph, LineageNode, VersionView } from '../../state/wire';
import { Go } from '../admin/parts';
import { EmptyState, ErrorBanner, Loading, plural, useLoaded } from '../common';
import { nameText } from '../common/text';
import { layersOf } from './layered';
import { placeOf } from './model';
import { versionPath } from './paths';

/** Nodes that are drawn; the list has more of them. */
const MOST_DRAWN = 120;
const MOST_LISTED = 1000;
/** Below this width (pixels) the layers lie below one another. */
const NARROW = 620;
const BOX = { width: 168, height: 46 };
const GAP = { layer: 56, node: 14, row: 40 };
const MARGIN = 2;

export function LineageTab({ version }: { version: VersionView }): ReactElement {
  const { api } = useApp();
  const path = `${versionPath(version.model, version.version)}/lineage`;
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

/** Boxes and their frame, in pixels. */
export function drawingOf(graph: LineageGraph, width: number): { boxes: Map<string, Box>; width: number; height: number; down: boolean } {
  const drawn = graph.nodes.slice(0, MOST_DRAWN);
  const layers = layersOf(drawn.map(node => node.id), graph.edges);
  const nodes = new Map(drawn.map(node => [node.id, node]));
  const down = width < NARROW;
  const most = Math.max(...layers.map(layer => layer.length));
  const boxes = new Map<string, Box>();
  if (down) {
    // As many boxes of a layer in a row as fit.
    const fits = Math.max(1, Math.floor((width + GAP.node) / (BOX.width + GAP.node)));
    let y = MARGIN;
    for (const layer of layers) {
      layer.forEach(({ id, at }) => {
        const row = Math.floor(at / fits);
        const inRow = Math.min(fits, layer.length - row * fits);
        const left = (width - inRow * BOX.width - (inRow - 1) * GAP.node) / 2;
        boxes.set(id, { node: nodes.get(id)!, x: Math.max(MARGIN, left) + (at % fits) * (BOX.width + GAP.node), y: y + row * (BOX.height + GAP.node) });
      });
      y += Math.ceil(layer.length / fits) * (BOX.height + GAP.node) - GAP.node + GAP.row;
    }
    return { boxes, width: Math.max(width, BOX.width + 2 * MARGIN), height: y - GAP.row + MARGIN, down };
  }
  const height = most * (BOX.height + GAP.node) - GAP.node + 2 * MARGIN;
  layers.forEach((layer, l) => {
    const top = (height - layer.length * (BOX.height + GAP.node) + GAP.node) / 2;
    for (const { id, at } of layer) boxes.set(id, { node: nodes.get(id)!, x: MARGIN + l * (BOX.width + GAP.layer), y: top + at * (BOX.height + GAP.node) });
  });
  return { boxes, width: layers.length * (BOX.width + GAP.layer) - GAP.layer + 2 * MARGIN, height, down };
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
          {graph.edges.map((edge, i) => <Edge key={i} edge={edge} drawing={drawing} />)}
          {[...drawing.boxes.values()].map(({ node, x, y }) => {
            const place = placeOf(node);
            return (
              <g key={node.id} transform={`translate(${x} ${y})`} className={`det-node${place ? ' det-opens' : ''}`} data-kind={kindOf(node)} onClick={place ? () => navigate(place) : undefined}>
                <title>{`${kindOf(node)} ${nameText(node.label, 200)}${node.detail ? `: ${nameText(node.detail, 300)}` : ''}`}</title>
                <rect width={BOX.width} height={BOX.height} rx="5" />
                <text x="10" y="18" className="det-node-kind">{kindOf(node)}</text>
                <text x="10" y="35" className="det-node-label">{nameText(node.label, 21)}</text>
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
function Edge({ edge, drawing }: { edge: LineageEdge; drawing: ReturnType<typeof drawingOf> }): ReactElement | null {
  const from = drawing.boxes.get(edge.target);
  const to = drawing.boxes.get(edge.source);
  if (!from || !to || from === to) return null;
  const [x1, y1, x2, y2] = drawing.down
    ? [from.x + BOX.width / 2, from.y + BOX.height, to.x + BOX.width / 2, to.y]
    : [from.x + BOX.width, from.y + BOX.height / 2, to.x, to.y + BOX.height / 2];
  const [bx, by] = drawing.down ? [0, (y2 - y1) / 2] : [(x2 - x1) / 2, 0];
  const tip = drawing.down ? `M${x2 - 4} ${y2 - 7}L${x2} ${y2}L${x2 + 4} ${y2 - 7}` : `M${x2 - 7} ${y2 - 4}L${x2} ${y2}L${x2 - 7} ${y2 + 4}`;
  return (
    <g className="det-edge">
      <path d={`M${x1} ${y1}C${x1 + bx} ${y1 + by} ${x2 - bx} ${y2 - by} ${x2} ${y2}`} />
      <path d={tip} />
      {edge.label && <title>{nameText(edge.label, 200)}</title>}
    </g>
  );
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
              return input && <span key={i} className="det-lineage-from"> ← {edge.label && `${nameText(edge.label, 60)} `}{kindOf(input)} <bdi>{nameText(input.label, 60)}</bdi></span>;
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
  const name = <bdi>{nameText(node.label, 120)}</bdi>;
  return place ? <Go to={place}>{name}</Go> : name;
}

const KINDS = new Set(['version', 'checkpoint', 'trial', 'experiment', 'code', 'data']);

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

/**
 * The places of a graph's nodes, in layers: what something was made of lies in a layer before it. Within a layer, nodes
 * are ordered by the mean place of their neighbours, to and fro a few times (Sugiyama, Tagawa, Toda 1981), which leaves
 * few crossings. An edge over several layers has a place of its own in each, so that it passes between the nodes.
 */

export interface Edge {
  source: string;
  target: string;
}

export interface Placed {
  id: string;
  /** 0: what nothing shown was made of. */
  layer: number;
  /** Place in its layer, from 0. */
  at: number;
}

export interface Layout {
  layers: Placed[][];
  /** The places that a long edge passes through, from its target to its source, by the edge's number. */
  passes: Map<number, string[]>;
}

const SWEEPS = 6;

/** Edges lead from what was made to what it was made of. Unknown ends and circles are left out of the layers. */
export function layersOf(ids: readonly string[], edges: readonly Edge[]): Layout {
  const known = new Set(ids);
  const inputs = new Map<string, string[]>(ids.map(id => [id, []]));
  for (const { source, target } of edges) {
    if (known.has(source) && known.has(target) && source !== target) inputs.get(source)!.push(target);
  }
  const depth = depths([...known], inputs);
  const layers: string[][] = [];
  for (const id of known) (layers[depth.get(id)!] ??= []).push(id);
  const passes = new Map<number, string[]>();
  const short: Edge[] = [];
  edges.forEach((edge, i) => {
    const [from, to] = [depth.get(edge.target), depth.get(edge.source)];
    if (from === undefined || to === undefined || to <= from) return;
    const way = Array.from({ length: to - from - 1 }, (_, k) => `${i}/${from + 1 + k}`).map(name => `pass ${name}`);
    way.forEach((id, k) => layers[from + 1 + k]!.push(id));
    if (way.length) passes.set(i, way);
    [edge.target, ...way].forEach((id, k) => short.push({ target: id, source: way[k] ?? edge.source }));
  });
  const ordered = untangled(layers, short);
  return { layers: ordered.map((layer, l) => layer.map((id, at) => ({ id, layer: l, at }))), passes };
}

/** The longest way from each node to one without inputs; an edge that closes a circle counts nothing. */
function depths(ids: readonly string[], inputs: ReadonlyMap<string, readonly string[]>): Map<string, number> {
  const depth = new Map<string, number>();
  const open = new Set<string>();
  for (const first of ids) {
    const way: [string, number][] = [[first, 0]];
    while (way.length) {
      const top = way[way.length - 1]!;
      const [id, next] = top;
      if (depth.has(id)) {
        way.pop();
        continue;
      }
      open.add(id);
      const below = inputs.get(id)!;
      if (next < below.length) {
        top[1] += 1;
        const input = below[next]!;
        if (!depth.has(input) && !open.has(input)) way.push([input, 0]);
        continue;
      }
      depth.set(id, Math.max(-1, ...below.map(input => depth.get(input) ?? -1)) + 1);
      open.delete(id);
      way.pop();
    }
  }
  return depth;
}

function untangled(layers: readonly (readonly string[])[], edges: readonly Edge[]): string[][] {
  const sorted = layers.map(layer => [...layer]);
  const beside = new Map<string, string[]>();
  for (const { source, target } of edges) {
    beside.set(source, [...(beside.get(source) ?? []), target]);
    beside.set(target, [...(beside.get(target) ?? []), source]);
  }
  const place = new Map<string, number>();
  const note = (layer: readonly string[]): void => layer.forEach((id, i) => place.set(id, (i + 1) / (layer.length + 1)));
  sorted.forEach(note);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const order = sweep % 2 ? [...sorted.keys()].reverse() : [...sorted.keys()];
    for (const l of order) {
      const mean = new Map(sorted[l]!.map(id => {
        const others = (beside.get(id) ?? []).filter(other => place.has(other));
        return [id, others.length ? others.reduce((sum, other) => sum + place.get(other)!, 0) / others.length : place.get(id)!];
      }));
      sorted[l]!.sort((a, b) => mean.get(a)! - mean.get(b)!);
      note(sorted[l]!);
    }
  }
  return sorted;
}

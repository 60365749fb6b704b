/** The views of what a graph of lineage names. */

import type { Place } from '../../state/context';
import type { LineageNode } from '../../state/wire';

/** Where a node of a lineage graph leads, if it has a view. */
export function placeOf(node: Pick<LineageNode, 'id' | 'kind'>): Place | null {
  const name = node.id.slice(node.id.indexOf(':') + 1);
  const id = /^\d{1,15}$/.test(name) ? Number(name) : null;
  switch (node.kind) {
    case 'experiment': return id === null ? null : { kind: 'experiment', id };
    case 'trial': return id === null ? null : { kind: 'trial', id };
    case 'version': {
      const [, model, version] = /^(.+)@(\d{1,15})$/.exec(name) ?? [];
      return model === undefined ? null : { kind: 'version', model, version: Number(version) };
    }
    case 'run': return { kind: 'run', id: name };
    case 'artifact': {
      const [, artifact, version] = /^(.+):v(\d{1,15})$/.exec(name) ?? [];
      return artifact === undefined ? null : { kind: 'artifactversion', artifact, version: Number(version) };
    }
    default: return null;
  }
}

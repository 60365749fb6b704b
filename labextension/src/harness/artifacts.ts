/** Made-up artifacts. */

import type { ArtifactFile, ArtifactVersionView, ArtifactView, LineageGraph, RunArtifact } from '../state/wire';
import { BEGAN, HOSTILE } from './fixtures';

const DAY = 86_400;
const NAMES = ['cats', 'OWNER/lines', 'line-fit', 'report'];
const KINDS = ['dataset', 'dataset', 'model', 'evaluation'];
/** A run from anywhere, and one that is trial 105. */
export const RUN = 'a'.repeat(31) + '1';
export const TRIAL = (105).toString(16).padStart(32, '0');

export function artifact(i: number, over: Partial<ArtifactView> = {}): ArtifactView {
  const reference = NAMES[i % NAMES.length]!.replace('OWNER', 'bob');
  return {
    shortened: [], id: i + 1, name: reference.split('/').pop()!, kind: KINDS[i % KINDS.length]!, owner: reference.includes('/') ? 'bob' : 'alice', description: i ? '' : 'Cats of all sizes, by hand', created_at: BEGAN - 9 * DAY,
    updated_at: BEGAN - i * DAY, versions: 4 - (i % 4), latest: 4 - (i % 4), size: 7_340_032 * (i + 1), aliases: i ? {} : { raw: 1, production: 3 }, right: reference.includes('/') ? 'read' : 'own', reference, workspace: i ? '' : 'alice/vision', ...over
  };
}

export function version(number: number, over: Partial<ArtifactVersionView> = {}): ArtifactVersionView {
  return {
    shortened: [], artifact_id: 1, artifact: 'cats', kind: 'dataset', artifact_reference: 'cats', version: number, aliases: number === 3 ? ['production', 'latest'] : number === 1 ? ['raw'] : [], comment: number === 3 ? 'Without the blurred ones' : '',
    metadata: number === 3 ? { rows: 1200, checked: true } : {}, digest: `sha256:${'ab'.repeat(32)}`, files: 4, references: 1, size: 2_340_032 * number, owner: 'alice', created_at: BEGAN - (4 - number) * DAY,
    logged_by: number === 3 ? [RUN] : [], used_by: number === 3 ? [TRIAL] : [], ...over
  };
}

export function files(): ArtifactFile[] {
  const digest = (i: number): string => `sha256:${String(i).repeat(64)}`;
  return [
    { path: 'README.md', size: 812, digest: digest(1), uri: '' }, { path: 'images/a&b.png', size: 88_211, digest: digest(2), uri: '' }, { path: 'labels.csv', size: 4_321, digest: digest(3), uri: '' },
    { path: 'videos/train.tar', size: 6_744_924_160, digest: digest(4), uri: 's3://bucket/cats/train.tar' }
  ];
}

export function lineage(): LineageGraph {
  const [run, trial] = [`run:${RUN}`, 'trial:105'];
  return {
    nodes: [
      { id: 'artifact:cats:v3', kind: 'artifact', label: 'cats:v3', detail: 'dataset' }, { id: run, kind: 'run', label: `run ${RUN}`, detail: 'clean the cats' }, { id: 'artifact:bob/lines:v1', kind: 'artifact', label: 'bob/lines:v1', detail: 'dataset' },
      { id: trial, kind: 'trial', label: 'trial 105', detail: '' }, { id: 'experiment:15', kind: 'experiment', label: 'experiment 15', detail: 'cats or dogs' }, { id: 'version:digits@5', kind: 'version', label: 'digits@5', detail: '' },
      { id: 'checkpoint:c5', kind: 'checkpoint', label: 'checkpoint c5', detail: '' }
    ],
    edges: [
      { source: 'artifact:cats:v3', target: run, label: 'logged by' }, { source: run, target: 'artifact:bob/lines:v1', label: 'uses' }, { source: trial, target: 'artifact:cats:v3', label: 'uses' }, { source: trial, target: 'experiment:15', label: 'of' },
      { source: 'version:digits@5', target: 'checkpoint:c5', label: 'is' }, { source: 'checkpoint:c5', target: trial, label: 'saved by' }
    ]
  };
}

export function ofRun(): RunArtifact[] {
  return [{ role: 'used', at: BEGAN - 900, version: version(1) }, { role: 'logged', at: BEGAN - 60, version: version(3) }];
}

const hostileArtifact = (): Partial<ArtifactView> => ({ name: HOSTILE.name, reference: HOSTILE.name, kind: HOSTILE.value, owner: HOSTILE.name, description: HOSTILE.log, workspace: HOSTILE.value, aliases: { [HOSTILE.name]: 1 } });
const hostileVersion = (): Partial<ArtifactVersionView> => ({ artifact: HOSTILE.name, artifact_reference: HOSTILE.name, kind: HOSTILE.value, owner: HOSTILE.name, comment: HOSTILE.log, aliases: [HOSTILE.name], metadata: { [HOSTILE.name]: HOSTILE.value } });

/** What the master answers below `artifacts`. */
export function answer(count: number, id: string | undefined, [part, number, more]: (string | undefined)[], query: URLSearchParams, hostile: boolean): unknown {
  const one = (i: number): ArtifactView => artifact(i, hostile ? hostileArtifact() : {});
  const made = (n: number): ArtifactVersionView => version(n, hostile ? hostileVersion() : {});
  if (id === undefined) {
    const items = count ? NAMES.map((_, i) => one(i)).filter(item => item.name.includes(query.get('name') ?? '') && (query.get('kind') ?? item.kind) === item.kind) : [];
    return { items, next: null };
  }
  if (part === undefined) return one(0);
  if (number === undefined) return { items: [3, 2, 1].map(made), next: null };
  if (more === undefined) return made(Number(number));
  if (more === 'files') return { items: hostile ? files().map((file, i) => ({ ...file, path: `${i}/${HOSTILE.name}`, uri: i === 3 ? 'javascript:alert(1)' : '' })) : files(), next: null };
  return more === 'lineage' ? hostileGraph(hostile) : undefined;
}

function hostileGraph(hostile: boolean): LineageGraph {
  const graph = lineage();
  return hostile ? { ...graph, nodes: graph.nodes.map(node => ({ ...node, label: `${node.label} ${HOSTILE.name}`, detail: HOSTILE.log })) } : graph;
}

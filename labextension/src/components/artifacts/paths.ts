/** Paths of the routes of artifacts, and names that these have in code. */

import type { Place } from '../../state/context';
import type { ArtifactVersionView, ArtifactView } from '../../state/wire';
import { nameText, shell } from '../common/text';

const quoted = encodeURIComponent;

/** Artifacts shown at a time. */
const PAGE = 50;

/** What this user names an artifact by: its name, or `OWNER/NAME` where it is somebody else's. */
export function referenceOf(artifact: Pick<ArtifactView, 'reference' | 'name'>): string {
  return artifact.reference || artifact.name;
}

/** The same, of a version's artifact. */
export function artifactOf(version: Pick<ArtifactVersionView, 'artifact_reference' | 'artifact'>): string {
  return version.artifact_reference || version.artifact;
}

export function placeOfVersion(version: ArtifactVersionView): Place {
  return { kind: 'artifactversion', artifact: artifactOf(version), version: version.version };
}

/** `cats:v3`, to be shown. */
export function versionText(version: Pick<ArtifactVersionView, 'artifact' | 'version'>): string {
  return `${nameText(version.artifact, 80)}:v${version.version}`;
}

export function artifactsPath({ search, kind }: { search: string; kind: string }): string {
  const query = [`limit=${PAGE}`];
  if (kind) query.push(`kind=${quoted(kind)}`);
  for (const [key, value] of wordsOf(search)) query.push(`${key}=${quoted(value)}`);
  return `artifacts?${query.join('&')}`;
}

/** `owner:ada cats`: whose, and a part of the name. */
function wordsOf(search: string): [string, string][] {
  const found: [string, string][] = [];
  const rest: string[] = [];
  for (const word of search.trim().split(/\s+/)) {
    const owner = /^owner:(.+)$/i.exec(word)?.[1];
    if (owner !== undefined) found.push(['owner', owner]);
    else if (word) rest.push(word);
  }
  return rest.length ? [...found, ['name', rest.join(' ')]] : found;
}

export function artifactPath(artifact: string): string {
  return `artifacts/${quoted(artifact)}`;
}

export function artifactVersionPath(artifact: string, version: number): string {
  return `${artifactPath(artifact)}/versions/${version}`;
}

/** Lines by which a script uses a version: JSON's quotes and escapes are also Python's. */
export function useCode(version: ArtifactVersionView): string {
  return `artifact = run.use_artifact(${JSON.stringify(`${artifactOf(version)}:v${version.version}`)})\nfolder = artifact.download()`;
}

export function downloadCommand(version: ArtifactVersionView): string {
  return `det artifact download ${shell(`${artifactOf(version)}:v${version.version}`)}`;
}

/** The panel's section of artifacts: the newest few, and the way to all of them. */

import type { ReactElement } from 'react';

import { useApp } from '../../state/context';
import type { ArtifactList } from '../../state/wire';
import { Go } from '../admin/parts';
import { ErrorBanner, formatAge, formatBytes, Loading, plural, useLoaded, useNow, type Loaded } from '../common';
import { useRechecked } from '../common/loading/rights';
import { nameText } from '../common/text';
import { Pointing } from './Aliases';
import { FirstArtifact } from './ArtifactsPage';
import { referenceOf } from './paths';

const PATH = 'artifacts?limit=6';

/** The artifacts that were made last. */
export function useNewestArtifacts(): Loaded<ArtifactList> {
  const { api } = useApp();
  const found = useLoaded(PATH, signal => api.get<ArtifactList>(PATH, signal));
  useRechecked(found.reload);
  return found;
}

export function ArtifactItems({ found: { data, error, reload }, filter }: { found: Loaded<ArtifactList>; filter: string }): ReactElement {
  const now = useNow();
  if (error && !data) return <ErrorBanner error={error} what="Artifacts" onRetry={reload} />;
  if (!data) return <Loading what="Loading the artifacts" />;
  if (!data.items.length) return <FirstArtifact short />;
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const items = data.items.filter(one => words.every(word => `${one.name} ${one.owner} ${one.kind}`.toLowerCase().includes(word)));
  return (
    <>
      <ul className="det-list" aria-label="Artifacts">
        {items.map(artifact => (
          <li key={artifact.id} className="det-item">
            <div className="det-item-head">
              <span className="det-ellipsis det-name"><Go to={{ kind: 'artifact', artifact: referenceOf(artifact) }} title={nameText(artifact.description || artifact.name, 200)}><bdi>{nameText(artifact.name, 120)}</bdi></Go></span>
              <span className="det-age det-soft det-num">{formatAge(artifact.updated_at, now)}</span>
            </div>
            <div className="det-facts">
              <span><bdi>{nameText(artifact.kind, 40)}</bdi></span>
              <span className="det-num">{plural(artifact.versions, 'version')}</span>
              <span className="det-num">{formatBytes(artifact.size)}</span>
              <Pointing artifact={artifact} />
            </div>
          </li>
        ))}
      </ul>
      {!items.length && <p className="det-soft det-none">None of the newest artifacts fits “{nameText(filter, 60)}”.</p>}
      <p className="det-none"><Go to={{ kind: 'artifacts' }}>All artifacts</Go></p>
    </>
  );
}

/** All artifacts: found by name, owner and kind, with their aliases, their size, and how many versions there are. */

import { ReactElement, useState } from 'react';

import type { ArtifactView } from '../../state/wire';
import { Ago, Go, Sheet, View } from '../admin/parts';
import { ActionButton, EmptyState, ErrorBanner, formatBytes, Loading, plural } from '../common';
import { Snippet } from '../common/CopyButton';
import { useRechecked } from '../common/loading/rights';
import { usePaged } from '../common/loading/usePaged';
import { useSettled } from '../common/loading/useThrottled';
import { nameText } from '../common/text';
import { Pointing } from './Aliases';
import { artifactsPath, referenceOf } from './paths';

export function ArtifactsPage(): ReactElement {
  const [search, setSearch] = useState('');
  const [kind, setKind] = useState('');
  const wanted = { search: useSettled(search), kind };
  const { items, error, more, reload, showMore } = usePaged<ArtifactView>(artifactsPath(wanted));
  useRechecked(reload);
  const kinds = useKinds(items ?? [], kind);
  const filtered = wanted.search.trim() !== '' || kind !== '';
  return (
    <View title="Artifacts" summary="Folders of data and results in versions that never change, and the runs that made and used them.">
      {(filtered || search !== '' || (items !== null && items.length > 0)) && (
        <div className="det-adm-filters" role="search" aria-label="Artifacts">
          <input
            className="det-input" type="search" aria-label="Search artifacts" placeholder="Name, or owner:…" title="A part of the name; owner:ada finds those of one user" value={search}
            onChange={event => setSearch(event.target.value)}
          />
          <select className="det-input" aria-label="Kind" value={kind} onChange={event => setKind(event.target.value)}>
            <option value="">any kind</option>
            {kinds.map(one => <option key={one} value={one}>{nameText(one, 60)}</option>)}
          </select>
          <span className="det-soft det-num" role="status">{items && `${plural(items.length, 'artifact')}${more ? ' of more' : ''}`}</span>
        </div>
      )}
      {error && <ErrorBanner error={error} onRetry={reload} what="Artifacts" />}
      {!items && !error && <Loading what="Loading the artifacts" />}
      {items && items.length === 0 && (filtered ? <EmptyState title="No artifact fits." /> : <FirstArtifact />)}
      {items && items.length > 0 && <ArtifactSheet items={items} />}
      {more && <p className="det-adm-more"><ActionButton label="Show more" onRun={showMore} /></p>}
    </View>
  );
}

/** Kinds that were seen so far: a filter does not take away its other choices. */
function useKinds(items: readonly ArtifactView[], chosen: string): string[] {
  const [seen] = useState(() => new Set<string>());
  for (const one of items) seen.add(one.kind);
  return [...new Set([...seen, ...(chosen ? [chosen] : [])])].sort();
}

function ArtifactSheet({ items }: { items: readonly ArtifactView[] }): ReactElement {
  const head = (
    <>
      <th>Artifact</th>
      <th>Kind</th>
      <th>Aliases</th>
      <th className="det-right">Versions</th>
      <th className="det-right">Size</th>
      <th>Owner</th>
      <th>Updated</th>
    </>
  );
  return (
    <Sheet label="Artifacts" head={head}>
      {items.map(artifact => (
        <tr key={artifact.id}>
          <td className="det-models-name">
            <Go to={{ kind: 'artifact', artifact: referenceOf(artifact) }}><span className="det-adm-name"><bdi>{nameText(artifact.name)}</bdi></span></Go>
            {artifact.description && <span className="det-models-about det-soft">{nameText(artifact.description, 200)}</span>}
          </td>
          <td><bdi>{nameText(artifact.kind, 64)}</bdi></td>
          <td className="det-models-labels"><div className="det-chips"><Pointing artifact={artifact} /></div></td>
          <td className="det-right det-num">{artifact.versions}</td>
          <td className="det-right det-num">{formatBytes(artifact.size)}</td>
          <td><span className="det-adm-name">{nameText(artifact.owner, 60)}</span></td>
          <td><Ago time={artifact.updated_at} /></td>
        </tr>
      ))}
    </Sheet>
  );
}

const SCRIPT = `import detlab as det

with det.init(project="vision") as run:
    cats = det.Artifact("cats", type="dataset")
    cats.add_dir("data/cats")
    run.log_artifact(cats)`;
const COMMAND = 'det artifact log cats data/cats';

/** How the first one is made. */
export function FirstArtifact({ short = false }: { short?: boolean }): ReactElement {
  return (
    <EmptyState title="No artifacts yet.">
      <p>An artifact is a folder with a name. Each time it is logged it becomes a version, and the runs that make and use it are kept with it.</p>
      <div className="det-first-ways">
        {!short && <p>In a script or a notebook, anywhere:</p>}
        {!short && <Snippet text={SCRIPT} what="the lines" />}
        <p>In a terminal:</p>
        <Snippet text={COMMAND} what="the command" />
      </div>
    </EmptyState>
  );
}

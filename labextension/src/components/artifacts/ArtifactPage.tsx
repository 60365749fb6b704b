/** One artifact: what people wrote about it, and its versions. */

import { ReactElement, ReactNode, useState } from 'react';

import { asApiError } from '../../state/api';
import { useApp, useStore } from '../../state/context';
import type { ArtifactVersionView, ArtifactView } from '../../state/wire';
import { Ago, Go, Sheet } from '../admin/parts';
import { ActionButton, EmptyState, ErrorBanner, formatAgo, formatBytes, formatTime, Loading, Menu, plural, useLoaded, useNow } from '../common';
import { useAct } from '../common/loading/load';
import { useRechecked } from '../common/loading/rights';
import { usePaged } from '../common/loading/usePaged';
import { nameText } from '../common/text';
import { closedNamed, ownersNamed } from '../view/actions';
import { Gone } from '../view/Gone';
import { Missing } from '../view/Missing';
import { Aliases, Pointing } from './Aliases';
import { EditArtifact } from './EditArtifact';
import { artifactPath, placeOfVersion, referenceOf } from './paths';

const PAGE = 100;

export function ArtifactPage({ artifact }: { artifact: string }): ReactElement {
  const { api } = useApp();
  const path = artifactPath(artifact);
  const { data, error, reload } = useLoaded(path, signal => api.get<ArtifactView>(path, signal));
  const me = useStore(s => s.me?.name ?? null);
  useRechecked(reload);
  if (error && data && data.owner !== me && (error.status === 404 || error.status === 403)) return <Gone what={`artifact ${nameText(data.name, 80)}`} />;
  if (error && (!data || error.status === 404)) return <Missing error={error} what={`Artifact ${nameText(artifact, 80)}`} onRetry={reload} />;
  if (!data) return <Loading what={`Loading artifact ${nameText(artifact, 80)}`} />;
  return <Shown key={data.id} artifact={data} reload={reload} />;
}

function Shown({ artifact, reload }: { artifact: ArtifactView; reload: () => void }): ReactElement {
  const { navigate } = useApp();
  const me = useStore(s => s.me);
  const now = useNow(15_000);
  const [editing, setEditing] = useState(false);
  const saved = (view: ArtifactView): void => {
    setEditing(false);
    // Renamed: it has another address.
    if (referenceOf(view) !== referenceOf(artifact)) navigate({ kind: 'artifact', artifact: referenceOf(view) });
    else reload();
  };
  const facts: ReactNode[] = [
    `Artifact ${artifact.id}`, <bdi key="kind">{nameText(artifact.kind, 64)}</bdi>, nameText(artifact.owner, 60), artifact.workspace && <bdi key="place">in {nameText(artifact.workspace, 120)}</bdi>,
    plural(artifact.versions, 'version'), formatBytes(artifact.size), <span key="at" title={formatTime(artifact.updated_at)}>updated {formatAgo(artifact.updated_at, now)}</span>
  ];
  return (
    <section className="det-model">
      <header className="det-head-block">
        <p className="det-crumbs"><Go to={{ kind: 'artifacts' }}>Artifacts</Go></p>
        <div className="det-head-line">
          <h1 className="det-head-title" tabIndex={-1}><bdi>{nameText(artifact.name)}</bdi></h1>
          <div className="det-head-actions" role="group" aria-label="Actions">
            <ActionButton label="Edit" why={closedNamed(me, artifact)} onRun={() => setEditing(true)} />
            <More artifact={artifact} why={ownersNamed(me, artifact)} />
          </div>
        </div>
        <p className="det-head-facts">{facts.filter(Boolean).map((fact, i) => <span key={i}>{fact}</span>)}</p>
        <p className="det-model-chips"><Pointing artifact={artifact} /></p>
      </header>
      {editing
        ? <EditArtifact artifact={artifact} own={ownersNamed(me, artifact) === null} onSaved={saved} onCancel={() => setEditing(false)} />
        : artifact.description && <p className="det-description">{nameText(artifact.description, 2000)}</p>}
      <Versions artifact={artifact} />
    </section>
  );
}

function Versions({ artifact }: { artifact: ArtifactView }): ReactElement {
  const path = `${artifactPath(referenceOf(artifact))}/versions?limit=${PAGE}`;
  const { items, error, more, reload, showMore } = usePaged<ArtifactVersionView>(path, `${artifact.updated_at} ${artifact.versions}`);
  if (error && !items) return <ErrorBanner error={error} what="Versions" onRetry={reload} />;
  if (!items) return <Loading what="Loading the versions" />;
  if (!items.length) return <EmptyState title="It has no versions.">Log one: <code>det artifact log NAME FOLDER</code></EmptyState>;
  return (
    <>
      <VersionSheet items={items} label={`Versions of ${nameText(artifact.name, 80)}`} />
      {more && <p className="det-adm-more"><ActionButton label="Show more" onRun={showMore} /></p>}
    </>
  );
}

function VersionSheet({ items, label }: { items: readonly ArtifactVersionView[]; label: string }): ReactElement {
  const head = (
    <>
      <th>Version</th>
      <th>Aliases</th>
      <th>Comment</th>
      <th className="det-right">Files</th>
      <th className="det-right">Size</th>
      <th>Logged by</th>
      <th>Logged</th>
    </>
  );
  return (
    <Sheet label={label} head={head}>
      {items.map(version => (
        <tr key={version.version}>
          <td className="det-num"><Go to={placeOfVersion(version)}>v{version.version}</Go></td>
          <td className="det-models-labels"><Aliases aliases={version.aliases} /></td>
          <td className="det-adm-wide">{nameText(version.comment, 200)}</td>
          <td className="det-right det-num" title={version.references ? `${plural(version.references, 'reference')} among them` : undefined}>{version.files}</td>
          <td className="det-right det-num">{formatBytes(version.size)}</td>
          <td><span className="det-adm-name">{nameText(version.owner, 60)}</span></td>
          <td><Ago time={version.created_at} /></td>
        </tr>
      ))}
    </Sheet>
  );
}

function More({ artifact, why }: { artifact: ArtifactView; why: string | null }): ReactElement {
  const { navigate } = useApp();
  const remove = useDeletion();
  const name = `artifact ${nameText(artifact.name, 80)}`;
  const body = artifact.versions ? `Its ${plural(artifact.versions, 'version')} and ${formatBytes(artifact.size)} of files go with it. This cannot be undone.` : 'It has no versions.';
  const run = async (): Promise<void> => {
    if (await remove(name, body, artifactPath(referenceOf(artifact)))) navigate({ kind: 'artifacts' });
  };
  return <Menu label={`More actions of ${name}`} actions={() => [{ key: 'delete', label: 'Delete …', danger: true, why, run }]} />;
}

/** Ask, delete, and ask once more if runs use it or aliases point at it; resolves to whether it is gone. */
export function useDeletion(): (name: string, body: string, path: string) => Promise<boolean> {
  const { api, confirm, notify } = useApp();
  const act = useAct();
  return async (name, body, path) => {
    if (!(await confirm({ title: `Delete ${name}?`, body, yes: 'Delete', danger: true }))) return false;
    let refused = '';
    const gone = await act(async () => {
      try {
        await api.del(path);
      } catch (error) {
        if (asApiError(error).status !== 409) throw error;
        refused = asApiError(error).message;
      }
    });
    if (!gone) return false;
    if (refused) {
      const again = `${nameText(refused, 400)}. What used it can no longer be repeated.`;
      if (!(await confirm({ title: `Delete ${name} nevertheless?`, body: again, yes: 'Delete nevertheless', danger: true }))) return false;
      if (!(await act(() => api.del(`${path}?force=true`)))) return false;
    }
    notify(`Deleted ${name}.`, 'good');
    return true;
  };
}

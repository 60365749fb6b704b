/** One version of an artifact: its files, the runs that made and use it, its lineage, how to use it. */

import { ReactElement, ReactNode, useState } from 'react';

import { useApp, useStore } from '../../state/context';
import type { ArtifactVersionView, ArtifactView } from '../../state/wire';
import { Go } from '../admin/parts';
import { ActionButton, EmptyState, formatAgo, formatBytes, formatTime, Loading, Menu, plural, useLoaded, useNow } from '../common';
import { CopyButton, Snippet } from '../common/CopyButton';
import { useRechecked } from '../common/loading/rights';
import { nameText } from '../common/text';
import { LineageTab } from '../lineage/LineageTab';
import { closedNamed, ownersNamed } from '../view/actions';
import { Gone } from '../view/Gone';
import { Missing } from '../view/Missing';
import { Tabs } from '../view/Tabs';
import { Values } from '../view/Values';
import { Aliases } from './Aliases';
import { ArtifactFiles } from './ArtifactFiles';
import { useDeletion } from './ArtifactPage';
import { EditArtifactVersion } from './EditArtifact';
import { artifactPath, artifactVersionPath, downloadCommand, referenceOf, useCode, versionText } from './paths';

type Tab = 'files' | 'lineage' | 'runs' | 'metadata';

interface Both {
  artifact: ArtifactView;
  version: ArtifactVersionView;
}

export function ArtifactVersionPage({ artifact, version }: { artifact: string; version: number }): ReactElement {
  const { api } = useApp();
  const path = artifactVersionPath(artifact, version);
  const { data, error, reload } = useLoaded<Both>(path, async signal => {
    const [one, of] = await Promise.all([api.get<ArtifactVersionView>(path, signal), api.get<ArtifactView>(artifactPath(artifact), signal)]);
    return { version: one, artifact: of };
  });
  const me = useStore(s => s.me?.name ?? null);
  useRechecked(reload);
  const name = `Version ${version} of ${nameText(artifact, 80)}`;
  if (error && data && data.artifact.owner !== me && (error.status === 404 || error.status === 403)) return <Gone what={`version ${version} of ${nameText(artifact, 80)}`} />;
  if (error && (!data || error.status === 404)) return <Missing error={error} what={name} onRetry={reload} />;
  if (!data || data.version.version !== version) return <Loading what={`Loading version ${version}`} />;
  return <Shown key={path} {...data} path={path} reload={reload} />;
}

function Shown({ artifact, version, path, reload }: Both & { path: string; reload: () => void }): ReactElement {
  const { navigate } = useApp();
  const me = useStore(s => s.me);
  const now = useNow(15_000);
  const [tab, setTab] = useState<Tab>('files');
  const [editing, setEditing] = useState(false);
  const remove = useDeletion();
  const name = versionText(version);
  const place = { kind: 'artifact', artifact: referenceOf(artifact) } as const;
  const runs = version.logged_by.length + version.used_by.length;
  const tabs = [
    { key: 'files', label: 'Files', note: version.files }, { key: 'lineage', label: 'Lineage' }, { key: 'runs', label: 'Runs', note: runs || null },
    { key: 'metadata', label: 'Metadata', note: Object.keys(version.metadata).length || null }
  ];
  const facts: ReactNode[] = [
    <bdi key="kind">{nameText(version.kind, 64)}</bdi>, nameText(version.owner, 60), <span key="at" title={formatTime(version.created_at)}>logged {formatAgo(version.created_at, now)}</span>,
    formatBytes(version.size), version.references > 0 && plural(version.references, 'reference')
  ];
  const body = `Files that no other version has go with it; its number is not given again. This cannot be undone.`;
  const run = async (): Promise<void> => {
    if (await remove(name, body, path)) navigate(place);
  };
  return (
    <section className="det-model">
      <header className="det-head-block">
        <p className="det-crumbs"><Go to={{ kind: 'artifacts' }}>Artifacts</Go> / <Go to={place}><bdi>{nameText(artifact.name, 80)}</bdi></Go></p>
        <div className="det-head-line">
          <h1 className="det-head-title" tabIndex={-1}><bdi>{nameText(artifact.name)}</bdi> version {version.version}</h1>
          <Aliases aliases={version.aliases} />
          <div className="det-head-actions" role="group" aria-label="Actions">
            <ActionButton label="Edit" why={closedNamed(me, artifact)} onRun={() => setEditing(true)} />
            <Menu label={`More actions of ${name}`} actions={() => [{ key: 'delete', label: 'Delete …', danger: true, why: ownersNamed(me, artifact), run }]} />
          </div>
        </div>
        <p className="det-head-facts">{facts.filter(Boolean).map((fact, i) => <span key={i}>{fact}</span>)}</p>
      </header>
      {editing
        ? <EditArtifactVersion version={version} onSaved={() => { setEditing(false); reload(); }} onCancel={() => setEditing(false)} />
        : version.comment && <p className="det-description">{nameText(version.comment, 2000)}</p>}
      <UseIt version={version} />
      <Tabs label={`Parts of ${name}`} tabs={tabs} chosen={tab} onChoose={key => setTab(key as Tab)}>
        {tab === 'files' && <ArtifactFiles version={version} path={path} />}
        {tab === 'lineage' && <LineageTab path={`${path}/lineage`} />}
        {tab === 'runs' && <Runs version={version} />}
        {tab === 'metadata' && (Object.keys(version.metadata).length ? <Values label="Metadata" values={version.metadata} /> : <EmptyState title="No metadata.">Set some by Edit.</EmptyState>)}
      </Tabs>
    </section>
  );
}

/** Code and a command by which this version is used. */
function UseIt({ version }: { version: ArtifactVersionView }): ReactElement {
  const { insertCode } = useApp();
  const code = useCode(version);
  return (
    <section className="det-load" aria-label="How to use it">
      <div className="det-controls">
        <h2>Use it</h2>
        {insertCode && <ActionButton label="Insert in notebook" onRun={() => insertCode(code)} />}
        <CopyButton text={downloadCommand(version)} label="Copy command" what="the command that downloads it" />
      </div>
      <Snippet text={code} what="the code" />
    </section>
  );
}

function Runs({ version }: { version: ArtifactVersionView }): ReactElement {
  if (!version.logged_by.length && !version.used_by.length) return <EmptyState title="No run that you may see has made or used it." />;
  const list = (title: string, ids: readonly string[]): ReactElement | false => ids.length > 0 && (
    <section aria-label={title}>
      <h2>{title}</h2>
      <ul className="det-list">{ids.map(id => <li key={id}><RunLink id={id} /></li>)}</ul>
    </section>
  );
  return <>{list('Made by', version.logged_by)}{list('Used by', version.used_by)}</>;
}

/** A run that is a trial leads to the trial. */
function RunLink({ id }: { id: string }): ReactElement {
  const trial = /^0{16}/.test(id) ? Number.parseInt(id, 16) : null;
  return trial === null ? <Go to={{ kind: 'run', id }}>Run {nameText(id.slice(0, 12))}</Go> : <Go to={{ kind: 'trial', id: trial }}>Trial {trial}</Go>;
}

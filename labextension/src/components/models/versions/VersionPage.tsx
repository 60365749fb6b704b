/** One version of a model: where it comes from, its files, how to load it. */

import { ReactElement, ReactNode, useState } from 'react';

import { useApp, useStore } from '../../../state/context';
import type { ModelView, VersionView } from '../../../state/wire';
import { Go } from '../../admin/parts';
import { ActionButton, formatAgo, formatBytes, formatTime, Loading, Menu, Notice, useLoaded, useNow } from '../../common';
import { CopyButton } from '../../common/CopyButton';
import { useAct } from '../../common/loading/load';
import { nameText } from '../../common/text';
import { Markdown } from '../../view/Markdown';
import { Gone } from '../../view/Gone';
import { Missing } from '../../view/Missing';
import { Tabs } from '../../view/Tabs';
import { OwnLabels } from '../Chips';
import { MoveLabel } from '../dialogs/MoveLabel';
import { EditVersion } from '../EditModel';
import { Files } from './Files';
import { LineageTab } from '../../lineage/LineageTab';
import { closedModel, modelOf, ownersModel, referenceTo, versionName } from '../model';
import { Origin } from './Origin';
import { downloadCommand, loadCode, modelPath, versionPath } from '../paths';
import { useModelEvents } from '../useModelEvents';
import { Metadata } from '../../view/Values';

type Tab = 'origin' | 'lineage' | 'files' | 'metadata';

interface Both {
  model: ModelView;
  version: VersionView;
}

export function VersionPage({ model, version }: { model: string; version: number }): ReactElement {
  const { api } = useApp();
  const path = versionPath(model, version);
  const { data, error, reload } = useLoaded<Both>(path, async signal => {
    const [one, of] = await Promise.all([api.get<VersionView>(path, signal), api.get<ModelView>(modelPath(model), signal)]);
    return { version: one, model: of };
  });
  useModelEvents(reload);
  const name = `Version ${version} of ${nameText(model, 80)}`;
  const me = useStore(s => s.me?.name ?? null);
  if (error && data && data.model.owner !== me && (error.status === 404 || error.status === 403)) return <Gone what={`version ${version} of ${nameText(model, 80)}`} />;
  if (error && (!data || error.status === 404)) return <Missing error={error} what={name} onRetry={reload} />;
  if (!data || data.version.version !== version) return <Loading what={`Loading version ${version}`} />;
  return <Shown key={path} {...data} reload={reload} />;
}

function Shown({ model, version, reload }: Both & { reload: () => void }): ReactElement {
  const me = useStore(s => s.me);
  const now = useNow(15_000);
  const [tab, setTab] = useState<Tab>('origin');
  const [editing, setEditing] = useState(false);
  const [moving, setMoving] = useState(false);
  const why = closedModel(me, model);
  const count = Object.keys(version.metadata).length;
  const tabs = [
    { key: 'origin', label: 'Origin' }, { key: 'lineage', label: 'Lineage graph' }, { key: 'files', label: 'Files' },
    { key: 'metadata', label: 'Metadata', note: count || null }
  ];
  const facts: ReactNode[] = [
    nameText(version.name, 200), version.semver && nameText(version.semver, 60), nameText(version.owner, 60),
    <span key="made" title={formatTime(version.created_at)}>registered {formatAgo(version.created_at, now)}</span>, formatBytes(version.size), nameText(version.format, 40)
  ];
  return (
    <section className="det-model">
      <header className="det-head-block">
        <p className="det-crumbs"><Go to={{ kind: 'models' }}>Models</Go> / <Go to={{ kind: 'model', name: referenceTo(model) }}><bdi>{nameText(model.name, 80)}</bdi></Go></p>
        <div className="det-head-line">
          <h1 className="det-head-title" tabIndex={-1}><bdi>{nameText(model.name)}</bdi> version {version.version}</h1>
          <OwnLabels labels={version.labels} />
          <div className="det-head-actions" role="group" aria-label="Actions">
            <Download version={version} />
            <ActionButton label="Move a label here …" why={why} onRun={() => setMoving(true)} />
            <ActionButton label="Edit" why={why} onRun={() => setEditing(true)} />
            <More model={model} version={version} why={ownersModel(me, model)} />
          </div>
        </div>
        <p className="det-head-facts">{facts.filter(Boolean).map((fact, i) => <span key={i}>{fact}</span>)}</p>
      </header>
      {version.checkpoint_state !== 'COMPLETED' && <Notice tone="bad">Files of its checkpoint were deleted: this version can no longer be loaded whole.</Notice>}
      {editing
        ? <EditVersion version={version} onSaved={() => { setEditing(false); reload(); }} onCancel={() => setEditing(false)} />
        : <About version={version} />}
      <LoadIt model={model} version={version} />
      <Tabs label={`Parts of version ${version.version}`} tabs={tabs} chosen={tab} onChoose={key => setTab(key as Tab)}>
        {tab === 'origin' && <Origin version={version} />}
        {tab === 'lineage' && <LineageTab path={`${versionPath(modelOf(version), version.version)}/lineage`} />}
        {tab === 'files' && <Files version={version} />}
        {tab === 'metadata' && <Metadata values={version.metadata} />}
      </Tabs>
      {moving && <MoveLabel model={model} version={version.version} onClose={() => setMoving(false)} onMoved={() => { setMoving(false); reload(); }} />}
    </section>
  );
}

function About({ version }: { version: VersionView }): ReactElement | null {
  if (!version.comment && !version.notes) return null;
  return (
    <div className="det-model-about">
      {version.comment && <p className="det-description">{nameText(version.comment, 2000)}</p>}
      {version.notes && <div className="det-model-notes" role="note" aria-label="Notes" tabIndex={0}><Markdown text={version.notes} /></div>}
    </div>
  );
}

function Download({ version }: { version: VersionView }): ReactElement | null {
  const { api } = useApp();
  if (version.checkpoint_state === 'DELETED') return null;
  return (
    <a
      className="det-button" download={`${version.model}-${version.version}.tar`.replaceAll(/[^\w.-]+/g, '_')}
      href={api.href(`checkpoints/${encodeURIComponent(version.checkpoint)}/archive`)} title={`All files as one .tar, ${formatBytes(version.size)}`}
    >
      Download
    </a>
  );
}

/** Code that loads this version, by its number or by one of its labels. */
function LoadIt({ model, version }: Both): ReactElement {
  const { insertCode } = useApp();
  const names = [String(version.version), ...version.labels];
  const [by, setBy] = useState(names[0]!);
  const chosen = names.includes(by) ? by : names[0]!;
  const code = loadCode(referenceTo(model), chosen);
  const command = downloadCommand(referenceTo(model), chosen);
  return (
    <section className="det-load" aria-label="How to load it">
      <div className="det-controls">
        <h2>Load it</h2>
        {names.length > 1 && (
          <label className="det-labelled">
            by{' '}
            <select className="det-input" value={chosen} onChange={event => setBy(event.target.value)}>
              {names.map((name, i) => <option key={name} value={name}>{i === 0 ? `its number, ${name}` : `its label, ${nameText(name, 64)}`}</option>)}
            </select>
          </label>
        )}
        <CopyButton text={code} label="Copy code" what="the code" />
        {insertCode && <ActionButton label="Insert in notebook" onRun={() => insertCode(code)} />}
        <CopyButton text={command} label="Copy command" what="the command that downloads it" />
      </div>
      <pre className="det-code-text" tabIndex={0}>{nameText(code.split('\n')[2]!, 400)}</pre>
      {version.format === 'pickle' && (
        <p className="det-soft">Its files are pickles, which can run code when they are opened: <code>allow_pickle=True</code> is needed, if you trust who made them.</p>
      )}
    </section>
  );
}

function More({ model, version, why }: Both & { why: string | null }): ReactElement {
  const { api, confirm, navigate, notify } = useApp();
  const act = useAct();
  const remove = async (): Promise<void> => {
    const labels = version.labels.length ? `It has the label ${version.labels.map(label => nameText(label, 64)).join(', ')} now: whoever loads by it will find nothing. ` : '';
    const body = `${labels}Its lineage goes with it; the checkpoint stays, but is no longer kept from collection.`;
    if (!(await confirm({ title: `Delete ${versionName(version)}?`, body, yes: 'Delete', danger: true }))) return;
    if (!(await act(() => api.del(`${versionPath(referenceTo(model), version.version)}?force=true`)))) return;
    notify(`Deleted ${versionName(version)}.`, 'good');
    navigate({ kind: 'model', name: referenceTo(model) });
  };
  return <Menu label={`More actions of ${versionName(version)}`} actions={() => [{ key: 'delete', label: 'Delete …', danger: true, why, run: remove }]} />;
}

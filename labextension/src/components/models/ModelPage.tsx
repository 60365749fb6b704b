/** One model: what people wrote about it, its versions, and the history of its labels. */

import { ReactElement, useState } from 'react';

import { useApp, useStore } from '../../state/context';
import type { ModelView } from '../../state/wire';
import { Go } from '../admin/parts';
import { ActionButton, formatAgo, formatTime, Loading, Menu, Notice, plural, useLoaded, useNow } from '../common';
import { useAct } from '../common/loading/load';
import { nameText } from '../common/text';
import { Sharing } from '../workspaces/Sharing';
import { useTeams } from '../workspaces/load';
import { Markdown } from '../view/Markdown';
import { Missing } from '../view/Missing';
import { Gone } from '../view/Gone';
import { Tabs } from '../view/Tabs';
import { Moving, Words } from './Chips';
import { MoveLabel } from './dialogs/MoveLabel';
import { MoveModel } from './dialogs/MoveModel';
import { EditModel } from './EditModel';
import { LabelHistory } from './LabelHistory';
import { closedModel, ownersModel, referenceTo } from './model';
import { modelPath } from './paths';
import { useModelEvents } from './useModelEvents';
import { Metadata } from '../view/Values';
import { Versions } from './versions/Versions';

type Tab = 'versions' | 'labels' | 'metadata' | 'sharing';

export function ModelPage({ name }: { name: string }): ReactElement {
  const { api } = useApp();
  const { data, error, reload } = useLoaded(modelPath(name), signal => api.get<ModelView>(modelPath(name), signal));
  const me = useStore(s => s.me?.name ?? null);
  useModelEvents(reload);
  if (error && data && data.owner !== me && (error.status === 404 || error.status === 403)) return <Gone what={`model ${nameText(data.name, 80)}`} />;
  if (error && (!data || error.status === 404)) return <Missing error={error} what={`Model ${nameText(name, 80)}`} onRetry={reload} />;
  if (!data) return <Loading what={`Loading model ${nameText(name, 80)}`} />;
  return <Shown key={data.id} model={data} reload={reload} />;
}

function Shown({ model, reload }: { model: ModelView; reload: () => void }): ReactElement {
  const { navigate } = useApp();
  const me = useStore(s => s.me);
  const now = useNow(15_000);
  const [tab, setTab] = useState<Tab>('versions');
  const [editing, setEditing] = useState(false);
  const [moving, setMoving] = useState<{ label?: string; version?: number } | null>(null);
  const why = closedModel(me, model);
  const own = ownersModel(me, model);
  const saved = (view: ModelView): void => {
    setEditing(false);
    // Moved or renamed: it has another address.
    if (referenceTo(view) !== referenceTo(model)) navigate({ kind: 'model', name: referenceTo(view) });
    else reload();
  };
  const count = Object.keys(model.metadata).length;
  const tabs = [
    { key: 'versions', label: 'Versions', note: model.versions || null }, { key: 'labels', label: 'Label history' },
    { key: 'metadata', label: 'Metadata', note: count || null }, { key: 'sharing', label: 'Sharing' }
  ];
  return (
    <section className="det-model">
      <header className="det-head-block">
        <p className="det-crumbs"><Go to={{ kind: 'models' }}>Models</Go></p>
        <div className="det-head-line">
          <h1 className="det-head-title" tabIndex={-1}><bdi>{nameText(model.name)}</bdi></h1>
          {model.archived && <span className="det-chip">archived</span>}
          <div className="det-head-actions" role="group" aria-label="Actions">
            <ActionButton label="Move a label …" why={why ?? (model.versions ? null : 'It has no versions yet.')} onRun={() => setMoving({})} />
            <ActionButton label="Edit" why={why} onRun={() => setEditing(true)} />
            <More model={model} own={own} reload={reload} onMoved={saved} />
          </div>
        </div>
        <p className="det-head-facts">
          {[
            `Model ${model.id}`, nameText(model.owner, 60), plural(model.versions, 'version'), `updated ${formatAgo(model.updated_at, now)}`
          ].map((fact, i) => <span key={i} title={i === 3 ? formatTime(model.updated_at) : undefined}>{fact}</span>)}
        </p>
        <p className="det-model-chips"><Moving model={model} /> <Words labels={model.labels} /></p>
      </header>
      {model.archived && <Notice>Archived: it is not listed, and gets no new versions. Its versions are kept and can be loaded.</Notice>}
      {editing ? <EditModel model={model} onSaved={saved} onCancel={() => setEditing(false)} /> : <About model={model} />}
      <Tabs label={`Parts of model ${nameText(model.name, 80)}`} tabs={tabs} chosen={tab} onChoose={key => setTab(key as Tab)}>
        {tab === 'versions' && <Versions model={model} why={why} onMove={version => setMoving({ version })} />}
        {tab === 'labels' && <LabelHistory model={model} why={why} onMove={(label, version) => setMoving({ label, version })} onChanged={reload} />}
        {tab === 'metadata' && <Metadata values={model.metadata} />}
        {tab === 'sharing' && (
          <Sharing
            base={modelPath(referenceTo(model))} name={model.name} own={own}
            about={`Readers see its versions and their lineage, and may download their checkpoints. Writers also register, label and edit. Only ${nameText(model.owner, 60)} and administrators share or delete it.`}
          />
        )}
      </Tabs>
      {moving && <MoveLabel model={model} {...moving} onClose={() => setMoving(null)} onMoved={() => { setMoving(null); reload(); }} />}
    </section>
  );
}

function About({ model }: { model: ModelView }): ReactElement | null {
  if (!model.description && !model.notes) return null;
  return (
    <div className="det-model-about">
      {model.description && <p className="det-description">{nameText(model.description, 2000)}</p>}
      {model.notes && <div className="det-model-notes" role="note" aria-label="Notes" tabIndex={0}><Markdown text={model.notes} /></div>}
    </div>
  );
}

function More({ model, own, reload, onMoved }: {
  model: ModelView; own: string | null; reload: () => void; onMoved: (view: ModelView) => void;
}): ReactElement {
  const { api, confirm, navigate, notify } = useApp();
  const act = useAct();
  const [moving, setMoving] = useState(false);
  const teams = useTeams();
  const name = nameText(model.name, 80);
  const archive = async (): Promise<void> => {
    if (await act(() => api.post(`${modelPath(referenceTo(model))}/edit`, { archived: !model.archived }))) reload();
  };
  const remove = async (): Promise<void> => {
    const kept = model.versions ? `Its ${plural(model.versions, 'version')} and their lineage go with it; the checkpoints stay, but are no longer kept from collection.` : 'It has no versions.';
    if (!(await confirm({ title: `Delete model ${name}?`, body: kept, yes: 'Delete', danger: true }))) return;
    if (!(await act(() => api.del(`${modelPath(referenceTo(model))}?force=true`)))) return;
    notify(`Model ${name} was deleted.`, 'good');
    navigate({ kind: 'models' });
  };
  return (
    <>
      <Menu
        label={`More actions of model ${name}`}
        actions={() => [
          // Who works alone has nowhere to move it to.
          ...(teams ? [{ key: 'move', label: 'Move …', why: own, run: () => setMoving(true) }] : []),
          { key: 'archive', label: model.archived ? 'Unarchive' : 'Archive', why: own, run: archive },
          { key: 'delete', label: 'Delete …', why: own, danger: true, run: remove }
        ]}
      />
      {moving && <MoveModel model={model} onClose={() => setMoving(false)} onMoved={view => { setMoving(false); onMoved(view); }} />}
    </>
  );
}

/** Templates: a list with their YAML, and a form that makes one or replaces it. */

import { ReactElement, useState } from 'react';
import { stringify } from 'yaml';

import { useApp, useStore } from '../../state/context';
import type { SetTemplate, TemplateView, UserView, WorkspaceView } from '../../state/wire';
import { Dialog } from '../admin/Dialog';
import { FieldsForm, metadataOf, metadataText, type FormField } from '../admin/fields';
import { Ago, Sheet } from '../admin/parts';
import { ActionButton, EmptyState, ErrorBanner, Loading, useLoaded } from '../common';
import { useAct, useGet } from '../common/loading/load';
import { nameText, visible } from '../common/text';
import { readOnly } from '../view/actions';
import { usePaged } from '../workspaces/load';
import { Warned } from './Warned';

/** What names the templates of the whole cluster in place of a workspace. */
const CLUSTER = 'cluster';

export function Templates({ shared }: { shared: readonly WorkspaceView[] }): ReactElement {
  const me = useStore(s => s.me);
  const found = usePaged<TemplateView>('templates?limit=100', 'after');
  const [making, setMaking] = useState(false);
  const [made, setMade] = useState<TemplateView | null>(null);
  const { items, error } = found;
  const saved = (view: TemplateView): void => { setMaking(false); setMade(view); found.reload(); };
  const head = (
    <>
      <th>Template</th>
      <th>Based on</th>
      <th className="det-right">Version</th>
      <th>Set by</th>
      <th className="det-adm-roomy">When</th>
      <th><span className="det-hidden">Actions</span></th>
    </>
  );
  return (
    <>
      <div><ActionButton label="New template …" why={readOnly(me)} onRun={() => setMaking(true)} /></div>
      {making && <Edit of={null} shared={shared} onClose={() => setMaking(false)} onSaved={saved} />}
      {made && <Warned items={made.warnings} />}
      {error && <ErrorBanner error={error} what="Templates" onRetry={found.reload} />}
      {!items && !error && <Loading what="Loading the templates" />}
      {items && !items.length && <EmptyState title="No templates yet.">One is used by <code>det experiment create search.yaml code/ --template NAME</code>.</EmptyState>}
      {items && items.length > 0 && (
        <Sheet label="Templates" head={head}>
          {items.map(one => <Row key={one.reference} of={one} why={notChanger(me, one, shared)} shared={shared} onSaved={saved} reload={found.reload} />)}
        </Sheet>
      )}
      {found.more && <p className="det-adm-more"><ActionButton label="Show more" onRun={found.showMore} /></p>}
    </>
  );
}

/** Why this user may not change a template, or null: the master looks more closely. */
export function notChanger(me: UserView | null, of: TemplateView, shared: readonly WorkspaceView[]): string | null {
  const none = readOnly(me);
  if (none || me!.admin) return none;
  if (of.workspace === CLUSTER) return 'Only administrators may change templates of the cluster.';
  const admin = shared.some(one => `${one.owner}/${one.name}` === of.workspace && one.may === 'own');
  return admin || of.owner === me!.name ? null : 'Only its maker and admins of the workspace may change it.';
}

function Row({ of, why, shared, onSaved, reload }: {
  of: TemplateView; why: string | null; shared: readonly WorkspaceView[]; onSaved: (view: TemplateView) => void; reload: () => void;
}): ReactElement {
  const { api, confirm } = useApp();
  const act = useAct();
  const [open, setOpen] = useState(false);
  const [editing, setEditing] = useState(false);
  const name = nameText(of.reference, 160);
  const remove = async (): Promise<void> => {
    const question = { title: `Delete template ${name}?`, body: 'What was submitted with it stays as it is.', yes: 'Delete', danger: true };
    if ((await confirm(question)) && (await act(() => api.del(onePath(of.reference))))) reload();
  };
  const hidden = <span className="det-hidden"> {name}</span>;
  return (
    <>
      <tr>
        <td className="det-models-name">
          <span className="det-adm-name"><bdi>{name}</bdi></span>{of.default && <span className="det-chip">default</span>}
          {of.description && <span className="det-models-about det-soft">{nameText(of.description, 200)}</span>}
        </td>
        <td><span className="det-adm-name"><bdi>{nameText(of.base, 160) || '–'}</bdi></span></td>
        <td className="det-right det-num">{of.version}</td>
        <td><span className="det-adm-name"><bdi>{nameText(of.set_by, 60) || '–'}</bdi></span></td>
        <td className="det-adm-roomy"><Ago time={of.set_at} /></td>
        <td className="det-right">
          <span className="det-told-acts">
            <button type="button" className="det-button" aria-expanded={open} onClick={() => setOpen(!open)}>Show{hidden}</button>
            <ActionButton label="Change" why={why} onRun={() => setEditing(true)}>Change …{hidden}</ActionButton>
            <ActionButton label="Delete" why={why} onRun={remove}>Delete …{hidden}</ActionButton>
            {editing && <Edit of={of} shared={shared} onClose={() => setEditing(false)} onSaved={view => { setEditing(false); setOpen(false); onSaved(view); }} />}
          </span>
        </td>
      </tr>
      {open && <tr><td colSpan={6}><Text reference={of.reference} /></td></tr>}
    </>
  );
}

function onePath(reference: string): string {
  return `templates/one?name=${encodeURIComponent(reference)}`;
}

function Text({ reference }: { reference: string }): ReactElement {
  const { data, error, reload } = useGet<TemplateView>(onePath(reference));
  const [merged, setMerged] = useState(false);
  if (error) return <ErrorBanner error={error} what="Template" onRetry={reload} />;
  if (!data) return <Loading what="Loading the template" />;
  return (
    <div className="det-told-yaml">
      {data.base && <label className="det-adm-check"><input type="checkbox" checked={merged} onChange={e => setMerged(e.target.checked)} /> merged with its base</label>}
      <pre className="det-code-text" tabIndex={0} aria-label={`YAML of ${nameText(reference, 160)}`}>{visible(stringify((merged ? data.merged : data.config) ?? {}, { lineWidth: 0 }))}</pre>
    </div>
  );
}

function Edit({ of, shared, onClose, onSaved }: {
  of: TemplateView | null; shared: readonly WorkspaceView[]; onClose: () => void; onSaved: (view: TemplateView) => void;
}): ReactElement {
  const { api } = useApp();
  const me = useStore(s => s.me);
  const { data, error } = useLoaded(of?.reference ?? null, signal => api.get<TemplateView>(onePath(of!.reference), signal));
  const places = [...(me?.admin ? [CLUSTER] : []), ...shared.filter(one => one.may !== 'read').map(one => `${one.owner}/${one.name}`)];
  const fields: FormField[] = [
    ...(of ? [] : [
      { key: 'name', label: 'Name', most: 256, required: true, check: (text: string) => (text.trim() ? null : 'A name is needed.') },
      { key: 'workspace', label: 'Workspace', most: 520, offers: places, about: `Empty: your personal one.${me?.admin ? ' cluster: for everybody.' : ''}` }
    ]),
    { key: 'base', label: 'Based on', most: 1000, about: 'A template of the same workspace or of the cluster that is laid under it, such as cluster:site.' },
    { key: 'description', label: 'Description', most: 10_000 },
    { key: 'config_yaml', label: 'A part of a config, as YAML', rows: 12, mono: true, check: text => metadataOf(text).problem, about: 'Masks stand for the secrets that were there, if you have set them.' }
  ];
  const save = async (values: Record<string, string>): Promise<void> => {
    const body: SetTemplate = {
      name: of?.name ?? values.name!.trim(), workspace: of?.workspace ?? values.workspace?.trim() ?? '', base: values.base?.trim() ?? '', description: values.description ?? '',
      config_yaml: `${values.config_yaml ?? ''}\n`, create: of === null
    };
    onSaved(await api.replace<TemplateView>('templates', body));
  };
  const title = of ? `Change template ${nameText(of.reference, 80)}` : 'New template';
  return (
    <Dialog title={title} onClose={onClose}>
      {error && <ErrorBanner error={error} />}
      {of && !data && !error && <Loading what="Loading the template" />}
      {(!of || data) && (
        <FieldsForm
          label={title} fields={fields} start={data ? { base: data.base, description: data.description, config_yaml: metadataText(data.config ?? {}) } : {}} yes="Save" dialog
          conflictAt={of ? undefined : 'name'} onSubmit={save} onCancel={onClose}
        />
      )}
    </Dialog>
  );
}

/** What a workspace gives to what is submitted into it, who may set it, and a form that does. */

import { ReactElement, useState } from 'react';
import { stringify } from 'yaml';

import { useApp, useStore } from '../../state/context';
import type { DefaultsView, EditWorkspace, WorkspaceView } from '../../state/wire';
import { ActionButton } from '../common';
import { nameText, visible } from '../common/text';
import { FieldsForm, metadataOf, metadataText, type FormField } from '../admin/fields';
import { notAdmin, workspacePath } from './model';

const PARTS: readonly { key: keyof DefaultsView; label: string; who: string }[] = [
  { key: 'resource_pool', label: 'Resource pool', who: 'Admins of the workspace may set it.' },
  { key: 'checkpoint_storage', label: 'Checkpoint storage', who: 'Admins of the workspace may name a bucket of S3 or Google Cloud, administrators of the cluster any storage.' },
  { key: 'template', label: 'Template', who: 'Admins of the workspace may set it; one that decides what code runs, only administrators of the cluster.' },
  { key: 'environment', label: 'Environment', who: 'Only administrators of the cluster may set it.' },
  { key: 'task_container_defaults', label: 'Task container defaults', who: 'Only administrators of the cluster may set them.' }
];

const OF_CLUSTER_ADMINS = [
  { key: 'environment', label: 'Environment', about: 'As in a config; it decides what code the members\' tasks run.' },
  { key: 'task_container_defaults', label: 'Task container defaults', about: 'By Determined\'s names, such as startup_hook: …' }
] as const;

export function Defaults({ workspace, onSaved }: { workspace: WorkspaceView; onSaved: (view: WorkspaceView) => void }): ReactElement {
  const me = useStore(s => s.me);
  const [editing, setEditing] = useState(false);
  if (editing) return <Form workspace={workspace} all={me?.admin ?? false} onSaved={view => { setEditing(false); onSaved(view); }} onCancel={() => setEditing(false)} />;
  return (
    <div className="det-labels">
      <p className="det-soft">What is submitted into it gets these values, unless its config says otherwise. They run as the members: each passes the same checks as a value of their own.</p>
      <dl className="det-origin-facts">
        {PARTS.map(({ key, label, who }) => (
          <div key={key}>
            <dt>{label}</dt>
            <dd><Value value={workspace.defaults[key]} none={key === 'resource_pool' ? 'none: that of the cluster' : 'none'} /><small className="det-soft">{who}</small></dd>
          </div>
        ))}
      </dl>
      <div className="det-controls"><ActionButton label="Change …" why={notAdmin(me, workspace)} onRun={() => setEditing(true)} /></div>
    </div>
  );
}

function Value({ value, none }: { value: DefaultsView[keyof DefaultsView] | undefined; none: string }): ReactElement {
  if (!value || !Object.keys(value).length) return <p className="det-defaults-value">{none}</p>;
  if (typeof value === 'string') return <p className="det-defaults-value">{nameText(value, 300)}</p>;
  return <pre className="det-code-text" tabIndex={0}>{visible(stringify(value, { lineWidth: 0 }))}</pre>;
}

function Form({ workspace, all, onSaved, onCancel }: {
  workspace: WorkspaceView; all: boolean; onSaved: (view: WorkspaceView) => void; onCancel: () => void;
}): ReactElement {
  const { api } = useApp();
  const pools = useStore(s => [...new Set(s.agents.map(agent => agent.pool))].sort().join('\n'));
  const yaml = (text: string): string | null => metadataOf(text).problem;
  const fields: FormField[] = [
    { key: 'resource_pool', label: 'Resource pool', most: 200, offers: pools.split('\n').filter(Boolean), about: 'Empty: that of the cluster.' },
    { key: 'checkpoint_storage', label: 'Checkpoint storage', rows: 4, mono: true, check: yaml, about: 'As in a config, without keys and passwords: type: s3, bucket: … on lines of their own.' },
    { key: 'template', label: 'Template', most: 200, about: 'One of this workspace, by its name: it is laid under each experiment. Empty: none.' },
    ...(all ? OF_CLUSTER_ADMINS.map(one => ({ ...one, rows: 6, mono: true, check: yaml })) : [])
  ];
  const now = workspace.defaults;
  const save = async (values: Record<string, string>): Promise<void> => {
    const defaults = {
      ...now, resource_pool: values.resource_pool!.trim(), checkpoint_storage: metadataOf(values.checkpoint_storage!).value, template: values.template!.trim(),
      ...Object.fromEntries((all ? OF_CLUSTER_ADMINS : []).map(({ key }) => [key, metadataOf(values[key]!).value]))
    };
    const body: EditWorkspace = { defaults };
    onSaved(await api.post<WorkspaceView>(`${workspacePath(workspace.id)}/edit`, body));
  };
  const start = {
    resource_pool: now.resource_pool, checkpoint_storage: metadataText(now.checkpoint_storage), template: now.template ?? '',
    environment: metadataText(now.environment), task_container_defaults: metadataText(now.task_container_defaults ?? {})
  };
  return <FieldsForm label="Change the defaults" fields={fields} start={start} yes="Save" onSubmit={save} onCancel={onCancel} />;
}

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
  { key: 'environment', label: 'Environment', who: 'Only administrators of the cluster may set it.' }
];

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
            <dd><Value value={workspace.defaults[key]} /><small className="det-soft">{who}</small></dd>
          </div>
        ))}
      </dl>
      <div className="det-controls"><ActionButton label="Change …" why={notAdmin(me, workspace)} onRun={() => setEditing(true)} /></div>
    </div>
  );
}

function Value({ value }: { value: DefaultsView[keyof DefaultsView] }): ReactElement {
  if (typeof value === 'string') return <p className="det-defaults-value">{value ? nameText(value, 300) : 'none: that of the cluster'}</p>;
  if (!Object.keys(value).length) return <p className="det-defaults-value">none</p>;
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
    ...(all ? [{ key: 'environment', label: 'Environment', rows: 6, mono: true, check: yaml, about: 'As in a config; it decides what code the members\' tasks run.' }] : [])
  ];
  const now = workspace.defaults;
  const save = async (values: Record<string, string>): Promise<void> => {
    const defaults = {
      ...now, resource_pool: values.resource_pool!.trim(), checkpoint_storage: metadataOf(values.checkpoint_storage!).value,
      environment: all ? metadataOf(values.environment!).value : now.environment
    };
    const body: EditWorkspace = { defaults };
    onSaved(await api.post<WorkspaceView>(`${workspacePath(workspace.id)}/edit`, body));
  };
  const start = { resource_pool: now.resource_pool, checkpoint_storage: metadataText(now.checkpoint_storage), environment: metadataText(now.environment) };
  return <FieldsForm label="Change the defaults" fields={fields} start={start} yes="Save" onSubmit={save} onCancel={onCancel} />;
}

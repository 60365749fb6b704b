/** Config policies of the cluster and of workspaces: their YAML, changed as text; the master's objections stand at the form. */

import { ReactElement, useState } from 'react';
import { stringify } from 'yaml';

import { useApp, useStore } from '../../state/context';
import type { PolicyView, UserView, WorkspaceView } from '../../state/wire';
import { FieldsForm, metadataOf, type FormField } from '../admin/fields';
import { Ago } from '../admin/parts';
import { ActionButton, ErrorBanner, Loading } from '../common';
import { useAct, useGet } from '../common/loading/load';
import { nameText, visible } from '../common/text';
import { readOnly } from '../view/actions';
import { notAdmin, workspaceName } from '../workspaces/model';
import { Warned } from './Warned';

type Workload = PolicyView['workload'];

const WORKLOADS: readonly [Workload, string][] = [['experiment', 'Experiments'], ['tasks', 'Notebooks, shells, commands and other tasks']];
const SAMPLE = 'invariant_config: merged over every config. constraints: resources.max_slots, and priority_limit, the best priority.';

export function Policies({ shared }: { shared: readonly WorkspaceView[] }): ReactElement {
  const me = useStore(s => s.me);
  const [chosen, setChosen] = useState('');
  const workspace = shared.find(one => String(one.id) === chosen) ?? null;
  return (
    <>
      {shared.length > 0 && (
        <div className="det-adm-filters">
          <label>
            Of{' '}
            <select className="det-input det-told-hook" value={chosen} onChange={e => setChosen(e.target.value)}>
              <option value="">the cluster</option>
              {shared.map(one => <option key={one.id} value={one.id}>{workspaceName(one, me?.name ?? '')}</option>)}
            </select>
          </label>
        </div>
      )}
      {WORKLOADS.map(([workload, title]) => <Policy key={`${workload} ${chosen}`} workload={workload} title={title} workspace={workspace} />)}
    </>
  );
}

function notSetter(me: UserView | null, workspace: WorkspaceView | null): string | null {
  if (workspace) return notAdmin(me, workspace);
  return readOnly(me) ?? (me!.admin ? null : 'Only administrators may change policies of the cluster.');
}

/** What people edit: without what is not set. */
export function policyText(view: PolicyView): string {
  const { resources, priority_limit: priority } = view.constraints;
  const limits = { ...(resources.max_slots !== null && { resources: { max_slots: resources.max_slots } }), ...(priority !== null && { priority_limit: priority }) };
  const shown = { ...(Object.keys(view.invariant_config).length && { invariant_config: view.invariant_config }), ...(Object.keys(limits).length && { constraints: limits }) };
  return Object.keys(shown).length ? stringify(shown, { lineWidth: 0 }) : '';
}

function Policy({ workload, title, workspace }: { workload: Workload; title: string; workspace: WorkspaceView | null }): ReactElement {
  const { api, confirm } = useApp();
  const me = useStore(s => s.me);
  const act = useAct();
  const path = `config-policies?workload=${workload}${workspace ? `&workspace=${workspace.id}` : ''}`;
  const { data, error, reload } = useGet<PolicyView>(path);
  const [editing, setEditing] = useState(false);
  const [told, setTold] = useState<PolicyView['warnings']>([]);
  const why = notSetter(me, workspace);
  const of = `${title.toLowerCase()} of ${workspace ? nameText(workspace.name, 80) : 'the cluster'}`;
  const remove = async (): Promise<void> => {
    const question = { title: 'Delete the config policy?', body: `It holds for ${of}. What runs goes on as it is.`, yes: 'Delete', danger: true };
    if (!(await confirm(question)) || !(await act(() => api.del(path)))) return;
    setTold([]);
    reload();
  };
  const save = async (values: Record<string, string>): Promise<void> => {
    const body = { ...metadataOf(values.policy ?? '').value, workload, workspace: workspace ? String(workspace.id) : '' };
    const made = await api.replace<PolicyView>('config-policies', body);
    setTold(made.warnings);
    setEditing(false);
    reload();
  };
  const fields: FormField[] = [{ key: 'policy', label: `Policy for ${of}, as YAML`, rows: 12, mono: true, about: SAMPLE, check: text => metadataOf(text).problem }];
  const text = data ? policyText(data) : '';
  return (
    <div className="det-told-policy">
      <h3>{title}</h3>
      {error && <ErrorBanner error={error} what={title} onRetry={reload} />}
      {!data && !error && <Loading what="Loading the policy" />}
      <Warned items={told} />
      {data && editing && <FieldsForm label={`Policy for ${of}`} fields={fields} start={{ policy: text }} yes="Save" onSubmit={save} onCancel={() => setEditing(false)} />}
      {data && !editing && (
        <>
          {data.set_at === null ? <p className="det-soft">No policy is set.</p> : (
            <>
              <p className="det-soft">Set by {nameText(data.set_by, 60)} <Ago time={data.set_at} />. Credentials are masked.</p>
              <pre className="det-code-text" tabIndex={0} aria-label={`Policy for ${of}`}>{visible(text) || '{}'}</pre>
            </>
          )}
          <div className="det-told-acts">
            <ActionButton label={data.set_at === null ? 'Set' : 'Change'} why={why} onRun={() => setEditing(true)}>{data.set_at === null ? 'Set …' : 'Change …'}<span className="det-hidden"> for {of}</span></ActionButton>
            {data.set_at !== null && <ActionButton label="Delete" why={why} onRun={remove}>Delete …<span className="det-hidden"> that for {of}</span></ActionButton>}
          </div>
        </>
      )}
    </div>
  );
}

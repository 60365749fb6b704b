/** The user's rules: a list, and a form that makes one. */

import { ReactElement, useState } from 'react';

import { asApiError, type ApiError } from '../../../state/api';
import { useApp, useStore } from '../../../state/context';
import type { AlertRuleView, EmailView, SetAlertRule, WebhookView } from '../../../state/wire';
import { Ago, Go, Sheet } from '../../admin/parts';
import { ActionButton, EmptyState, ErrorBanner } from '../../common';
import { useAct } from '../../common/loading/load';
import { nameText } from '../../common/text';
import { readOnly } from '../../view/actions';
import { KIND_NAMES, KINDS, ruleWords, scopeWords, type RuleKind } from './rulewords';

interface Told {
  hooks: readonly WebhookView[];
  email: EmailView | null;
}

export function Rules({ items, hooks, email, reload }: Told & { items: readonly AlertRuleView[]; reload: () => void }): ReactElement {
  const { api, confirm } = useApp();
  const me = useStore(s => s.me);
  const act = useAct();
  const why = readOnly(me);
  const remove = async (rule: AlertRuleView): Promise<void> => {
    const question = { title: `Delete the rule “${ruleWords(rule)}”?`, body: `It looks at: ${scopeWords(rule)}. What it has told stays in your list.`, yes: 'Delete' };
    if ((await confirm(question)) && (await act(() => api.del(`alerts/rules/${rule.id}`)))) reload();
  };
  const head = (
    <>
      <th>When</th>
      <th>Of</th>
      <th>Told by</th>
      <th className="det-adm-roomy">Made</th>
      <th><span className="det-hidden">Actions</span></th>
    </>
  );
  return (
    <>
      {why === null && <AddRule hooks={hooks} email={email} reload={reload} />}
      {!items.length && <EmptyState title="No rules yet.">Code of yours that calls <code>alert</code> tells you without one.</EmptyState>}
      {items.length > 0 && (
        <Sheet label="Rules" head={head}>
          {items.map(rule => (
            <tr key={rule.id}>
              <td>{ruleWords(rule)}</td>
              <td><Scope rule={rule} /></td>
              <td><span className="det-adm-name"><bdi>{toldBy(rule, hooks)}</bdi></span></td>
              <td className="det-adm-roomy"><Ago time={rule.created_at} /></td>
              <td className="det-right">
                <ActionButton label="Delete" why={why} onRun={() => remove(rule)}>Delete …<span className="det-hidden"> rule {rule.id}: {ruleWords(rule)}</span></ActionButton>
              </td>
            </tr>
          ))}
        </Sheet>
      )}
    </>
  );
}

function Scope({ rule }: { rule: AlertRuleView }): ReactElement {
  const words = <span className="det-adm-name"><bdi>{scopeWords(rule)}</bdi></span>;
  if (rule.scope_id === null) return words;
  if (rule.scope === 'experiment') return <Go to={{ kind: 'experiment', id: rule.scope_id }}>{words}</Go>;
  return rule.scope === 'workspace' ? <Go to={{ kind: 'workspace', workspace: String(rule.scope_id) }}>{words}</Go> : words;
}

function toldBy(rule: AlertRuleView, hooks: readonly WebhookView[]): string {
  const hook = hooks.find(one => one.id === rule.webhook);
  const name = rule.webhook === null ? '' : `webhook ${hook ? nameText(hook.name, 80) : rule.webhook}`;
  return [rule.bell ? 'bell' : '', name, rule.email ? 'e-mail' : ''].filter(Boolean).join(', ');
}

interface Draft {
  kind: RuleKind;
  amount: string;
  pattern: string;
  scope: AlertRuleView['scope'];
  experiment: string;
  workspace: string;
  project: string;
  bell: boolean;
  email: boolean;
  webhook: string;
}

const BLANK: Draft = { kind: 'completed', amount: '', pattern: '', scope: 'owner', experiment: '', workspace: '', project: '', bell: true, email: false, webhook: '' };

/** Why a draft cannot be sent, or null; the master looks more closely. */
export function draftProblem(draft: Draft): string | null {
  const amount = Number(draft.amount);
  if (KINDS[draft.kind].unit && draft.amount.trim() !== '' && !(Number.isFinite(amount) && amount > 0)) return 'The amount must be a number above 0.';
  if (draft.kind === 'log' && !draft.pattern) return 'Enter what is looked for in lines.';
  if (draft.scope === 'experiment' && !/^\d{1,15}$/.test(draft.experiment.trim())) return 'Enter the id of an experiment, a number.';
  if (draft.scope === 'workspace' && !draft.workspace.trim()) return 'Enter a workspace.';
  if (draft.scope === 'project' && !draft.project.trim()) return 'Enter a project.';
  return draft.bell || draft.email || draft.webhook ? null : 'Choose how you are told.';
}

export function requestOf(draft: Draft): SetAlertRule {
  const { unit, times = 1 } = KINDS[draft.kind];
  const inPlace = draft.scope === 'workspace' || draft.scope === 'project';
  return {
    kind: draft.kind,
    amount: unit && draft.amount.trim() ? Number(draft.amount) * times : null,
    ...(draft.kind === 'log' ? { pattern: draft.pattern } : {}),
    experiment_id: draft.scope === 'experiment' ? Number(draft.experiment) : null,
    workspace: inPlace ? draft.workspace.trim() : '',
    project: draft.scope === 'project' ? draft.project.trim() : '',
    bell: draft.bell, email: draft.email, webhook: draft.webhook ? Number(draft.webhook) : null
  };
}

function AddRule({ hooks, email, reload }: Told & { reload: () => void }): ReactElement {
  const { api, notify } = useApp();
  const [draft, setDraft] = useState(BLANK);
  const [error, setError] = useState<ApiError | null>(null);
  const change = (part: Partial<Draft>): void => setDraft(old => ({ ...old, ...part }));
  const why = draftProblem(draft);
  const add = async (): Promise<void> => {
    if (why) return;
    setError(null);
    try {
      const made = await api.post<AlertRuleView>('alerts/rules', requestOf(draft));
      notify(`You will be told: ${ruleWords(made)}`, 'good');
      setDraft({ ...BLANK, kind: draft.kind });
      reload();
    } catch (caught) {
      setError(asApiError(caught));
    }
  };
  return (
    <form className="det-told-form" aria-label="Add a rule" onSubmit={event => { event.preventDefault(); void add(); }}>
      <div className="det-adm-filters">
        <label>
          When{' '}
          <select className="det-input" value={draft.kind} onChange={e => change({ kind: e.target.value as RuleKind, amount: '' })}>
            {KIND_NAMES.map(kind => <option key={kind} value={kind}>{KINDS[kind].label}</option>)}
          </select>
        </label>
        {KINDS[draft.kind].unit && (
          <label>
            {draft.kind === 'plateau' || draft.kind === 'waiting' ? 'for ' : draft.kind === 'improved' ? 'by ' : 'to '}
            <input
              className="det-input det-num" aria-label={`Amount in ${KINDS[draft.kind].unit}`} inputMode="decimal" size={5} placeholder={String(KINDS[draft.kind].usual)}
              value={draft.amount} onChange={e => change({ amount: e.target.value })}
            />{' '}{KINDS[draft.kind].unit}
          </label>
        )}
        {draft.kind === 'log' && (
          <input
            className="det-input det-grow" aria-label="Regular expression" placeholder="loss is (nan|inf)" autoComplete="off" spellCheck={false} maxLength={500}
            title="A regular expression of RE2; told once of each trial" value={draft.pattern} onChange={e => change({ pattern: e.target.value })}
          />
        )}
      </div>
      <ScopeFields draft={draft} change={change} />
      <ToldFields draft={draft} change={change} hooks={hooks} email={email} />
      {error && <ErrorBanner error={error} />}
      <div><ActionButton label="Add the rule" primary why={why} onRun={add} /></div>
      <button type="submit" hidden />
    </form>
  );
}

function ScopeFields({ draft, change }: { draft: Draft; change: (part: Partial<Draft>) => void }): ReactElement {
  const text = (key: 'experiment' | 'workspace' | 'project', label: string, holder: string): ReactElement => (
    <input className="det-input" aria-label={label} placeholder={holder} autoComplete="off" value={draft[key]} onChange={e => change({ [key]: e.target.value })} />
  );
  return (
    <div className="det-adm-filters">
      <label>
        Of{' '}
        <select className="det-input" value={draft.scope} onChange={e => change({ scope: e.target.value as Draft['scope'] })}>
          <option value="owner">all of mine</option>
          <option value="experiment">one experiment</option>
          <option value="workspace">a workspace</option>
          <option value="project">a project</option>
        </select>
      </label>
      {draft.scope === 'experiment' && text('experiment', 'Id of the experiment', 'Its id')}
      {(draft.scope === 'workspace' || draft.scope === 'project') && text('workspace', 'Workspace', draft.scope === 'project' ? 'Workspace; empty: yours' : 'NAME or OWNER/NAME')}
      {draft.scope === 'project' && text('project', 'Project', 'Project')}
    </div>
  );
}

function ToldFields({ draft, change, hooks, email }: Told & { draft: Draft; change: (part: Partial<Draft>) => void }): ReactElement {
  return (
    <div className="det-adm-filters" role="group" aria-label="Told by">
      <span>Told by</span>
      <label className="det-adm-check"><input type="checkbox" checked={draft.bell} onChange={e => change({ bell: e.target.checked })} /> the bell</label>
      {email?.address && (
        <label className="det-adm-check"><input type="checkbox" checked={draft.email} onChange={e => change({ email: e.target.checked })} /> e-mail</label>
      )}
      {hooks.length > 0 && (
        <label>
          webhook{' '}
          <select className="det-input det-told-hook" value={draft.webhook} onChange={e => change({ webhook: e.target.value })}>
            <option value="">none</option>
            {hooks.map(one => <option key={one.id} value={one.id}>{nameText(one.name, 80)}</option>)}
          </select>
        </label>
      )}
    </div>
  );
}

/** The user's webhooks: a list with what was sent and given up, a test call, a form that makes one. */

import { ReactElement, useState } from 'react';

import { useApp, useStore } from '../../../state/context';
import type { CreateWebhook, WebhookCallList, WebhookView } from '../../../state/wire';
import { Dialog } from '../../admin/Dialog';
import { FieldsForm, type FormField } from '../../admin/fields';
import { Ago, Sheet } from '../../admin/parts';
import { ActionButton, EmptyState, ErrorBanner, formatTime, Loading } from '../../common';
import { CopyButton } from '../../common/CopyButton';
import { useAct, useGet } from '../../common/loading/load';
import { nameText } from '../../common/text';
import { readOnly } from '../../view/actions';
import { HOOK_KINDS, KINDS, ruleWords, scopeWords, type RuleKind } from './rulewords';

/** How often it is asked how a test call went, and ms between two looks. */
const LOOKS = 12;
const LOOK_AFTER = 700;

export function Webhooks({ items, reload }: { items: readonly WebhookView[]; reload: () => void }): ReactElement {
  const me = useStore(s => s.me);
  const why = readOnly(me);
  const [making, setMaking] = useState(false);
  const [made, setMade] = useState<WebhookView | null>(null);
  const head = (
    <>
      <th>Name</th>
      <th>Address</th>
      <th>Told of</th>
      <th className="det-right">Sent</th>
      <th className="det-right">Waiting</th>
      <th className="det-right">Given up</th>
      <th><span className="det-hidden">Actions</span></th>
    </>
  );
  return (
    <>
      <div><ActionButton label="New webhook …" why={why} onRun={() => setMaking(true)} /></div>
      {making && <NewWebhook onClose={() => setMaking(false)} onMade={view => { setMaking(false); setMade(view); reload(); }} />}
      {made !== null && <Secret of={made} onClose={() => setMade(null)} />}
      {!items.length && <EmptyState title="No webhooks yet.">A webhook is an address that is called when a rule has something to tell: a chat, or a program of yours.</EmptyState>}
      {items.length > 0 && <Sheet label="Webhooks" head={head}>{items.map(one => <Row key={one.id} hook={one} why={why} reload={reload} />)}</Sheet>}
    </>
  );
}

/** What signs its calls, once. */
function Secret({ of, onClose }: { of: WebhookView; onClose: () => void }): ReactElement {
  return (
    <div className="det-banner" data-tone="paused" role="status">
      <div>
        <p className="det-told-line">Webhook <b><bdi>{nameText(of.name, 100)}</bdi></b> is made.{of.format === 'default' && ' Its calls are signed with this secret, which is not shown again:'}</p>
        {of.format === 'default' && <p className="det-told-line"><code className="det-told-secret">{nameText(of.secret, 400)}</code> <CopyButton text={of.secret} what="the secret" /></p>}
      </div>
      <button type="button" className="det-button" onClick={onClose}>Done</button>
    </div>
  );
}

function Row({ hook, why, reload }: { hook: WebhookView; why: string | null; reload: () => void }): ReactElement {
  const { api, confirm } = useApp();
  const act = useAct();
  const test = useTest(hook, reload);
  const [open, setOpen] = useState(false);
  const name = nameText(hook.name, 100);
  const remove = async (): Promise<void> => {
    const question = { title: `Delete webhook ${name}?`, body: 'With it go its calls that wait, and the rules that only tell it.', yes: 'Delete', danger: true };
    if ((await confirm(question)) && (await act(() => api.del(`webhooks/${hook.id}`)))) reload();
  };
  return (
    <>
      <tr>
        <td><span className="det-adm-name"><bdi>{name}</bdi></span></td>
        <td title={hook.format === 'default' ? "Determined's payloads, signed" : undefined}>{hostOf(hook.url)} <span className="det-soft">{hook.format}</span></td>
        <td className="det-adm-wide">{hook.rules.map(rule => `${ruleWords(rule)} (${scopeWords(rule)})`).join('; ') || <span className="det-soft">no rule</span>}</td>
        <td className="det-right det-num">{hook.delivered}</td>
        <td className="det-right det-num">{hook.waiting}</td>
        <td className="det-right det-num">{hook.failed > 0 ? <b className="det-warn">{hook.failed}</b> : 0}</td>
        <td className="det-right">
          <span className="det-told-acts">
            {(hook.failed > 0 || hook.waiting > 0) && (
              <button type="button" className="det-button" aria-expanded={open} onClick={() => setOpen(!open)}>Calls<span className="det-hidden"> of {name}</span></button>
            )}
            <ActionButton label="Test" why={why} onRun={test}>Test<span className="det-hidden"> {name}</span></ActionButton>
            <ActionButton label="Delete" why={why} onRun={remove}>Delete …<span className="det-hidden"> {name}</span></ActionButton>
          </span>
        </td>
      </tr>
      {hook.error !== '' && <tr><td colSpan={7} className="det-adm-wide det-told-error">The last call failed: {nameText(hook.error, 600)}</td></tr>}
      {open && <tr><td colSpan={7}><Calls hook={hook} /></td></tr>}
    </>
  );
}

/** Where it calls, without the path: that of a chat is a secret. */
export function hostOf(url: string): string {
  try {
    return nameText(new URL(url).host, 80);
  } catch {
    return nameText(url, 80) || '–';
  }
}

/** Have a call sent, and say how it went. */
function useTest(hook: WebhookView, reload: () => void): () => Promise<void> {
  const { api, notify } = useApp();
  const act = useAct();
  return async () => {
    const name = nameText(hook.name, 80);
    await act(async () => {
      const before = await api.post<WebhookView>(`webhooks/${hook.id}/test`);
      for (let look = 0; look < LOOKS; look += 1) {
        await new Promise(resolve => window.setTimeout(resolve, LOOK_AFTER));
        const now = await api.get<WebhookView>(`webhooks/${hook.id}`);
        if (now.delivered > before.delivered) return notify(`${name} has taken the call.`, 'good');
        if (now.error && now.waiting) return notify(`${name}: ${nameText(now.error, 300)}`, 'bad');
      }
      notify(`${name}: the call has not gone through yet. The table says when it has.`, 'bad');
    });
    reload();
  };
}

function Calls({ hook }: { hook: WebhookView }): ReactElement {
  const { data, error, reload } = useGet<WebhookCallList>(`webhooks/${hook.id}/calls?limit=50`);
  if (error) return <ErrorBanner error={error} what="Calls" onRetry={reload} />;
  if (!data) return <Loading what="Loading the calls" />;
  return (
    <ul className="det-told-calls" aria-label={`Calls of ${nameText(hook.name, 80)}`}>
      {data.items.map(call => (
        <li key={call.id}>
          <b>{nameText(call.title, 200) || nameText(call.event, 80)}</b> <Ago time={call.created_at} />, {call.attempts === 1 ? 'tried once' : `tried ${call.attempts} times`};{' '}
          {call.due_at === null ? <span className="det-warn">given up</span> : `sent again ${formatTime(call.due_at)}`}
          {call.error && <span className="det-soft">: {nameText(call.error, 400)}</span>}
        </li>
      ))}
      {!data.items.length && <li>No calls wait, and none was given up.</li>}
      {data.next !== null && <li className="det-soft">Older ones: <code>det webhook calls {hook.id}</code></li>}
    </ul>
  );
}

const FIELDS: readonly FormField[] = [
  { key: 'name', label: 'Name', most: 100, required: true, check: text => (text.trim() ? null : 'A name is needed.') },
  { key: 'url', label: 'Address', most: 2000, required: true, about: 'It begins with https:// and must be public.', check: text => (/^https?:\/\/./.test(text.trim()) ? null : 'An address begins with https:// or http://.') },
  { key: 'workspace', label: 'Only of this workspace', most: 400, about: 'NAME or OWNER/NAME. Empty: all experiments of yours.' }
];

function NewWebhook({ onClose, onMade }: { onClose: () => void; onMade: (made: WebhookView) => void }): ReactElement {
  const { api } = useApp();
  const [format, setFormat] = useState<WebhookView['format']>('default');
  const [kinds, setKinds] = useState<ReadonlySet<RuleKind>>(new Set<RuleKind>(['completed', 'failed']));
  const make = async (values: Record<string, string>): Promise<void> => {
    const body: CreateWebhook = {
      name: values.name!.trim(), url: values.url!.trim(), format, triggers: HOOK_KINDS.filter(kind => kinds.has(kind)), workspace: values.workspace?.trim() ?? ''
    };
    onMade(await api.post<WebhookView>('webhooks', body));
  };
  const toggle = (kind: RuleKind): void => setKinds(old => new Set(old.has(kind) ? [...old].filter(one => one !== kind) : [...old, kind]));
  return (
    <Dialog title="New webhook" onClose={onClose}>
      <FieldsForm label="New webhook" fields={FIELDS} start={{}} yes="Create" dialog conflictAt="name" onSubmit={make} onCancel={onClose}>
        {() => (
          <>
            <label>
              Format{' '}
              <select className="det-input" value={format} onChange={e => setFormat(e.target.value as WebhookView['format'])}>
                <option value="default">Determined's payloads, signed</option>
                <option value="slack">Slack</option>
                <option value="teams">Teams</option>
                <option value="apprise">Apprise</option>
              </select>
            </label>
            <fieldset className="det-told-kinds">
              <legend>Told when</legend>
              {HOOK_KINDS.map(kind => (
                <label key={kind} className="det-adm-check"><input type="checkbox" checked={kinds.has(kind)} onChange={() => toggle(kind)} /> {ruleWords({ kind, amount: (KINDS[kind].usual ?? null) && KINDS[kind].usual! * (KINDS[kind].times ?? 1) })}</label>
              ))}
            </fieldset>
          </>
        )}
      </FieldsForm>
    </Dialog>
  );
}

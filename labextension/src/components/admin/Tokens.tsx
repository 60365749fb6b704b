/** detlab's own tokens: their holders and expiry; revoke them. */

import { useMemo, useState, type ReactElement } from 'react';

import { useApp } from '../../state/context';
import type { TokenList, TokenView } from '../../state/wire';
import { ActionButton, EmptyState, ErrorBanner, formatTime, Loading, plural } from '../common';
import { nameText } from '../common/text';
import { useAct, useGet, useReloadOn } from '../common/loading/load';
import { Ago, Sheet, View } from './parts';

const KINDS: Record<string, { name: string; effect: string }> = {
  agent: { name: 'node', effect: 'The node cannot reconnect without a new enrolment.' },
  enrol: { name: 'enrolment', effect: 'No more nodes can join with it; nodes that have joined keep their own keys.' },
  hub: { name: "Hub's spawner", effect: 'The Hub cannot start servers on nodes until it gets a new token.' },
  task: { name: 'task', effect: 'The task can no longer report: its results from now on are lost.' }
};

export function Tokens(): ReactElement {
  const { data, error, reload } = useGet<TokenList>('tokens');
  useReloadOn('cluster', reload);
  const [kind, setKind] = useState('');
  const items = useMemo(() => ranked(data?.items ?? []), [data]);
  const kinds = useMemo(() => [...new Set(items.map(item => item.kind))].sort(), [items]);
  const shown = kind ? items.filter(item => item.kind === kind) : items;
  return (
    <View
      title="Tokens"
      summary="Tokens of nodes, tasks and the Hub's spawner. Users' tokens belong to the Hub: users revoke them on the Hub's Token page."
    >
      {error && <ErrorBanner error={error} onRetry={reload} what="Tokens" />}
      {!data && !error && <Loading what="Loading the tokens" />}
      {data && !items.length && <EmptyState title="No tokens.">Enrol a node on the Nodes page to create one.</EmptyState>}
      {items.length > 0 && (
        <>
          <div className="det-adm-filters">
            <label>
              Kind{' '}
              <select className="det-input" value={kind} onChange={event => setKind(event.target.value)}>
                <option value="">all</option>
                {kinds.map(one => <option key={one} value={one}>{KINDS[one]?.name ?? one}</option>)}
              </select>
            </label>
            <span className="det-soft">{plural(shown.length, 'token')}</span>
          </div>
          <TokenSheet items={shown} reload={reload} />
        </>
      )}
    </View>
  );
}

/** Long-lived tokens first, then the many of tasks; within a kind as the master sends them, newest first. */
function ranked(items: readonly TokenView[]): TokenView[] {
  const order = Object.keys(KINDS);
  const rank = (item: TokenView): number => (order.includes(item.kind) ? order.indexOf(item.kind) : order.length);
  return [...items].sort((a, b) => rank(a) - rank(b));
}

function TokenSheet({ items, reload }: { items: TokenView[]; reload: () => void }): ReactElement {
  const head = (
    <>
      <th>Token</th>
      <th>Kind</th>
      <th>Holder</th>
      <th>Created</th>
      <th>Expires</th>
      <th><span className="det-hidden">Actions</span></th>
    </>
  );
  return (
    <Sheet label="Tokens" head={head}>
      {items.map(item => (
        <tr key={item.id}>
          <td className="det-mono">{item.id}</td>
          <td>{KINDS[item.kind]?.name ?? nameText(item.kind)}</td>
          <td className="det-adm-wide">{nameText(item.subject) || '–'}</td>
          <td><Ago time={item.created_at} /></td>
          <td>{item.expires_at ? formatTime(item.expires_at) : 'never'}</td>
          <td className="det-right"><Revoke item={item} reload={reload} /></td>
        </tr>
      ))}
    </Sheet>
  );
}

function Revoke({ item, reload }: { item: TokenView; reload: () => void }): ReactElement {
  const { api, confirm, notify } = useApp();
  const act = useAct();
  const known = KINDS[item.kind];
  const revoke = async (): Promise<void> => {
    const question = {
      title: `Revoke the ${known?.name ?? item.kind} token ${item.id}?`,
      body: `${item.subject ? `Holder: ${nameText(item.subject)}. ` : ''}${known?.effect ?? 'Requests with it will be refused.'}`,
      yes: 'Revoke',
      danger: true
    };
    if (!(await confirm(question))) return;
    if (!(await act(() => api.del(`tokens/${encodeURIComponent(item.id)}`)))) return;
    notify(`Token ${item.id} was revoked`, 'good');
    reload();
  };
  return (
    <ActionButton label="Revoke" danger onRun={revoke}>
      Revoke …<span className="det-hidden"> {item.id}</span>
    </ActionButton>
  );
}

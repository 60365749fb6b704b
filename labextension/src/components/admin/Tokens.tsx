/** detlab's own tokens: who holds which, until when; revoking. */

import { useMemo, useState, type ReactElement } from 'react';

import { useApp } from '../../state/context';
import type { TokenList, TokenView } from '../../state/wire';
import { ActionButton, EmptyState, ErrorBanner, formatTime, Loading, plural } from '../common';
import { nameText } from '../common/text';
import { useAct, useGet, useReloadOn } from '../common/load';
import { Ago, Sheet, View } from './parts';

const KINDS: Record<string, { word: string; void: string }> = {
  agent: { word: 'node', void: 'The node is cut off: it cannot connect again without a new enrolment.' },
  enrol: { word: 'enrolment', void: 'No node can join with it any more; those that did keep their own keys.' },
  hub: { word: "Hub's spawner", void: 'The Hub cannot start servers on nodes until it has a new one.' },
  task: { word: 'task', void: 'Its task cannot report any more: what it does from now on is lost.' }
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
      lead="What nodes, tasks and the Hub's spawner hold. Tokens of people are the Hub's own: each user revokes theirs on its Token page."
    >
      {error && <ErrorBanner error={error} onRetry={reload} what="Tokens" />}
      {!data && !error && <Loading what="Asking for the tokens" />}
      {data && !items.length && <EmptyState title="There is no token.">Enrol a node under Nodes to make one.</EmptyState>}
      {items.length > 0 && (
        <>
          <div className="det-adm-filters">
            <label>
              Kind{' '}
              <select className="det-input" value={kind} onChange={event => setKind(event.target.value)}>
                <option value="">all</option>
                {kinds.map(one => <option key={one} value={one}>{KINDS[one]?.word ?? one}</option>)}
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

/** The few that matter long before the many of tasks; newest first among equals, as they come. */
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
      <th>Of</th>
      <th>Made</th>
      <th>Expires</th>
      <th><span className="det-hidden">Actions</span></th>
    </>
  );
  return (
    <Sheet label="Tokens" head={head}>
      {items.map(item => (
        <tr key={item.id}>
          <td className="det-mono">{item.id}</td>
          <td>{KINDS[item.kind]?.word ?? nameText(item.kind)}</td>
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
      title: `Revoke the ${known?.word ?? item.kind} token ${item.id}?`,
      body: `It is of ${nameText(item.subject) || 'nobody in particular'}. ${known?.void ?? 'Whoever holds it is refused from now on.'}`,
      yes: 'Revoke',
      danger: true
    };
    if (!(await confirm(question))) return;
    if (!(await act(() => api.del(`tokens/${encodeURIComponent(item.id)}`)))) return;
    notify(`the token of ${nameText(item.subject) || item.kind} is revoked`, 'good');
    reload();
  };
  return (
    <ActionButton label="Revoke" danger onRun={revoke}>
      Revoke …<span className="det-hidden"> {item.id}</span>
    </ActionButton>
  );
}

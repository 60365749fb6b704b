/** Quotas: slots that a user or a group of the Hub may hold at a time; setting and lifting them. */

import { useState, type ReactElement } from 'react';

import { useApp, useStore } from '../../state/context';
import type { QuotaList, QuotaView } from '../../state/wire';
import { ActionButton, EmptyState, ErrorBanner, Loading, Progress } from '../common';
import { useQuotas, whose } from '../jobs';
import { nameText } from '../common/text';
import { Limits } from './Limits';
import { useAct } from '../common/load';
import { Ago, Sheet, View } from './parts';

const MOST = 1_000_000;

export function Quotas(): ReactElement {
  const { data, error, reload } = useQuotas();
  return (
    <View
      title="Quotas"
      lead="Slots that a user, or all users of a group together, may hold at a time, over all pools. Nothing that runs is ended by one."
    >
      {error && <ErrorBanner error={error} onRetry={reload} what="Quotas" />}
      {!data && !error && <Loading what="Asking for the quotas" />}
      <SetQuota reload={reload} />
      {data && !data.items.length && <EmptyState title="There is no quota.">Everybody may hold as many slots as are free.</EmptyState>}
      {data && data.items.length > 0 && <QuotaSheet items={data.items} reload={reload} />}
      <Limits />
    </View>
  );
}

function SetQuota({ reload }: { reload: () => void }): ReactElement {
  const { api, notify } = useApp();
  const act = useAct();
  const [kind, setKind] = useState<QuotaView['kind']>('user');
  const [name, setName] = useState('');
  const [slots, setSlots] = useState('');
  const count = Number(slots);
  const why = name.trim() === '' ? 'Say whose it is.'
    : slots.trim() === '' || !Number.isInteger(count) || count < 0 || count > MOST ? `Slots are a whole number from 0 to ${MOST}.` : null;
  const set = async (): Promise<void> => {
    if (why) return;
    if (!(await act(() => api.replace<QuotaList>('quotas', { kind, name: name.trim(), slots: count })))) return;
    notify(`${kind} ${nameText(name.trim())} may hold ${count} slots at a time`, 'good');
    setName('');
    setSlots('');
    reload();
  };
  return (
    <form
      className="det-adm-filters" aria-label="Set a quota"
      onSubmit={event => { event.preventDefault(); void set(); }}
    >
      <select
        className="det-input" aria-label="Whose" value={kind} onChange={event => setKind(event.target.value as QuotaView['kind'])}
      >
        <option value="user">user</option>
        <option value="group">group</option>
      </select>
      <input
        className="det-input" aria-label="Name" placeholder="Name in the Hub" value={name}
        onChange={event => setName(event.target.value)}
      />
      <input
        className="det-input det-num" aria-label="Slots" placeholder="Slots" inputMode="numeric" size={6} value={slots}
        onChange={event => setSlots(event.target.value)}
      />
      <ActionButton label="Set the quota" primary why={why} onRun={set} />
      <button type="submit" hidden />
    </form>
  );
}

function QuotaSheet({ items, reload }: { items: readonly QuotaView[]; reload: () => void }): ReactElement {
  const head = (
    <>
      <th>Whose</th>
      <th className="det-right">Slots</th>
      <th className="det-right">Held</th>
      <th><span className="det-hidden">In use</span></th>
      <th className="det-right" title="Slots that wait under it">Waiting</th>
      <th>Set by</th>
      <th>When</th>
      <th><span className="det-hidden">Actions</span></th>
    </>
  );
  const me = useStore(s => s.me?.name ?? '');
  return (
    <Sheet label="Quotas" head={head}>
      {items.map(quota => (
        <tr key={`${quota.kind} ${quota.name}`}>
          <td><span className="det-adm-name">{whose(quota, me)}</span></td>
          <td className="det-right det-num">{quota.slots}</td>
          <td className="det-right det-num">{quota.held}</td>
          <td className="det-adm-bar">
            <Progress
              value={quota.slots ? Math.min(quota.held / quota.slots, 1) : 1} label={`Quota of ${whose(quota, me)} in use`}
              tone={quota.held >= quota.slots ? 'waiting' : 'running'}
            />
          </td>
          <td className="det-right det-num">{quota.waiting}</td>
          <td>{nameText(quota.set_by) || '–'}</td>
          <td><Ago time={quota.set_at} /></td>
          <td className="det-right"><Lift quota={quota} reload={reload} /></td>
        </tr>
      ))}
    </Sheet>
  );
}

function Lift({ quota, reload }: { quota: QuotaView; reload: () => void }): ReactElement {
  const { api, confirm, notify } = useApp();
  const act = useAct();
  const name = `${quota.kind} ${nameText(quota.name)}`;
  const lift = async (): Promise<void> => {
    const question = { title: `Lift the quota of ${name}?`, body: 'They may hold as many slots as are free, at once.', yes: 'Lift' };
    if (!(await confirm(question))) return;
    const query = `kind=${quota.kind}&name=${encodeURIComponent(quota.name)}`;
    if (!(await act(() => api.del(`quotas?${query}`)))) return;
    notify(`${name} has no quota any more`, 'good');
    reload();
  };
  return (
    <ActionButton label="Lift" onRun={lift}>
      Lift …<span className="det-hidden"> the quota of {name}</span>
    </ActionButton>
  );
}

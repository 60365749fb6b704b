/** Quotas: how many slots a user or a group of the Hub may hold at a time; set and remove them. */

import { useState, type ReactElement } from 'react';

import { useApp, useStore } from '../../state/context';
import type { CostCapView, QuotaList, QuotaView, WorkspaceQuotaView } from '../../state/wire';
import { ActionButton, EmptyState, ErrorBanner, Loading, plural, Progress } from '../common';
import { useQuotas, whose } from '../jobs';
import { nameText } from '../common/text';
import { Limits } from './Limits';
import { useAct } from '../common/loading/load';
import { Ago, Go, Sheet, View } from './parts';

const MOST = 1_000_000;

type Kind = QuotaView['kind'] | 'workspace';
type Row = Pick<QuotaView, 'name' | 'slots' | 'held' | 'waiting'> & { kind: Kind } & Partial<Pick<QuotaView, 'set_by' | 'set_at'>>;

function ofWorkspace({ workspace, slots, held, waiting }: WorkspaceQuotaView): Row {
  return { kind: 'workspace', name: workspace, slots, held, waiting };
}

function ofWhom(quota: Row, me: string): string {
  return quota.kind === 'workspace' ? `workspace ${nameText(quota.name)}` : whose({ kind: quota.kind, name: quota.name }, me);
}

export function Quotas(): ReactElement {
  const { data, error, reload } = useQuotas();
  const rows = data ? [...data.items, ...(data.workspaces ?? []).map(ofWorkspace)] : [];
  return (
    <View
      title="Quotas"
      summary="How many slots a user, all users of a group together, or all that lies in a workspace may hold at a time across all pools. Running work is never ended by a quota."
    >
      {error && <ErrorBanner error={error} onRetry={reload} what="Quotas" />}
      {!data && !error && <Loading what="Loading the quotas" />}
      <SetQuota reload={reload} />
      {data && !rows.length && <EmptyState title="No quotas of slots.">Users may hold as many slots as are free.</EmptyState>}
      {rows.length > 0 && <QuotaSheet items={rows} reload={reload} />}
      {data && (data.costs ?? []).length > 0 && <Caps items={data.costs} currency={data.currency} />}
      <Limits />
    </View>
  );
}

function SetQuota({ reload }: { reload: () => void }): ReactElement {
  const { api, notify } = useApp();
  const act = useAct();
  const [kind, setKind] = useState<Kind>('user');
  const [name, setName] = useState('');
  const [slots, setSlots] = useState('');
  const count = Number(slots);
  const why = name.trim() === '' ? 'Enter the name of a user, group or workspace.'
    : slots.trim() === '' || !Number.isInteger(count) || count < 0 || count > MOST ? `Slots must be a whole number from 0 to ${MOST}.` : null;
  const set = async (): Promise<void> => {
    if (why) return;
    if (!(await act(() => api.replace<QuotaList>('quotas', { kind, name: name.trim(), slots: count })))) return;
    notify(`Quota of ${kind} ${nameText(name.trim())} set to ${plural(count, 'slot')}`, 'good');
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
        className="det-input" aria-label="Kind" value={kind} onChange={event => setKind(event.target.value as Kind)}
      >
        <option value="user">user</option>
        <option value="group">group</option>
        <option value="workspace">workspace</option>
      </select>
      <input
        className="det-input" aria-label="Name" placeholder={kind === 'workspace' ? 'OWNER/NAME' : 'Name in the Hub'} value={name}
        onChange={event => setName(event.target.value)}
      />
      <input
        className="det-input det-num" aria-label="Slots" placeholder="Slots" inputMode="numeric" size={6} value={slots}
        onChange={event => setSlots(event.target.value)}
      />
      <ActionButton label="Set quota" primary why={why} onRun={set} />
      <button type="submit" hidden />
    </form>
  );
}

function QuotaSheet({ items, reload }: { items: readonly Row[]; reload: () => void }): ReactElement {
  const head = (
    <>
      <th>Of</th>
      <th className="det-right">Slots</th>
      <th className="det-right">Held</th>
      <th><span className="det-hidden">In use</span></th>
      <th className="det-right" title="Slots requested in the queue">Queued</th>
      <th>Set by</th>
      <th>Set</th>
      <th><span className="det-hidden">Actions</span></th>
    </>
  );
  const me = useStore(s => s.me?.name ?? '');
  return (
    <Sheet label="Quotas" head={head}>
      {items.map(quota => (
        <tr key={`${quota.kind} ${quota.name}`}>
          <td><span className="det-adm-name">{ofWhom(quota, me)}</span></td>
          <td className="det-right det-num">{quota.slots}</td>
          <td className="det-right det-num">{quota.held}</td>
          <td className="det-adm-bar">
            <Progress
              value={quota.slots ? Math.min(quota.held / quota.slots, 1) : 1} label={`Quota of ${ofWhom(quota, me)} in use`}
              tone={quota.held >= quota.slots ? 'waiting' : 'running'}
            />
          </td>
          <td className="det-right det-num">{quota.waiting}</td>
          <td>{nameText(quota.set_by ?? '') || '–'}</td>
          <td>{quota.set_at === undefined ? '–' : <Ago time={quota.set_at} />}</td>
          <td className="det-right"><RemoveQuota quota={quota} reload={reload} /></td>
        </tr>
      ))}
    </Sheet>
  );
}

/** Caps of cost: experiments are paused at them, nothing is killed. */
function Caps({ items, currency }: { items: readonly CostCapView[]; currency: string }): ReactElement {
  const unit = currency ? ` (${nameText(currency, 20)})` : '';
  const head = (
    <>
      <th>Of</th>
      <th className="det-right">Cap{unit}</th>
      <th className="det-right">Used{unit}</th>
      <th>In</th>
      <th>Set by</th>
      <th>Set</th>
    </>
  );
  return (
    <>
      <h2>Caps of cost</h2>
      <p className="det-soft">At its cap experiments are paused, and nothing new starts. <code>det quota set --user ada --cost 500</code> sets one.</p>
      <Sheet label="Caps of cost" head={head}>
        {items.map(one => (
          <tr key={`${one.kind} ${one.name}`}>
            <td>{one.kind === 'experiment' ? <Go to={{ kind: 'experiment', id: Number(one.name) }}>experiment {nameText(one.name, 20)}</Go> : <span className="det-adm-name">{one.kind} <bdi>{nameText(one.name, 120)}</bdi></span>}</td>
            <td className="det-right det-num">{one.cost.toFixed(2)}</td>
            <td className="det-right det-num">{one.reached ? <b className="det-warn" title="It is reached">{one.used.toFixed(2)}</b> : one.used.toFixed(2)}</td>
            <td>{one.kind === 'experiment' ? 'all' : 'this month (UTC)'}</td>
            <td>{nameText(one.set_by, 60) || '–'}</td>
            <td><Ago time={one.set_at} /></td>
          </tr>
        ))}
      </Sheet>
    </>
  );
}

function RemoveQuota({ quota, reload }: { quota: Row; reload: () => void }): ReactElement {
  const { api, confirm, notify } = useApp();
  const act = useAct();
  const name = `${quota.kind} ${nameText(quota.name)}`;
  const remove = async (): Promise<void> => {
    const question = { title: `Remove the quota of ${name}?`, body: 'The slots held are then limited only by what is free. A quota of storage and a cap of cost stay.', yes: 'Remove' };
    if (!(await confirm(question))) return;
    // Those of bytes and the cap of cost stay.
    const query = `kind=${quota.kind}&name=${encodeURIComponent(quota.name)}&what=slots`;
    if (!(await act(() => api.del(`quotas?${query}`)))) return;
    notify(`Quota of ${name} removed`, 'good');
    reload();
  };
  return (
    <ActionButton label="Remove" onRun={remove}>
      Remove …<span className="det-hidden"> the quota of {name}</span>
    </ActionButton>
  );
}

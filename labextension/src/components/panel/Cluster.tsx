/** "Cluster": nodes, their slots, and who holds what. */

import type { ReactElement } from 'react';

import { useApp, useStore } from '../../state/context';
import type { AgentView, ExperimentView, SlotView, TaskView } from '../../state/wire';
import { Held, heldOn, holderOf } from '../admin/holders';
import { EmptyState, formatAge, plural, useNow } from '../common';
import { nameText } from '../logs/text';

export function Cluster({ filter }: { filter: string }): ReactElement {
  const agents = useStore(s => s.agents);
  const experiments = useStore(s => s.experiments);
  const tasks = useStore(s => s.tasks);
  const me = useStore(s => s.me?.name ?? '');
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const found = agents.filter(agent => words.every(word => `${agent.id} ${agent.state}`.toLowerCase().includes(word)));
  if (!agents.length) {
    return (
      <EmptyState title="No nodes.">
        <p>Nothing can run until an agent is connected. On the machine with the GPUs: <code>det agent run</code></p>
      </EmptyState>
    );
  }
  if (!found.length) return <EmptyState title={`No node matches “${filter}”.`} />;
  return (
    <ul className="det-list" aria-label="Nodes">
      {found.map(agent => <Node key={agent.id} agent={agent} experiments={experiments} tasks={tasks} me={me} />)}
    </ul>
  );
}

function Node({ agent, experiments, tasks, me }: {
  agent: AgentView; experiments: readonly ExperimentView[]; tasks: readonly TaskView[]; me: string;
}): ReactElement {
  const now = useNow();
  const free = agent.slots.filter(slot => slot.enabled && !slot.allocation_id).length;
  const held = heldOn(agent, experiments, tasks);
  const kinds = [...new Set(agent.slots.map(slot => slot.name || slot.kind))];
  return (
    <li className="det-item">
      <div className="det-item-head">
        <strong className="det-ellipsis" title={nameText(agent.address)}>{nameText(agent.id)}</strong>
        {agent.state !== 'connected' && (
          <span className="det-warn" title={`last heard of ${formatAge(agent.last_seen, now)} ago`}>{agent.state}</span>
        )}
        {!agent.enabled && (
          <span className="det-warn" title="nothing new starts">{agent.mode === 'enabled' ? 'disabled' : agent.mode}</span>
        )}
        <span className="det-age det-num">{free}/{plural(agent.slots.length, 'slot')} free</span>
      </div>
      <ul className="det-slots" aria-label={`Slots of ${nameText(agent.id)}`}>
        {agent.slots.map(slot => <Slot key={slot.id} slot={slot} experiments={experiments} tasks={tasks} me={me} />)}
      </ul>
      {kinds.length > 0 && <div className="det-facts"><span className="det-ellipsis">{nameText(kinds.join(', '))}</span></div>}
      {held.map(one => <Holding key={one.holder.what} held={one} me={me} />)}
    </li>
  );
}

function Slot({ slot, experiments, tasks, me }: {
  slot: SlotView; experiments: readonly ExperimentView[]; tasks: readonly TaskView[]; me: string;
}): ReactElement {
  const holder = holderOf(slot, experiments, tasks);
  const mine = holder !== null && holder.owner === me;
  const kind = !slot.enabled ? 'disabled' : holder === null ? 'free' : mine ? 'mine' : 'taken';
  const who = holder ? `${holder.what}${mine ? ' (you)' : holder.owner ? ` (${nameText(holder.owner)})` : ''}` : kind;
  const text = `slot ${slot.id}: ${who}`;
  return <li className="det-slot" data-slot={kind} title={text} aria-label={text} />;
}

function Holding({ held, me }: { held: Held; me: string }): ReactElement {
  const app = useApp();
  const { holder, slots } = held;
  const owner = holder.owner === me ? 'you' : nameText(holder.owner) || 'somebody else';
  const name = holder.name ? `${holder.what} · ${holder.name}` : holder.what;
  return (
    <div className="det-facts det-holding">
      {holder.place
        ? (
          <button type="button" className="det-link det-ellipsis" title={name} onClick={() => app.navigate(holder.place!)}>
            {name}
          </button>
        )
        : <span className="det-ellipsis" title={name}>{name}</span>}
      <span className="det-ellipsis">{owner}</span>
      <span className="det-age det-num">{plural(slots.length, 'slot')}</span>
    </div>
  );
}

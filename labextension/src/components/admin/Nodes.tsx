/** Nodes: their slots and who holds them; for administrators also enable, disable, drain, remove, enrol. */

import { useState, type ReactElement } from 'react';

import { useApp, useStore } from '../../state/context';
import type { AgentView, BatchSystemView, PoolView } from '../../state/wire';
import { ActionButton, EmptyState, Loading, plural } from '../common';
import { BatchNotes, CloudNotes, NODE_VERBS, schedulerWord, changeNode, useInstances, usePools, type NodeVerb } from '../jobs';
import { nameText } from '../common/text';
import { Enrol } from './Enrol';
import { heldOn, isClosed, slotlessOn, slotNotes, taskWord, type Held } from './holders';
import { useAct } from '../common/loading/load';
import { Ago, Go, Sheet, View } from './parts';

const WORDS: Record<AgentView['state'], string> = {
  connected: 'connected',
  suspect: 'not responding',
  lost: 'lost'
};

export function Nodes({ title, manage = false }: { title: string; manage?: boolean }): ReactElement {
  const { ready, agents, cluster } = useStore(snapshot => snapshot);
  const [enrolling, setEnrolling] = useState(false);
  const pools = usePools();
  const taken = agents.reduce((sum, agent) => sum + agent.slots.filter(slot => slot.allocation_id).length, 0);
  const all = agents.reduce((sum, agent) => sum + agent.slots.length, 0);
  const summary = ready ? `${plural(agents.length, 'node')}, ${taken} of ${plural(all, 'slot')} in use` : undefined;
  const tools = manage && <ActionButton label="Enrol a node …" primary onRun={() => setEnrolling(true)} />;
  return (
    <View title={title} summary={summary} tools={tools}>
      <Pools pools={pools} />
      {enrolling && <Enrol onClose={() => setEnrolling(false)} />}
      {!ready && <Loading what="Loading the nodes" />}
      {ready && !agents.length && (
        <EmptyState title="No nodes are connected: nothing can run.">
          {manage ? '“Enrol a node” creates a token and shows the command to run there. ' : 'An administrator can enrol one. '}
          On the machine of this service, <code>det status</code> tells why its own agent is missing.
        </EmptyState>
      )}
      <ul className="det-adm-nodes">
        {agents.map(agent => (
          <li key={agent.id}>
            <Node
              agent={agent} version={cluster?.version ?? ''} manage={manage}
              batch={pools.find(pool => pool.name === agent.pool)?.batch ?? null}
            />
          </li>
        ))}
      </ul>
    </View>
  );
}

/** The pools: scheduler, slots in use, queue, and the instances that an elastic pool is launching. */
function Pools({ pools }: { pools: readonly PoolView[] }): ReactElement | null {
  const clouds = useInstances(pools.some(pool => pool.elastic));
  if (pools.length < 2 && !pools.some(pool => pool.elastic || pool.batch)) return null;
  const head = (
    <>
      <th>Pool</th>
      <th className="det-adm-roomy">Scheduler</th>
      <th className="det-right det-adm-roomy">Nodes</th>
      <th className="det-right" title="Slots in use / all slots">Slots</th>
      <th className="det-right" title="Tasks in the queue">Queued</th>
      <th>Description</th>
    </>
  );
  return (
    <Sheet label="Pools" head={head}>
      {pools.map(pool => (
        <tr key={pool.name}>
          <td>{nameText(pool.name)}</td>
          <td className="det-adm-roomy">{schedulerWord(pool)}</td>
          <td className="det-right det-num det-adm-roomy" title={closedWords(pool)}>{pool.agents}{pool.agents_closed > 0 && ` (${pool.agents_closed} unavailable)`}</td>
          <td className="det-right det-num">{pool.slots_used}/{pool.slots_total}</td>
          <td className="det-right det-num" title={`${plural(pool.slots_waiting, 'slot')} requested`}>{pool.tasks_waiting}</td>
          <td className="det-adm-wide">
            {nameText(pool.description, 200)}
            {pool.batch && <BatchNotes batch={pool.batch} />}
            {pool.elastic && <CloudNotes pool={pool} cloud={clouds.find(one => one.name === pool.name)} />}
          </td>
        </tr>
      ))}
    </Sheet>
  );
}

function closedWords(pool: PoolView): string | undefined {
  return pool.agents_closed ? `${plural(pool.agents_closed, 'node')} disabled or draining` : undefined;
}

const CLOSED = {
  disabled: 'Running work continues; nothing new starts.',
  draining: 'Nothing new starts. Running work moves to other nodes, finishes, or is killed at the deadline.',
  drained: 'Nothing is running and nothing new starts: the machine can be switched off.'
};

/** The label of an agent on which nothing new starts. */
function closedAs({ mode }: AgentView): keyof typeof CLOSED {
  return mode === 'draining' || mode === 'drained' ? mode : 'disabled';
}

function Node({ agent, version, manage, batch }: {
  agent: AgentView; version: string; manage: boolean; batch: BatchSystemView | null;
}): ReactElement {
  const experiments = useStore(snapshot => snapshot.experiments);
  const tasks = useStore(snapshot => snapshot.tasks);
  const held = heldOn(agent, experiments, tasks);
  const slotless = slotlessOn(agent, tasks);
  const shown = agent.state !== 'connected' ? WORDS[agent.state] : !agent.enabled ? closedAs(agent) : isClosed(agent) ? 'closed' : 'connected';
  const tone = agent.state === 'lost' ? 'bad' : shown === 'connected' ? 'good' : 'off';
  return (
    <article className="det-adm-node" aria-label={`Node ${nameText(agent.id)}`} data-state={shown}>
      <header>
        <h2>{nameText(agent.id)}</h2>
        <span className="det-badge" data-tone={tone}>
          {shown}
        </span>
        {manage && <NodeActions agent={agent} />}
      </header>
      {!agent.enabled && <p className="det-adm-note">{CLOSED[closedAs(agent)]}</p>}
      {agent.note && <p className="det-adm-note">{nameText(agent.note, 200)}</p>}
      {batch ? <BatchNotes batch={batch} /> : <Slots agent={agent} held={held} manage={manage} />}
      <Holders held={held} slotless={slotless} manage={manage} />
      <dl className="det-adm-facts">
        <dt>Pool</dt>
        <dd>{nameText(agent.pool) || '–'}</dd>
        <dt>Runtimes</dt>
        <dd>{agent.runtimes.join(', ') || 'none'}</dd>
        <dt>Users</dt>
        <dd>{agent.serves_user === null ? 'all users' : nameText(agent.serves_user)}</dd>
        <dt>Version</dt>
        <dd>
          {nameText(agent.version) || '–'}
          {version && agent.version && agent.version !== version && (
            <span className="det-adm-warn"> (master: {version})</span>
          )}
        </dd>
        <dt>Address</dt>
        <dd>{nameText(agent.address) || '–'}</dd>
        <dt>Last seen</dt>
        <dd>
          <Ago time={agent.last_seen} />
        </dd>
        <dt>Enrolled</dt>
        <dd>
          <Ago time={agent.enrolled_at} />
        </dd>
      </dl>
    </article>
  );
}

function NodeActions({ agent }: { agent: AgentView }): ReactElement {
  const app = useApp();
  const { api, store, confirm, notify } = app;
  const act = useAct();
  const at = `agents/${encodeURIComponent(agent.id)}`;
  const manage = async (verb: NodeVerb): Promise<void> => {
    await act(() => changeNode(app, agent, verb));
  };
  const remove = async (): Promise<void> => {
    const runs = agent.running ? ` The ${plural(agent.running, 'task')} on it will be lost; trials restart elsewhere.` : '';
    const body = `Its key is revoked immediately: it cannot reconnect without a new enrolment.${runs}`;
    if (!(await confirm({ title: `Remove ${nameText(agent.id)}?`, body, yes: 'Remove node', danger: true }))) return;
    if (!(await act(() => api.del(at)))) return;
    notify(`${nameText(agent.id)} was removed`, 'good');
    await store.refresh();
  };
  return (
    <div className="det-adm-tools">
      {NODE_VERBS.filter(verb => verb.fits(agent)).map(verb => (
        <ActionButton key={verb.key} label={verb.label} onRun={() => manage(verb)}>
          {verb.label} …<span className="det-hidden"> {nameText(agent.id)}</span>
        </ActionButton>
      ))}
      <ActionButton label="Remove" danger onRun={remove}>
        Remove …<span className="det-hidden"> {nameText(agent.id)}</span>
      </ActionButton>
    </div>
  );
}

function Slots({ agent, held, manage }: { agent: AgentView; held: Held[]; manage: boolean }): ReactElement {
  const speaksFor = useStore(snapshot => snapshot.agents.filter(one => one.id.startsWith(`${agent.id}/`)).length);
  if (!agent.slots.length) {
    if (speaksFor) return <p className="det-soft">Connects {plural(speaksFor, 'node')} of its cluster, each listed by itself.</p>;
    return <p className="det-soft">No slots: only tasks that need none run here.</p>;
  }
  const taken = agent.slots.filter(slot => slot.allocation_id).length;
  return (
    <>
      <SlotGrid agent={agent} held={held} manage={manage} />
      <p className="det-soft">
        {[`${taken} of ${plural(agent.slots.length, 'slot')} in use`, ...slotNotes(agent)].join(', ')}
        {agent.slots[0]?.name ? `, ${nameText(agent.slots[0].name)}` : ''}
      </p>
    </>
  );
}

/** To administrators each holder has a colour; to others blue is theirs, and grey is not. */
function colourOf(one: Held, place: number, me: string, manage: boolean): number | 'others' {
  return manage ? place % 8 : one.holder.owner === me ? 0 : 'others';
}

function SlotGrid({ agent, held, manage }: { agent: AgentView; held: Held[]; manage: boolean }): ReactElement {
  const me = useStore(snapshot => snapshot.me?.name ?? '');
  const holderAt = new Map(held.flatMap((one, i) => one.slots.map(slot => [slot.id, { holder: one.holder, colour: colourOf(one, i, me, manage) }])));
  return (
    <ul className="det-adm-slots" aria-label={`Slots of ${nameText(agent.id)}`}>
      {agent.slots.map(slot => {
        const found = holderAt.get(slot.id);
        const state = found ? `${found.holder.what}${found.holder.owner ? ` of ${nameText(found.holder.owner)}` : ''}` : slot.enabled ? 'free' : nameText(slot.note, 200) || 'disabled';
        return (
          <li
            key={slot.id}
            className="det-adm-slot"
            data-colour={found?.colour}
            data-free={found ? undefined : ''}
            data-off={slot.enabled ? undefined : slot.note ? 'note' : ''}
            title={`slot ${slot.id}, ${slot.kind}: ${state}`}
          >
            {slot.id}
            <span className="det-hidden">: {state}</span>
          </li>
        );
      })}
    </ul>
  );
}

function Holders(props: { held: Held[]; slotless: ReturnType<typeof slotlessOn>; manage: boolean }): ReactElement | null {
  const me = useStore(snapshot => snapshot.me?.name ?? '');
  if (!props.held.length && !props.slotless.length) return null;
  return (
    <ul className="det-adm-holders" aria-label="Slot holders">
      {props.held.map(({ holder, slots }, i) => (
        <li key={holder.what}>
          <span className="det-adm-slot" data-colour={colourOf({ holder, slots }, i, me, props.manage)} aria-hidden="true">
            {slots.length}
          </span>
          <span>
            {holder.place ? <Go to={holder.place}>{holder.what}</Go> : holder.what}
            {holder.name && <span className="det-adm-name"> {holder.name}</span>}
            {holder.owner && <span className="det-soft"> of {nameText(holder.owner)}</span>}
            <span className="det-soft">, {plural(slots.length, 'slot')}</span>
          </span>
        </li>
      ))}
      {props.slotless.map(task => (
        <li key={task.id}>
          <span className="det-adm-slot" data-free="" aria-hidden="true">
            0
          </span>
          <span>
            <Go to={{ kind: 'task', id: task.id }}>{taskWord(task)}</Go>
            <span className="det-adm-name"> {nameText(task.name)}</span>
            <span className="det-soft"> of {nameText(task.owner)}, no slots</span>
          </span>
        </li>
      ))}
    </ul>
  );
}

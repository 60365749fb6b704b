/** "Cluster": nodes, their slots, and who holds what. */

import type { ReactElement } from 'react';

import { everyItem } from '../../state/api';
import { useApp, useStore, type Place } from '../../state/context';
import type { AgentView, ElasticPoolView, ExperimentView, JobView, PoolView, SlotView, TaskView } from '../../state/wire';
import { Held, heldOn, holderOf, isClosed, OTHERS, slotNotes } from '../admin/holders';
import { useReloadOn } from '../common/loading/load';
import { EmptyState, formatAgo, Menu, plural, useLoaded, useNow, type Action } from '../common';
import { BatchNotes, CloudNotes, NODE_VERBS, schedulerWord, changeNode, useInstances, usePools } from '../jobs';
import { nameText } from '../common/text';
import { attempt } from './workactions';

export function Cluster({ filter }: { filter: string }): ReactElement {
  const agents = useStore(s => s.agents);
  const experiments = useStore(s => s.experiments);
  const tasks = useStore(s => s.tasks);
  const me = useStore(s => s.me?.name ?? '');
  const known = usePools();
  const clouds = useInstances(known.some(pool => pool.elastic));
  const jobs = useOthersJobs();
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const found = agents.filter(agent => words.every(word => searched(agent).includes(word)));
  if (!agents.length && !known.some(pool => pool.elastic)) {
    return (
      <EmptyState title="No nodes.">
        <p>Nothing can run until an agent connects. Start one on the machine with the GPUs: <code>det agent run</code></p>
      </EmptyState>
    );
  }
  if (words.length && !found.length) return <EmptyState title={`No node matches “${filter}”.`} />;
  const pools = inPools(found, words.length ? [] : known);
  return (
    <ul className="det-list" aria-label="Nodes">
      {pools.map(({ name, agents: own }) => {
        const pool = known.find(one => one.name === name);
        return [
          (pools.length > 1 || pool?.elastic || pool?.batch) && (
            <PoolHead
              key={`pool ${name}`} name={name} pool={pool} agents={own} cloud={clouds.find(one => one.name === name)}
            />
          ),
          ...own.map(agent => (
            <Node
              key={agent.id} agent={agent} batch={Boolean(pool?.batch)} experiments={experiments} tasks={tasks} jobs={jobs} me={me}
            />
          ))
        ];
      })}
    </ul>
  );
}

/** All users' jobs, for administrators; the store of the panel has only the caller's own work. */
function useOthersJobs(): readonly JobView[] {
  const { api } = useApp();
  const admin = useStore(s => s.me?.admin ?? false);
  const { data, reload } = useLoaded(admin ? 'jobs' : null, signal => everyItem<JobView>(api, 'jobs', 'skip', signal));
  useReloadOn('cluster', reload, 3000);
  return data ?? [];
}

function searched(agent: AgentView): string {
  return `${agent.id} ${agent.state} ${agent.mode} ${agent.pool}`.toLowerCase();
}

/** Nodes by pool, in the operator's order of pools, including pools without nodes. */
function inPools(agents: readonly AgentView[], known: readonly PoolView[]): { name: string; agents: AgentView[] }[] {
  const found = new Map<string, AgentView[]>(known.map(pool => [pool.name, []]));
  for (const agent of agents) found.set(agent.pool, [...(found.get(agent.pool) ?? []), agent]);
  return [...found].map(([name, own]) => ({ name, agents: own }));
}

function PoolHead({ name, pool, agents, cloud }: {
  name: string; pool: PoolView | undefined; agents: readonly AgentView[]; cloud: ElasticPoolView | undefined;
}): ReactElement {
  const slots = agents.flatMap(agent => agent.slots);
  const used = slots.filter(slot => slot.allocation_id).length;
  return (
    <li className="det-item det-group det-pool">
      <div className="det-item-head">
        <strong className="det-ellipsis" title={nameText(pool?.description || name)}>{nameText(name)}</strong>
        {pool && <span className="det-ellipsis">{schedulerWord(pool)}{pool.elastic ? ', elastic' : ''}</span>}
        {slots.length > 0 && <span className="det-age det-num">{pool?.slots_used ?? used}/{pool?.slots_total ?? slots.length} in use</span>}
        {pool?.batch && <span className="det-age det-num">{pool.slots_used}/{pool.slots_total} in use or queued</span>}
      </div>
      {pool?.batch && <BatchNotes batch={pool.batch} />}
      {pool?.elastic ? <CloudNotes pool={pool} cloud={cloud} /> : !agents.length && <div className="det-reason">No agents.</div>}
    </li>
  );
}

/** Actions of administrators on a node. */
function NodeMenu({ agent }: { agent: AgentView }): ReactElement {
  const app = useApp();
  const actions = (): Action[] =>
    NODE_VERBS.filter(verb => verb.fits(agent)).map(verb => ({
      key: verb.key, label: `${verb.label} …`,
      run: () => attempt(app, `${verb.label} ${nameText(agent.id)}`, async () => { await changeNode(app, agent, verb); })
    }));
  return <Menu label={`Actions of node ${nameText(agent.id)}`} actions={actions} />;
}

function Node({ agent, batch, experiments, tasks, jobs, me }: {
  agent: AgentView; batch: boolean; experiments: readonly ExperimentView[]; tasks: readonly TaskView[]; jobs: readonly JobView[]; me: string;
}): ReactElement {
  const now = useNow();
  const admin = useStore(s => s.me?.admin ?? false);
  const free = agent.slots.filter(slot => slot.enabled && !slot.allocation_id).length;
  const held = heldOn(agent, experiments, tasks);
  const open = agent.state === 'connected' && agent.enabled;
  const counted = open && !batch && agent.slots.length > 0 && !isClosed(agent);
  const kinds = [...new Set(agent.slots.map(slot => slot.name || slot.kind))];
  return (
    <li className="det-item">
      <div className="det-item-head">
        <strong className="det-ellipsis" title={nameText([agent.id, agent.address].filter(Boolean).join(', '), 200)}>{nameText(agent.id)}</strong>
        {agent.state !== 'connected' && (
          <span className="det-warn" title={`last seen ${formatAgo(agent.last_seen, now)}`}>{agent.state}</span>
        )}
        {!agent.enabled && (
          <span className="det-warn" title="nothing new starts">{agent.mode === 'enabled' ? 'disabled' : agent.mode}</span>
        )}
        {open && isClosed(agent) && (
          <span className="det-warn" title="nothing new starts">closed</span>
        )}
        <span className="det-age det-num">{counted && `${free}/${plural(agent.slots.length, 'slot')} free`}</span>
        {admin && <NodeMenu agent={agent} />}
      </div>
      <ul className="det-slots" aria-label={`Slots of ${nameText(agent.id)}`}>
        {agent.slots.map(slot => <Slot key={slot.id} slot={slot} experiments={experiments} tasks={tasks} me={me} />)}
      </ul>
      {agent.note && <div className="det-reason">{nameText(agent.note, 200)}</div>}
      {slotNotes(agent).map(note => <div key={note} className="det-reason">{note}</div>)}
      {kinds.length > 0 && <div className="det-facts"><span className="det-ellipsis">{nameText(kinds.join(', '))}</span></div>}
      {held.map(one => <Holding key={one.holder.what} held={one} jobs={jobs} me={me} />)}
    </li>
  );
}

function Slot({ slot, experiments, tasks, me }: {
  slot: SlotView; experiments: readonly ExperimentView[]; tasks: readonly TaskView[]; me: string;
}): ReactElement {
  const holder = holderOf(slot, experiments, tasks);
  const mine = holder !== null && holder.owner === me;
  const kind = !slot.enabled ? 'disabled' : holder === null ? 'free' : mine ? 'mine' : 'taken';
  const idle = kind === 'disabled' && slot.note ? nameText(slot.note, 200) : kind;
  const who = holder ? `${holder.what}${mine ? ' (you)' : holder.owner ? ` (${nameText(holder.owner)})` : ''}` : idle;
  const text = `slot ${slot.id}: ${who}`;
  return <li className="det-slot" data-slot={kind} title={text} aria-label={text} />;
}

function Holding({ held, jobs, me }: { held: Held; jobs: readonly JobView[]; me: string }): ReactElement {
  const app = useApp();
  const { holder, slots } = held;
  const job = jobs.find(one => holder.what === `experiment ${one.id}`);
  const known = holder.owner || job?.owner || '';
  const owner = known === me ? 'you' : nameText(known) || 'others';
  const place: Place | null = holder.place ?? (job ? { kind: 'experiment', id: Number(job.id) } : null);
  const title = holder.name || nameText(job?.name ?? '');
  const name = title ? `${holder.what} · ${title}` : holder.what;
  return (
    <div className="det-facts det-holding">
      {place
        ? (
          <button type="button" className="det-link det-ellipsis" title={name} onClick={() => app.navigate(place)}>
            {name}
          </button>
        )
        : <span className="det-ellipsis" title={name}>{name}</span>}
      {holder.what !== OTHERS && <span className="det-ellipsis">{owner}</span>}
      <span className="det-age det-num">{plural(slots.length, 'slot')}</span>
    </div>
  );
}

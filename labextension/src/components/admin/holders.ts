/** Who holds which slot: an allocation's name says of which experiment or task it is. */

import type { Place } from '../../state/context';
import type { AgentView, ExperimentView, SlotView, TaskView } from '../../state/wire';
import { nameText } from '../common/text';

export interface Holder {
  /** `experiment 12`, `notebook-1a2b`; for grouping and for people. */
  what: string;
  /** Safe to show. */
  name: string;
  /** "" if the caller may not know. */
  owner: string;
  place: Place | null;
}

/** What holds slots of which this user may know nothing more: one task or several. */
export const OTHERS = 'work of others';

/** What holds a slot, or null if it is free. Of others' work a non-admin learns only that it is there. */
export function holderOf(
  slot: SlotView, experiments: readonly ExperimentView[], tasks: readonly TaskView[]
): Holder | null {
  const allocation = slot.allocation_id;
  if (!allocation) return null;
  const first = allocation.split('.')[0]!;
  if (/^\d+$/.test(first)) {
    const id = Number(first);
    const found = experiments.find(one => one.id === id);
    const place: Place = { kind: 'experiment', id };
    return { what: `experiment ${id}`, name: nameText(found?.name ?? ''), owner: found?.owner ?? '', place: found ? place : null };
  }
  const task = tasks.find(one => one.id === first || allocation.startsWith(`${one.id}.`));
  if (!task) return { what: OTHERS, name: '', owner: '', place: null };
  return { what: taskWord(task), name: nameText(task.name), owner: task.owner, place: { kind: 'task', id: task.id } };
}

/** A task's kind and id; ids made by the master begin with the kind. */
export function taskWord(task: Pick<TaskView, 'id' | 'kind'>): string {
  return task.id.startsWith(task.kind) ? task.id : `${task.kind.replaceAll('_', ' ')} ${task.id}`;
}

export interface Held {
  holder: Holder;
  slots: SlotView[];
}

/** The holders of an agent's slots, each once, in the order of its slots. */
export function heldOn(
  agent: AgentView, experiments: readonly ExperimentView[], tasks: readonly TaskView[]
): Held[] {
  const found = new Map<string, Held>();
  for (const slot of agent.slots) {
    const holder = holderOf(slot, experiments, tasks);
    if (!holder) continue;
    const known = found.get(holder.what);
    if (known) known.slots.push(slot);
    else found.set(holder.what, { holder, slots: [slot] });
  }
  return [...found.values()];
}

/** Whether the cluster behind an agent lets nothing new start there, as its note says. */
export function isClosed(agent: AgentView): boolean {
  return agent.note !== '' && agent.slots.length > 0 && agent.slots.every(slot => !slot.enabled);
}

/** Why slots without a task take none, each reason with how many there are; what the node's own note says is left out. */
export function slotNotes(agent: AgentView): string[] {
  const counts = new Map<string, number>();
  for (const slot of agent.slots) {
    if (slot.enabled || slot.allocation_id || (agent.note !== '' && slot.note === agent.note)) continue;
    const note = nameText(slot.note, 200) || 'disabled';
    counts.set(note, (counts.get(note) ?? 0) + 1);
  }
  return [...counts].map(([note, count]) => `${count} ${note}`);
}

/** What runs on an agent without slots: notebooks and shells hold none. */
export function slotlessOn(agent: AgentView, tasks: readonly TaskView[]): TaskView[] {
  return tasks.filter(
    task => task.agent_id === agent.id && task.state === 'ACTIVE' && !task.slots.length && task.allocation_state !== null
  );
}

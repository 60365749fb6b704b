/** The work of all users, summed up per user. */

import { isOver } from '../../state/states';
import type { AgentView, ExperimentView, QueueItem, TaskView } from '../../state/wire';
import { holderOf } from './holders';

export interface Person {
  name: string;
  slots: number;
  experiments: number;
  tasks: number;
  waiting: number;
}

export interface Work {
  experiments: readonly ExperimentView[];
  tasks: readonly TaskView[];
  queue: readonly QueueItem[];
  agents: readonly AgentView[];
}

/** One row per user with active work; most slots first. */
export function people(work: Work): Person[] {
  const found = new Map<string, Person>();
  const of = (name: string): Person => {
    const known = found.get(name) ?? { name, slots: 0, experiments: 0, tasks: 0, waiting: 0 };
    found.set(name, known);
    return known;
  };
  for (const one of work.experiments) if (!isOver(one.state)) of(one.owner).experiments += 1;
  for (const one of work.tasks) if (!isOver(one.state)) of(one.owner).tasks += 1;
  for (const one of work.queue) of(one.owner).waiting += 1;
  for (const agent of work.agents) {
    for (const slot of agent.slots) {
      const holder = holderOf(slot, work.experiments, work.tasks);
      if (holder) of(holder.owner || 'another user').slots += 1;
    }
  }
  return [...found.values()].sort((a, b) => b.slots - a.slots || a.name.localeCompare(b.name));
}

/** How many slots each experiment or task holds, by its id. */
export function slotsHeld(agents: readonly AgentView[]): ReadonlyMap<string, number> {
  const found = new Map<string, number>();
  for (const slot of agents.flatMap(agent => agent.slots)) {
    const of = slot.allocation_id?.split('.')[0];
    if (of) found.set(of, (found.get(of) ?? 0) + 1);
  }
  return found;
}

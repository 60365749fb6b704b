/** The runtimes that the nodes of this cluster have now: a form offers only these. */

import type { Schema } from './schema';
import type { AgentView } from '../state/wire';

const WORDS = { process: 'runs processes', docker: 'has a container engine' } as const;

export type Runtime = keyof typeof WORDS;

/** Runtimes that no node available to this user has, and why they cannot be chosen. */
export function closedRuntimes(agents: readonly AgentView[], user: string): Partial<Record<Runtime, string>> {
  const there = agents.filter(agent => agent.state !== 'lost' && (agent.serves_user === null || agent.serves_user === user));
  const closed: Partial<Record<Runtime, string>> = {};
  for (const [runtime, word] of Object.entries(WORDS) as [Runtime, string][]) {
    if (!there.length) closed[runtime] = 'no node is connected now';
    else if (!there.some(agent => agent.runtimes.includes(runtime))) closed[runtime] = `no node ${word} now`;
  }
  return closed;
}

/** The schema of a config with those runtimes disabled. */
export function withClosedRuntimes(schema: Schema, closed: Partial<Record<Runtime, string>>): Schema {
  const runtime = schema.properties?.['runtime'];
  if (!runtime) return schema;
  return { ...schema, properties: { ...schema.properties, runtime: { ...runtime, 'x-closed': closed } } };
}

/** Which runtimes the nodes of this cluster have now: a form offers no other. */

import type { Schema } from './schema';
import type { AgentView } from '../state/wire';

const WORDS = { process: 'starts processes', docker: 'has a container engine' } as const;

export type Runtime = keyof typeof WORDS;

/** Why a runtime cannot be chosen now, of those that no node has which is there for this user. */
export function closedRuntimes(agents: readonly AgentView[], user: string): Partial<Record<Runtime, string>> {
  const there = agents.filter(agent => agent.state !== 'lost' && (agent.serves_user === null || agent.serves_user === user));
  const closed: Partial<Record<Runtime, string>> = {};
  for (const [runtime, word] of Object.entries(WORDS) as [Runtime, string][]) {
    if (!there.length) closed[runtime] = 'no node is connected now';
    else if (!there.some(agent => agent.runtimes.includes(runtime))) closed[runtime] = `no node ${word} now`;
  }
  return closed;
}

/** The schema of a config, in which those runtimes are closed. */
export function withClosedRuntimes(schema: Schema, closed: Partial<Record<Runtime, string>>): Schema {
  const runtime = schema.properties?.['runtime'];
  if (!runtime) return schema;
  return { ...schema, properties: { ...schema.properties, runtime: { ...runtime, 'x-closed': closed } } };
}

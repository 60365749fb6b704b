/** Which runtimes the nodes of this cluster have now: a form offers these, and closes those of detlab that no node has. */

import type { Schema } from './schema';
import type { AgentView } from '../state/wire';

/** The runtimes that come with detlab; agents may have others. */
const WORDS: Readonly<Record<string, string>> = { process: 'runs processes', docker: 'has a container engine' };

/** The agents that are there for this user. */
function thereFor(agents: readonly AgentView[], user: string): AgentView[] {
  return agents.filter(agent => agent.state !== 'lost' && (agent.serves_user === null || agent.serves_user === user));
}

/** The names that a form offers: those that come with detlab, then what else the nodes have. */
export function runtimeNames(agents: readonly AgentView[], user: string): string[] {
  const others = new Set(thereFor(agents, user).flatMap(agent => agent.runtimes));
  return [...Object.keys(WORDS), ...[...others].filter(name => !(name in WORDS)).sort()];
}

/** Why a runtime cannot be chosen now, of those that no node has which is there for this user. */
export function closedRuntimes(agents: readonly AgentView[], user: string): Partial<Record<string, string>> {
  const there = thereFor(agents, user);
  const closed: Partial<Record<string, string>> = {};
  for (const [runtime, word] of Object.entries(WORDS)) {
    if (!there.length) closed[runtime] = 'no node is connected now';
    else if (!there.some(agent => agent.runtimes.includes(runtime))) closed[runtime] = `no node ${word} now`;
  }
  return closed;
}

/** The schema of a config, whose key `runtime` is a choice of these; `agents` is null until they are known. */
export function withRuntimes(schema: Schema, agents: readonly AgentView[] | null, user: string): Schema {
  const runtime = schema.properties?.['runtime'];
  if (!runtime) return schema;
  const choice = { ...runtime, enum: runtimeNames(agents ?? [], user), 'x-closed': agents ? closedRuntimes(agents, user) : {} };
  return { ...schema, properties: { ...schema.properties, runtime: choice } };
}

/** Actions of administrators on nodes; each asks for confirmation. */

import type { AppContext } from '../../state/context';
import type { AgentView } from '../../state/wire';
import { nameText } from '../common/text';

export interface NodeVerb {
  key: 'enable' | 'disable' | 'drain';
  label: string;
  /** What will happen. */
  body(name: string): string;
  /** Whether it makes sense now. */
  fits(agent: AgentView): boolean;
}

export const NODE_VERBS: readonly NodeVerb[] = [
  {
    key: 'enable', label: 'Enable',
    body: name => `New work may start on ${name} again.`,
    fits: agent => !agent.enabled
  },
  {
    key: 'disable', label: 'Disable',
    body: name => `Nothing new starts on ${name}; running work continues.`,
    fits: agent => agent.enabled || agent.mode === 'draining'
  },
  {
    key: 'drain', label: 'Drain',
    body: name =>
      `Nothing new starts on ${name}. Its trials save a checkpoint and continue elsewhere, which does not count as a restart. `
      + 'Owners of notebooks, shells and commands are notified; these run until they end.',
    fits: agent => agent.mode !== 'draining' && agent.mode !== 'drained'
  }
];

/** Ask for confirmation, then act. Returns whether it was done; throws if the master refuses. */
export async function changeNode(app: AppContext, agent: AgentView, verb: NodeVerb): Promise<boolean> {
  const name = nameText(agent.id);
  if (!(await app.confirm({ title: `${verb.label} ${name}?`, body: verb.body(name), yes: verb.label }))) return false;
  const body = verb.key === 'drain' ? {} : undefined;
  app.store.learn({ agent: await app.api.post<AgentView>(`agents/${encodeURIComponent(agent.id)}/${verb.key}`, body) });
  return true;
}

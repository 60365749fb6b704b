/** The form of a fork: the config of another experiment, whose secrets the master puts back for its owner. */

import { stringify } from 'yaml';

import type { ExperimentView } from '../state/wire';

/** What people change first comes first. */
const FIRST = ['name', 'description', 'labels', 'entrypoint', 'searcher', 'hyperparameters', 'resources'];
/** The name of everybody's personal workspace, and of the project for what names none. */
const HOME = 'Uncategorized';

/** The YAML that a fork of this experiment begins with; it lies beside it, as in detlab.client.submission. */
export function forkText(e: ExperimentView): string {
  const config: Record<string, unknown> = { ...((e.config ?? {}) as Record<string, unknown>), ...placeOf(e) };
  const set = Object.keys(config).filter(key => config[key] !== undefined);
  const keys = [...FIRST.filter(key => set.includes(key)), ...set.filter(key => !FIRST.includes(key))];
  return stringify(Object.fromEntries(keys.map(key => [key, config[key]])), { lineWidth: 0 });
}

/** Workspace and project of a fork; undefined: at home, as of what one may only read. */
function placeOf(e: ExperimentView): { workspace: string | undefined; project: string | undefined } {
  const personal = !e.workspace || e.workspace === HOME;
  if (e.may === 'read' || (personal && e.may !== 'own')) return { workspace: undefined, project: undefined };
  const workspace = e.workspace.includes('/') ? e.workspace : `${e.owner}/${e.workspace}`;
  return { workspace: personal ? undefined : workspace, project: !e.project || e.project === HOME ? undefined : e.project };
}

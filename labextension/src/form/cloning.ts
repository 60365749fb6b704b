/** The form of a clone: the config of another experiment, with what a view does not show named as a mistake. */

import { stringify } from 'yaml';

import type { ExperimentView, ProblemView } from '../state/wire';
import { parseConfig } from './document';

/** What stands in views for a secret; as in detlab.schemas.expconf.raw.secret_keys. */
const MASK = '********';
/** What people change first comes first. */
const FIRST = ['name', 'description', 'labels', 'entrypoint', 'searcher', 'hyperparameters', 'resources'];

/** The YAML that another experiment with this one's config begins with. */
export function cloneText(e: ExperimentView): string {
  const config = (e.config ?? {}) as Record<string, unknown>;
  const keys = [...FIRST.filter(key => key in config), ...Object.keys(config).filter(key => !FIRST.includes(key))];
  return stringify(Object.fromEntries(keys.map(key => [key, config[key]])), { lineWidth: 0 });
}

/** An error for each secret of a text that views mask: it has to be given again. */
export function maskedIn(text: string): ProblemView[] {
  return placesOf(parseConfig(text).value).map(path => (
    { path, message: 'is a secret, which cannot be read back: give its value', hint: null, level: 'error' }
  ));
}

function placesOf(value: unknown, path = ''): string[] {
  if (value === MASK) return [path];
  if (Array.isArray(value)) return value.flatMap((item, at) => placesOf(item, `${path}[${at}]`));
  if (value === null || typeof value !== 'object') return [];
  return Object.entries(value).flatMap(([key, item]) => placesOf(item, path ? `${path}.${key}` : key));
}

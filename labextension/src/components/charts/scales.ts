/** How the config asks for hyperparameters: what an axis is drawn as, whatever values happen to have been tried. */

import { Scale, Value, flatten } from './parallel';

/**
 * The scales of a config's `hyperparameters` by the names that `flatten` gives their values. Constants, and what the
 * config does not say, have none: their axes are chosen by their values.
 */
export function scalesOf(hyperparameters: unknown, prefix = '', into = new Map<string, Scale>()): Map<string, Scale> {
  if (!isMapping(hyperparameters)) return into;
  for (const [key, entry] of Object.entries(hyperparameters)) {
    if (!isMapping(entry)) continue;
    const name = prefix ? `${prefix}.${key}` : key;
    if (!('type' in entry)) scalesOf(entry, name, into);
    else {
      const scale = scaleOf(entry);
      if (scale) into.set(name, scale);
    }
  }
  return into;
}

function scaleOf(entry: Record<string, unknown>): Scale | null {
  switch (entry['type']) {
    case 'int':
    case 'double':
      return entry['log'] === true ? { kind: 'log', base: 10 } : { kind: 'linear' };
    case 'log':
      return { kind: 'log', base: Number(entry['base'] ?? 10) };
    case 'categorical':
    case 'ordinal':
      return Array.isArray(entry['vals']) ? { kind: 'category', order: entry['vals'].map(text) } : null;
  }
  return null;
}

/** A choice as `flatten` would write it. */
function text(choice: unknown): string {
  return String(flatten({ choice })['choice'] as Value);
}

function isMapping(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

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

/** A hyperparameter as the config asks for it. */
export interface Asked {
  numeric: boolean;
  constant: boolean;
}

/** What the config's `hyperparameters` asks for by name, also before any trial has drawn a value. */
export function spaceOf(hyperparameters: unknown): Map<string, Asked> {
  const found = new Map<string, Asked>();
  collect(hyperparameters, '', found);
  return found;
}

function collect(entries: unknown, prefix: string, into: Map<string, Asked>): void {
  for (const [key, entry] of isMapping(entries) ? Object.entries(entries) : []) {
    const name = prefix ? `${prefix}.${key}` : key;
    if (!isMapping(entry)) into.set(name, { numeric: typeof entry === 'number', constant: true });
    else if (!('type' in entry)) collect(entry, name, into);
    else if (entry['type'] === 'const') into.set(name, { numeric: typeof entry['val'] === 'number', constant: true });
    else into.set(name, { numeric: ['int', 'double', 'log'].includes(String(entry['type'])), constant: false });
  }
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

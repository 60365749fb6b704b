/** A config as YAML text that a form changes key by key; all else in the text stays as it is written. */

import { Document, isMap, isScalar, parseDocument } from 'yaml';

import { isMapping, patchedKey, patchedValue } from './patch';
import type { FieldKind, Path } from './schema';

export interface Parsed {
  doc: Document | null;
  value: Record<string, unknown>;
  /** Why the text is not a config; the form's fields are disabled until it is one. */
  error: string | null;
}

export function parseConfig(text: string): Parsed {
  const doc = parseDocument(text, { uniqueKeys: true });
  const first = doc.errors[0];
  if (first) return { doc: null, value: {}, error: `line ${first.linePos?.[0]?.line ?? '?'}: ${first.message.split('\n')[0]}` };
  if (doc.contents === null) return { doc: new Document({}), value: {}, error: null };
  if (!isMap(doc.contents)) return { doc: null, value: {}, error: 'a config is a mapping: key: value' };
  try {
    return { doc, value: doc.toJS({ maxAliasCount: 100 }) as Record<string, unknown>, error: null };
  } catch (error) {
    return { doc: null, value: {}, error: error instanceof Error ? error.message : String(error) };
  }
}

/** The value at a path. */
export function valueAt(value: unknown, path: Path): unknown {
  return path.reduce<unknown>((at, key) => (at as Record<string, unknown> | null | undefined)?.[key as string], value);
}

/**
 * The text with another value at a path; undefined takes the key away, and mappings that become empty. The rest of the
 * text stays as it was written, character by character, where that is possible.
 */
export function withValue(text: string, path: Path, value: unknown): string {
  const { doc } = parseConfig(text);
  if (!doc) return text;
  const old = doc.getIn(path, true);
  if (value !== undefined && isMap(old) && isMapping(value) && Object.keys(value).length) return withKeys(text, path, valueAt(doc.toJS(), path), value);
  const patched = patchedValue(text, doc, path, value);
  const reprinted = reprintedValue(doc, path, value);
  return patched !== null && sameConfig(patched, reprinted) ? patched : reprinted;
}

/** A mapping in place of another: only the keys that differ are touched. */
function withKeys(text: string, path: Path, old: unknown, value: Record<string, unknown>): string {
  const before = isMapping(old) ? old : {};
  let now = text;
  for (const [key, next] of Object.entries(value)) {
    if (!same(before[key], next)) now = withValue(now, [...path, key], next);
  }
  // Last, so that the mapping does not become empty on the way.
  for (const key of Object.keys(before)) if (!(key in value)) now = withValue(now, [...path, key], undefined);
  return now;
}

/** The whole text printed anew: comments and order stay, quoting and line breaks may not. Changes `doc`. */
function reprintedValue(doc: Document, path: Path, value: unknown): string {
  if (value === undefined) remove(doc, [...path]);
  else {
    makeMappings(doc, path);
    const old = doc.getIn(path, true);
    // Keep the scalar's node, and with it the comment behind it.
    if (isScalar(old) && (typeof value !== 'object' || value === null)) {
      old.value = value;
      if (typeof value !== 'string') delete old.type;
      delete old.source;
    } else doc.setIn(path, doc.createNode(value));
  }
  return doc.toString({ lineWidth: 0 });
}

/** The text with a key under another name, at the same place. */
export function withKey(text: string, base: Path, from: string, to: string): string {
  const { doc } = parseConfig(text);
  const map = doc?.getIn(base, true);
  if (!doc || !isMap(map) || map.has(to)) return text;
  const patched = patchedKey(text, doc, [...base, from], to);
  const pair = map.items.find(item => String(isScalar(item.key) ? item.key.value : item.key) === from);
  if (pair) pair.key = doc.createNode(to);
  const reprinted = doc.toString({ lineWidth: 0 });
  return patched !== null && sameConfig(patched, reprinted) ? patched : reprinted;
}

/** Whether two texts hold the same config. */
function sameConfig(a: string, b: string): boolean {
  const [one, other] = [parseConfig(a), parseConfig(b)];
  return one.error === null && other.error === null && same(one.value, other.value);
}

function same(a: unknown, b: unknown): boolean {
  if (isMapping(a) && isMapping(b)) {
    const keys = Object.keys(a);
    return keys.length === Object.keys(b).length && keys.every(key => key in b && same(a[key], b[key]));
  }
  if (Array.isArray(a) && Array.isArray(b)) return a.length === b.length && a.every((item, i) => same(item, b[i]));
  return Object.is(a, b);
}

/** Replace null and scalars on the path by mappings. */
function makeMappings(doc: Document, path: Path): void {
  for (let depth = 1; depth < path.length; depth++) {
    const at = path.slice(0, depth);
    const found = doc.getIn(at, true);
    if (found === undefined || (isScalar(found) && typeof path[depth] === 'string')) doc.setIn(at, doc.createNode({}));
    const map = doc.getIn(at, true);
    if (isMap(map) && !map.items.length) map.flow = false;
  }
}

function remove(doc: Document, path: (string | number)[]): void {
  doc.deleteIn(path);
  while (path.length > 1) {
    path.pop();
    const above = doc.getIn(path, true);
    if (!isMap(above) || above.items.length) return;
    doc.deleteIn(path);
  }
}

/** The text of a field as a YAML value; an invalid number stays text, so that the master reports it. */
export function typed(kind: FieldKind, text: string): unknown {
  if (text === '') return undefined;
  if ((kind === 'integer' || kind === 'number') && text.trim() !== '' && Number.isFinite(Number(text))) return Number(text);
  if (kind === 'words') return text.split(',').map(word => word.trim()).filter(Boolean);
  return text;
}

/** A value as the text of a field; null if one line cannot hold it. */
export function shown(value: unknown): string | null {
  if (value === undefined || value === null) return '';
  if (Array.isArray(value)) return value.every(v => typeof v !== 'object') ? value.join(', ') : null;
  return typeof value === 'object' ? null : String(value);
}

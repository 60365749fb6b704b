/**
 * Edits of YAML text in place: only the characters of what changed are replaced, so that comments, quoting, order and
 * line breaks of everything else stay. An edit that is not possible in place gives null; nothing is checked here.
 */

import { Document, isCollection, isMap, isPair, isScalar, isSeq, Node, Pair, Scalar, stringify, YAMLMap } from 'yaml';

import type { Path } from './schema';

/** The text with another value at a path; undefined takes the key away. `doc` is the parsed text. */
export function patchedValue(text: string, doc: Document, path: Path, value: unknown): string | null {
  if (value === undefined) return withoutKey(text, doc, path);
  const old = doc.getIn(path, true);
  if (isMap(old) && old.items.length && isMapping(value)) return null; // key by key: see the caller
  const pair = pairAt(doc, path);
  if (pair) return withPairValue(text, doc, path, pair, value);
  if (old !== undefined && isScalar(old) && old.range) return spliced(text, old.range[0], old.range[1], inline(value, styleOf(old), true));
  return withPair(text, doc, path, value);
}

/** The text with a key of a mapping under another name. */
export function patchedKey(text: string, doc: Document, path: Path, to: string): string | null {
  const key = pairAt(doc, path)?.key;
  if (!isScalar(key) || !key.range) return null;
  return spliced(text, key.range[0], key.range[1], inline(to, styleOf(key), true));
}

function withPairValue(text: string, doc: Document, path: Path, pair: Pair, value: unknown): string | null {
  const flow = inFlow(doc, path);
  const node = pair.value as Node | null;
  const key = pair.key as Node;
  if (!key.range) return null;
  const column = columnOf(text, key.range[0]);
  const empty = node === null || !node.range || node.range[0] === node.range[1] || (isCollection(node) && !node.items.length);
  if (typeof value === 'object' && value !== null && !flow && !(isSeq(node) && node.flow) && !isInline(value)) {
    // A block below the key: in place of nothing, or of what stood behind the colon.
    const colon = text.indexOf(':', key.range[1]);
    const from = empty && isCollection(node) ? node.range![0] : empty ? colon + 1 : node!.range![0];
    const to = empty && !isCollection(node) ? from : endOf(node!) ?? from;
    const rest = text.slice(to, lineEnd(text, to));
    const head = text.slice(0, from).replace(/[ \t]+$/, '');
    return `${head}${rest.trim() ? ` ${rest.trim()}` : ''}${eol(text)}${block(value, column + stepOf(text, doc), stepOf(text, doc), text)}${text.slice(lineEnd(text, to))}`;
  }
  if (empty && !isCollection(node)) {
    const colon = text.indexOf(':', key.range[1]);
    return colon < 0 ? null : spliced(text, colon + 1, colon + 1, ` ${inline(value, null, flow)}`);
  }
  const end = endOf(node!);
  if (end === null) return null;
  const tail = /\s*$/.exec(text.slice(node!.range![0], end))![0].length; // a block scalar ends with its line
  return spliced(text, node!.range![0], end - tail, inline(value, isScalar(node) ? styleOf(node) : null, flow));
}

/** A new key at the end of the deepest mapping that exists on the path. */
function withPair(text: string, doc: Document, path: Path, value: unknown): string | null {
  let depth = path.length - 1;
  while (depth > 0 && doc.getIn(path.slice(0, depth), true) === undefined) depth -= 1;
  const map = depth ? doc.getIn(path.slice(0, depth), true) : doc.contents;
  const made = path.slice(depth + 1).reduceRight<unknown>((below, key) => ({ [key]: below }), value);
  const name = path[depth]!;
  if (isScalar(map) && map.value === null && depth) return patchedValue(text, doc, path.slice(0, depth), { [name]: made });
  if (!isMap(map) || !map.range || typeof name !== 'string') return null;
  if (!map.items.length) return depth ? patchedValue(text, doc, path.slice(0, depth), { [name]: made }) : null;
  const last = map.items[map.items.length - 1]!;
  const end = endOf((last.value ?? last.key) as Node);
  if (end === null) return null;
  if (map.flow) return spliced(text, end, end, `, ${inline(name, null, true)}: ${inline(made, null, true)}`);
  const first = (map.items[0]!.key as Node).range;
  if (!first) return null;
  const at = end > 0 && text[end - 1] === '\n' ? end : lineEnd(text, end);
  const lines = block({ [name]: made }, columnOf(text, first[0]), stepOf(text, doc), text);
  if (at === end && end > 0 && text[end - 1] === '\n') return `${text.slice(0, at)}${lines}${eol(text)}${text.slice(at)}`;
  return `${text.slice(0, at)}${eol(text)}${lines}${text.slice(at) || eol(text)}`;
}

function withoutKey(text: string, doc: Document, path: Path): string | null {
  let depth = path.length;
  // A mapping that becomes empty goes with its last key.
  while (depth > 1) {
    const above = doc.getIn(path.slice(0, depth - 1), true);
    if (!isMap(above) || above.items.length > 1) break;
    depth -= 1;
  }
  const at = path.slice(0, depth);
  const pair = pairAt(doc, at);
  const map = (depth > 1 ? doc.getIn(at.slice(0, -1), true) : doc.contents) as YAMLMap;
  const start = (pair?.key as Node | undefined)?.range?.[0];
  if (!pair || start === undefined) return pair ? null : text;
  const end = endOf((pair.value ?? pair.key) as Node);
  if (end === null) return null;
  if (map.flow) {
    const index = map.items.indexOf(pair);
    const next = (map.items[index + 1]?.key as Node | undefined)?.range?.[0];
    if (next !== undefined) return spliced(text, start, next, '');
    const before = map.items[index - 1];
    const from = before ? endOf((before.value ?? before.key) as Node) : null;
    return from === null ? null : spliced(text, from, end, '');
  }
  const line = start - columnOf(text, start);
  if (text.slice(line, start).trim()) return null; // the first key of an item of a list
  const stop = text[end - 1] === '\n' ? end : lineEnd(text, end) + eol(text).length;
  return spliced(text, line, Math.min(stop, text.length), '');
}

/** Where the characters of a node end, without comments and line breaks behind it. */
function endOf(node: Node): number | null {
  if (isCollection(node) && !node.flow && node.items.length) {
    const last = node.items[node.items.length - 1]!;
    const inner = isPair(last) ? (last.value ?? last.key) : last;
    return endOf(inner as Node);
  }
  return node.range ? node.range[1] : null;
}

function pairAt(doc: Document, path: Path): Pair | undefined {
  const map = path.length > 1 ? doc.getIn(path.slice(0, -1), true) : doc.contents;
  const name = path[path.length - 1];
  return isMap(map) ? map.items.find(item => String(isScalar(item.key) ? item.key.value : item.key) === String(name)) : undefined;
}

function inFlow(doc: Document, path: Path): boolean {
  return path.some((_, depth) => {
    const node = depth ? doc.getIn(path.slice(0, depth), true) : doc.contents;
    return isCollection(node) && node.flow === true;
  });
}

/** The quotes of a scalar, which a new text keeps. */
function styleOf(node: Scalar): 'QUOTE_DOUBLE' | 'QUOTE_SINGLE' | null {
  return node.type === 'QUOTE_DOUBLE' || node.type === 'QUOTE_SINGLE' ? node.type : null;
}

/** A value on one line. */
function inline(value: unknown, quotes: 'QUOTE_DOUBLE' | 'QUOTE_SINGLE' | null, flow: boolean): string {
  const many = typeof value === 'string' && /[\n\r]/.test(value);
  const options = { lineWidth: 0, defaultStringType: many ? 'QUOTE_DOUBLE' : quotes ?? 'PLAIN', collectionStyle: 'flow' } as const;
  if (!flow) return stringify(value, options).trimEnd();
  // Inside a list in brackets, so that commas and brackets in a text are quoted.
  return stringify([value], { ...options, flowCollectionPadding: false }).trim().slice(1, -1);
}

/** A value as lines with an indentation. */
function block(value: unknown, column: number, step: number, text: string): string {
  const lines = stringify(value, { lineWidth: 0, indent: step }).trimEnd().split('\n');
  return lines.map(line => (line ? ' '.repeat(column) + line : line)).join(eol(text));
}

/** Lists of plain values stand on one line. */
function isInline(value: object): boolean {
  return (Array.isArray(value) && value.every(item => typeof item !== 'object' || item === null)) || Object.keys(value).length === 0;
}

export function isMapping(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Spaces that this text indents by. */
function stepOf(text: string, doc: Document): number {
  const maps = isMap(doc.contents) ? doc.contents.items.map(item => item.value) : [];
  const nested = maps.find((map): map is YAMLMap => isMap(map) && !map.flow && map.items.length > 0);
  const at = (nested?.items[0]!.key as Node | undefined)?.range?.[0];
  return at === undefined ? 2 : columnOf(text, at) || 2;
}

function spliced(text: string, from: number, to: number, by: string): string {
  return text.slice(0, from) + by + text.slice(to);
}

function columnOf(text: string, at: number): number {
  return at - (text.lastIndexOf('\n', at - 1) + 1);
}

/** Where the line of a place ends, before its line break. */
function lineEnd(text: string, at: number): number {
  const end = text.indexOf('\n', at);
  if (end < 0) return text.length;
  return text[end - 1] === '\r' ? end - 1 : end;
}

function eol(text: string): string {
  return text.includes('\r\n') ? '\r\n' : '\n';
}

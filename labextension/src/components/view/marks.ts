/**
 * Markdown of people as a tree of known parts. What is not known, HTML above all, stays the text that it is. Each
 * character is looked at a bounded number of times, so that no text holds up the page.
 */

export type Inline =
  | { kind: 'text' | 'code'; text: string }
  | { kind: 'strong' | 'em' | 'del'; items: Inline[] }
  | { kind: 'link'; href: string; items: Inline[] };

export type Block =
  | { kind: 'heading'; level: number; items: Inline[] }
  | { kind: 'paragraph'; items: Inline[] }
  | { kind: 'code'; text: string }
  | { kind: 'list'; ordered: boolean; start: number; items: Block[][] }
  | { kind: 'quote'; items: Block[] }
  | { kind: 'table'; head: Inline[][]; rows: Inline[][][] }
  | { kind: 'rule' };

/** Characters that are read; the rest is not shown. */
export const MOST = 100_000;
/** Lists and quotes in one another; deeper ones are text. */
const DEEPEST = 6;

const FENCE = /^ {0,3}(`{3,}|~{3,})/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*))?$/;
const RULE = /^ {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
const ITEM = /^( {0,3})(?:([-*+])|(\d{1,9})[.)])(?:[ \t]+(.*))?$/;
const DIVIDER = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

/** Read a text. */
export function markdownOf(text: string): Block[] {
  return blocksOf(text.slice(0, MOST).replace(/\r\n?/g, '\n').split('\n'), 0);
}

function blocksOf(lines: readonly string[], depth: number): Block[] {
  const found: Block[] = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at]!;
    if (!line.trim()) {
      at += 1;
      continue;
    }
    const [block, next] = special(lines, at, depth) ?? paragraph(lines, at, depth);
    found.push(block);
    at = next;
  }
  return found;
}

/** A block that its first line tells, and the line after it. */
function special(lines: readonly string[], at: number, depth: number): [Block, number] | null {
  const line = lines[at]!;
  const fence = FENCE.exec(line);
  if (fence) return fenced(lines, at, fence[1]!);
  const heading = HEADING.exec(line);
  if (heading) {
    const text = (heading[2] ?? '').trimEnd().replace(/(?:^|[ \t])#+$/, '');
    return [{ kind: 'heading', level: heading[1]!.length, items: inlineOf(text) }, at + 1];
  }
  if (RULE.test(line)) return [{ kind: 'rule' }, at + 1];
  if (line.includes('|') && DIVIDER.test(lines[at + 1] ?? '') && lines[at + 1]!.includes('-')) return table(lines, at);
  if (depth >= DEEPEST) return null;
  if (QUOTE.test(line)) return quote(lines, at, depth);
  return ITEM.test(line) ? list(lines, at, depth) : null;
}

function fenced(lines: readonly string[], at: number, mark: string): [Block, number] {
  let end = at + 1;
  const isEnd = (line: string): boolean => {
    const close = FENCE.exec(line)?.[1];
    return close !== undefined && close[0] === mark[0] && close.length >= mark.length && line.trim() === close;
  };
  while (end < lines.length && !isEnd(lines[end]!)) end += 1;
  return [{ kind: 'code', text: lines.slice(at + 1, end).join('\n') }, end + 1];
}

function quote(lines: readonly string[], at: number, depth: number): [Block, number] {
  const inner: string[] = [];
  let end = at;
  for (let match = QUOTE.exec(lines[end]!); match; match = end < lines.length ? QUOTE.exec(lines[end]!) : null) {
    inner.push(match[1]!);
    end += 1;
  }
  return [{ kind: 'quote', items: blocksOf(inner, depth + 1) }, end];
}

function list(lines: readonly string[], at: number, depth: number): [Block, number] {
  const [, indent, bullet, number] = ITEM.exec(lines[at]!)!;
  const ordered = bullet === undefined;
  const start = ordered ? Number(number) : 1;
  const deepest = indent!.length + 1; // what is indented more belongs to the item above it
  const items: string[][] = [];
  let end = at;
  while (end < lines.length) {
    const line = lines[end]!;
    const item = ITEM.exec(line);
    if (item && item[1]!.length <= deepest && (item[2] === undefined) === ordered && !RULE.test(line)) items.push([item[4] ?? '']);
    else if (/^(?: {2,}|\t)\S/.test(line)) items[items.length - 1]!.push(line.replace(/^(?: {1,4}|\t)/, ''));
    else if (!line.trim() && continues(lines[end + 1], ordered)) items[items.length - 1]!.push('');
    else break;
    end += 1;
  }
  return [{ kind: 'list', ordered, start, items: items.map(item => blocksOf(item, depth + 1)) }, end];
}

/** Whether a line after an empty one still belongs to the list. */
function continues(line: string | undefined, ordered: boolean): boolean {
  if (line === undefined) return false;
  const item = ITEM.exec(line);
  return item ? (item[2] === undefined) === ordered : /^(?: {2,}|\t)\S/.test(line);
}

function table(lines: readonly string[], at: number): [Block, number] {
  const head = cells(lines[at]!);
  const rows: Inline[][][] = [];
  let end = at + 2;
  while (end < lines.length && lines[end]!.trim() && lines[end]!.includes('|')) {
    const row = cells(lines[end]!);
    rows.push(head.map((_, i) => row[i] ?? []));
    end += 1;
  }
  return [{ kind: 'table', head, rows }, end];
}

function cells(line: string): Inline[][] {
  const inner = line.trim().replace(/^\|/, '').replace(/\|$/, '');
  return inner.split(/(?<!\\)\|/).map(cell => inlineOf(cell.trim().replaceAll('\\|', '|')));
}

function paragraph(lines: readonly string[], at: number, depth: number): [Block, number] {
  let end = at + 1;
  while (end < lines.length && lines[end]!.trim() && !special(lines, end, depth)) end += 1;
  return [{ kind: 'paragraph', items: inlineOf(lines.slice(at, end).map(line => line.trim()).join('\n')) }, end];
}

/** Characters that begin something; of the rest, runs are taken as they are. */
const PLAIN = /[^\\`*_~[<h!]+|h(?!ttps?:\/\/)|!(?!\[)/y;
const CODE = /(`+)([^`]|[^`][\s\S]*?[^`])\1(?!`)/y;
const LINK = /\[([^[\]\n]{1,1000})\]\(\s*<?([^\s()<>]{1,2000})>?(?:\s+"[^"\n]{0,200}")?\s*\)/y;
const BARE = /https?:\/\/[^\s<>"'`|]{1,2000}/y;
const AUTO = /<(https?:\/\/[^\s<>]{1,2000})>/y;
const EMPHASIS: readonly [RegExp, 'strong' | 'em' | 'del'][] = [
  [/\*\*(?=\S)([^*\n]{1,2000}?)(?<=\S)\*\*/y, 'strong'], [/__(?=\S)([^_\n]{1,2000}?)(?<=\S)__(?!\w)/y, 'strong'],
  [/\*(?=\S)([^*\n]{1,2000}?)(?<=\S)\*/y, 'em'], [/_(?=\S)([^_\n]{1,2000}?)(?<=\S)_(?!\w)/y, 'em'],
  [/~~(?=\S)([^~\n]{1,2000}?)(?<=\S)~~/y, 'del']
];

/** Read a line or a paragraph. */
export function inlineOf(text: string, linked = false): Inline[] {
  const found: Inline[] = [];
  const say = (part: string): void => {
    const last = found[found.length - 1];
    if (last?.kind === 'text') last.text += part;
    else found.push({ kind: 'text', text: part });
  };
  let at = 0;
  while (at < text.length) {
    const [item, length] = inlineAt(text, at, linked);
    if (typeof item === 'string') say(item);
    else found.push(item);
    at += length;
  }
  return found;
}

function inlineAt(text: string, at: number, linked: boolean): [Inline | string, number] {
  const plain = matchAt(PLAIN, text, at);
  if (plain) return [plain[0], plain[0].length];
  if (text[at] === '\\' && /[!-/:-@[-`{-~]/.test(text[at + 1] ?? '')) return [text[at + 1]!, 2];
  const code = text[at] === '`' ? matchAt(CODE, text, at, 4000) : null;
  if (code) return [{ kind: 'code', text: code[2]!.trim() || code[2]! }, code[0].length];
  if (text[at] === '`') return run(text, at);
  if (text[at] === '!') return image(text, at);
  if (!linked) {
    const link = matchAt(LINK, text, at, 4000) ?? matchAt(AUTO, text, at, 4000);
    if (link) return [linkOf(link[2] ?? link[1]!, link[1]!), link[0].length];
    const bare = matchAt(BARE, text, at, 4000);
    if (bare) {
      const href = bare[0].replace(/[).,;:!?*_~]+$/, '');
      return [linkOf(href, href), href.length];
    }
  }
  const inWord = text[at] === '_' && /\w/.test(text[at - 1] ?? '');
  for (const [pattern, kind] of inWord ? [] : EMPHASIS) {
    const match = matchAt(pattern, text, at, 4000);
    if (match) return [{ kind, items: inlineOf(match[1]!, linked) }, match[0].length];
  }
  return text[at] === '*' || text[at] === '_' || text[at] === '~' ? run(text, at) : [text[at]!, 1];
}

/** A picture is never loaded: of it, a link is shown. */
function image(text: string, at: number): [Inline | string, number] {
  const match = matchAt(LINK, text, at + 1, 4000);
  return match ? [linkOf(match[2]!, match[1]!), match[0].length + 1] : ['!', 1];
}

/** All of a run of one character, so that a thousand of them are not tried a thousand times. */
function run(text: string, at: number): [string, number] {
  let end = at;
  while (text[end] === text[at]) end += 1;
  return [text.slice(at, end), end - at];
}

function matchAt(pattern: RegExp, text: string, at: number, within?: number): RegExpExecArray | null {
  if (within === undefined) {
    pattern.lastIndex = at;
    return pattern.exec(text);
  }
  pattern.lastIndex = 0;
  return pattern.exec(text.slice(at, at + within));
}

function linkOf(href: string, label: string): Inline | string {
  const items = inlineOf(label, true);
  const safe = safeHref(href);
  return safe === null ? `${label} (${href})` : { kind: 'link', href: safe, items };
}

/** An address that may be followed: of the web or of mail, and nothing that runs. */
export function safeHref(href: string): string | null {
  try {
    const url = new URL(href);
    const fits = (url.protocol === 'https:' || url.protocol === 'http:') && !url.username && !url.password;
    return fits || url.protocol === 'mailto:' ? url.href : null;
  } catch {
    return null; // relative ones would lead into this page
  }
}

/**
 * Which files of a folder travel: `.detignore` in gitignore syntax, and defaults. The same rules as the command line's
 * (detlab.client.ignore): each entry is judged from the top down, the last pattern that matches it decides, and nothing
 * below a folder that is left out can be taken back in.
 */

export const IGNORE_FILE = '.detignore';
/** Left out unless `.detignore` takes them back in. */
const DEFAULTS = [
  '.hg/', '.svn/', '__pycache__/', '*.py[co]', '.ipynb_checkpoints/', '.venv/', 'node_modules/', '.mypy_cache/', '.pytest_cache/',
  '.ruff_cache/', '.DS_Store'
];
/** Left out whatever `.detignore` says: a state folder holds secrets. */
const NEVER = ['.git', '.detlab/'];

const CLASSES: Record<string, string> = {
  alnum: 'a-zA-Z0-9', alpha: 'a-zA-Z', blank: ' \\t', cntrl: '\\x00-\\x1f\\x7f', digit: '0-9', graph: '\\x21-\\x7e', lower: 'a-z',
  print: '\\x20-\\x7e', punct: '!-\\/:-@\\[-`{-~', space: '\\s', upper: 'A-Z', xdigit: '0-9a-fA-F'
};

interface Rule {
  regex: RegExp;
  ignore: boolean;
  foldersOnly: boolean;
  wholePath: boolean;
}

export class IgnoreRules {
  private rules: Rule[];
  private folders = new Map<string, boolean>();

  /** The text of a `.detignore`, "" for none. */
  constructor(text = '') {
    const lines = text.replace(/^\uFEFF/, '').split('\n');
    this.rules = [...DEFAULTS, ...lines, ...NEVER].map(ruleOf).filter(rule => rule !== null).reverse();
  }

  /** Whether a file or folder is left out, by itself or with a folder above it; `/` separates. */
  leavesOut(path: string, folder = false): boolean {
    const cut = path.lastIndexOf('/');
    if (cut > 0 && this.folderOut(path.slice(0, cut))) return true;
    return this.judge(path, folder);
  }

  private folderOut(path: string): boolean {
    let found = this.folders.get(path);
    if (found === undefined) this.folders.set(path, (found = this.leavesOut(path, true)));
    return found;
  }

  private judge(path: string, folder: boolean): boolean {
    const name = path.slice(path.lastIndexOf('/') + 1);
    for (const rule of this.rules) {
      if (rule.foldersOnly && !folder) continue;
      if (rule.regex.test(rule.wholePath ? path : name)) return rule.ignore;
    }
    return false;
  }
}

function ruleOf(line: string): Rule | null {
  let text = withoutTrailingSpaces(line.replace(/\r$/, ''));
  if (!text || text.startsWith('#')) return null;
  const ignore = !text.startsWith('!');
  if (!ignore) text = text.slice(1);
  const foldersOnly = text.endsWith('/');
  if (foldersOnly) text = text.slice(0, -1);
  const wholePath = text.includes('/');
  text = text.replace(/^\//, '');
  const source = text && translate(text);
  return source ? { regex: new RegExp(`^(?:${source})$`, 's'), ignore, foldersOnly, wholePath } : null;
}

function withoutTrailingSpaces(line: string): string {
  const stripped = line.replace(/ +$/, '');
  const escaped = /\\*$/.exec(stripped)![0].length % 2 === 1;
  return escaped && stripped.length < line.length ? `${stripped} ` : stripped;
}

const plain = (char: string): string => char.replace(/[\\^$.*+?()[\]{}|/-]/, '\\$&');

/** The regular expression of a pattern; null for one that matches nothing, such as an open bracket. */
function translate(pattern: string): string | null {
  let out = '';
  for (let at = 0; at < pattern.length; ) {
    const char = pattern[at]!;
    if (char === '*') {
      const end = at + /^\*+/.exec(pattern.slice(at))![0].length;
      const crosses = end - at > 1 && (at === 0 || pattern[at - 1] === '/') && (end === pattern.length || pattern[end] === '/');
      out += crosses ? (end < pattern.length ? '(?:.*/)?' : '.*') : '[^/]*';
      at = crosses && end < pattern.length ? end + 1 : end;
    } else if (char === '[') {
      const found = bracket(pattern, at + 1);
      if (!found) return null;
      out += found.source;
      at = found.end;
    } else if (char === '\\') {
      if (at + 1 === pattern.length) return null;
      out += plain(pattern[at + 1]!);
      at += 2;
    } else {
      out += char === '?' ? '[^/]' : plain(char);
      at += 1;
    }
  }
  return out;
}

function bracket(pattern: string, start: number): { source: string; end: number } | null {
  let at = start;
  const negated = pattern[at] === '!' || pattern[at] === '^';
  if (negated) at += 1;
  let members = '';
  let previous: string | null = null;
  for (let first = true; ; first = false) {
    const char = pattern[at];
    if (char === undefined) return null;
    if (char === ']' && !first) break;
    const named = /^\[:([a-z]*):\]/.exec(pattern.slice(at));
    const next = pattern[at + 1];
    if (named) {
      const known = CLASSES[named[1]!];
      if (known === undefined) return null;
      members += known;
      previous = null;
      at += named[0].length;
    } else if (char === '-' && previous !== null && next !== undefined && next !== ']') {
      const last = member(pattern, at + 1);
      if (!last) return null;
      if (previous <= last.char) members += `${plain(previous)}-${plain(last.char)}`;
      previous = null;
      at = last.end;
    } else {
      const one = member(pattern, at);
      if (!one) return null;
      members += plain(one.char);
      previous = one.char;
      at = one.end;
    }
  }
  return { source: `(?!/)[${negated ? '^' : ''}${members}]`, end: at + 1 };
}

function member(pattern: string, at: number): { char: string; end: number } | null {
  if (pattern[at] !== '\\') return { char: pattern[at]!, end: at + 1 };
  return at + 1 < pattern.length ? { char: pattern[at + 1]!, end: at + 2 } : null;
}

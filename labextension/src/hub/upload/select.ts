/** Which of the chosen files travel, and whether they may. */

import { formatBytes } from '../../components/common';
import { IGNORE_FILE, IgnoreRules } from './ignore';
import { Unusable, type Source } from './source';

export const MOST_FILES = 20_000;
const LONGEST_PATH = 1024;
/** Patterns by the million are no patterns: it is read before anything else was judged. */
const LARGEST_IGNORE_FILE = 1024 * 1024;

export interface Selection {
  files: Source[];
  /** Chosen files that stay. */
  left: number;
  /** Bytes of all files together. */
  size: number;
}

/** Apply `.detignore` and the defaults. */
export async function select(sources: readonly Source[]): Promise<Selection> {
  const ignore = sources.find(source => source.path === IGNORE_FILE);
  if (ignore && ignore.size > LARGEST_IGNORE_FILE) throw new Unusable(`${IGNORE_FILE} has ${formatBytes(ignore.size)}, more than one of patterns`);
  const rules = new IgnoreRules(ignore && new TextDecoder().decode(await ignore.bytes()));
  const secret = secretFolders(sources);
  const files = sources.filter(
    source => !rules.leavesOut(source.path) && !secret.some(folder => source.path.startsWith(folder))
  );
  return { files, left: sources.length - files.length, size: files.reduce((sum, file) => sum + file.size, 0) };
}

/** Raise for what the master, or a node, would refuse. */
export function check({ files, left, size }: Selection, mostBytes: number): void {
  if (!files.length) {
    throw new Unusable(left ? 'nothing of it travels: all is left out' : 'there is no file in it', left ? `${IGNORE_FILE} and the defaults say so.` : null);
  }
  if (files.length > MOST_FILES) {
    throw new Unusable(`${files.length.toLocaleString('en')} files are more than ${MOST_FILES.toLocaleString('en')}`, `Name what the trials do not need in ${IGNORE_FILE}, one pattern a line.`);
  }
  if (size > mostBytes) {
    const largest = [...files].sort((a, b) => b.size - a.size).slice(0, 3).map(file => `${file.path} (${formatBytes(file.size)})`);
    throw new Unusable(
      `${formatBytes(size)} are more than ${formatBytes(mostBytes)}`,
      `The largest: ${largest.join(', ')}. Name them in ${IGNORE_FILE}; data belongs on a disk that the nodes can read.`
    );
  }
  const odd = files.find(({ path }) => /[\\\0]/.test(path) || path.split('/').some(part => part === '' || part === '.' || part === '..'));
  if (odd) throw new Unusable(`“${odd.path.slice(0, 100)}” is no path that nodes can have`, 'Rename it: a \\ cannot be part of a name.');
  const long = files.find(file => file.path.length > LONGEST_PATH);
  if (long) throw new Unusable(`the path ${long.path.slice(0, 60)}… is too long`);
  const paths = new Set(files.map(file => file.path));
  for (const path of paths) {
    for (let at = path.indexOf('/'); at > 0; at = path.indexOf('/', at + 1)) {
      if (paths.has(path.slice(0, at))) throw new Unusable(`${path.slice(0, at)} would be a file and a folder at once`);
    }
  }
}

/** Single files join those that are there; the same name is the newer file. */
export function joined(old: readonly Source[], more: readonly Source[]): Source[] {
  const names = new Set(more.map(source => source.path));
  return [...old.filter(source => !names.has(source.path)), ...more];
}

/** State folders of clusters under whatever name: what they hold opens them. */
function secretFolders(sources: readonly Source[]): string[] {
  const mark = 'secrets/user_token';
  return sources
    .filter(({ path }) => path === mark || path.endsWith(`/${mark}`))
    .map(({ path }) => path.slice(0, -mark.length))
    .filter(folder => folder !== '');
}

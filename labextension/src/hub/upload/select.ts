/** Select the files to upload, and check the limits. */

import { formatBytes } from '../../components/common';
import { IGNORE_FILE, IgnoreRules } from './ignore';
import { Unusable, type Source } from './source';

export const MOST_FILES = 20_000;
const LONGEST_PATH = 1024;
/** Bytes: it is read before anything else is checked. */
const LARGEST_IGNORE_FILE = 1024 * 1024;

export interface Selection {
  files: Source[];
  /** How many of the chosen files are left out. */
  left: number;
  /** Bytes of all files together. */
  size: number;
}

/** Apply `.detignore` and the defaults. */
export async function select(sources: readonly Source[]): Promise<Selection> {
  const ignore = sources.find(source => source.path === IGNORE_FILE);
  if (ignore && ignore.size > LARGEST_IGNORE_FILE) throw new Unusable(`${IGNORE_FILE} has ${formatBytes(ignore.size)}, too large for a list of patterns`);
  const rules = new IgnoreRules(ignore && new TextDecoder().decode(await ignore.bytes()), downloadsAmong(sources));
  const secret = secretFolders(sources);
  const files = sources.filter(
    source => !rules.leavesOut(source.path) && !secret.some(folder => source.path.startsWith(folder))
  );
  return { files, left: sources.length - files.length, size: files.reduce((sum, file) => sum + file.size, 0) };
}

/** Throw for a selection that the master or a node would refuse. */
export function check({ files, left, size }: Selection, mostBytes: number): void {
  if (!files.length) {
    throw new Unusable(left ? 'all files are left out' : 'it contains no files', left ? `By ${IGNORE_FILE} and the default patterns.` : null);
  }
  if (files.length > MOST_FILES) {
    throw new Unusable(`${files.length.toLocaleString('en')} files exceed the limit of ${MOST_FILES.toLocaleString('en')}`, `List files that the trials do not need in ${IGNORE_FILE}, one pattern per line.`);
  }
  if (size > mostBytes) {
    const largest = [...files].sort((a, b) => b.size - a.size).slice(0, 3).map(file => `${file.path} (${formatBytes(file.size)})`);
    throw new Unusable(
      `${formatBytes(size)} exceed the limit of ${formatBytes(mostBytes)}`,
      `The largest: ${largest.join(', ')}. List them in ${IGNORE_FILE}; keep data on storage that the nodes can read.`
    );
  }
  const odd = files.find(({ path }) => /[\\\0]/.test(path) || path.split('/').some(part => part === '' || part === '.' || part === '..'));
  if (odd) throw new Unusable(`“${odd.path.slice(0, 100)}” is not a valid path on the nodes`, 'Rename it: a name cannot contain \\.');
  const long = files.find(file => file.path.length > LONGEST_PATH);
  if (long) throw new Unusable(`the path ${long.path.slice(0, 60)}… is too long`);
  const paths = new Set(files.map(file => file.path));
  for (const path of paths) {
    for (let at = path.indexOf('/'); at > 0; at = path.indexOf('/', at + 1)) {
      if (paths.has(path.slice(0, at))) throw new Unusable(`${path.slice(0, at)} is both a file and a folder`);
    }
  }
}

/** Add single files to those already chosen; a newer file replaces one of the same name. */
export function joined(old: readonly Source[], more: readonly Source[]): Source[] {
  const names = new Set(more.map(source => source.path));
  return [...old.filter(source => !names.has(source.path)), ...more];
}

/** Folders that downloads of checkpoints have made, by the note beside them, or their name: they are no code. */
function downloadsAmong(sources: readonly Source[]): string[] {
  return sources.flatMap(({ path }) => {
    const noted = /^(.*\/)?\.([^/]+)\.detlab$/.exec(path);
    if (noted) return [`${noted[1] ?? ''}${noted[2]!}`];
    const named = /^((?:.*\/)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\/metadata\.json$/.exec(path);
    return named ? [named[1]!] : [];
  });
}

/** State folders of clusters, by their content: they hold secrets. */
function secretFolders(sources: readonly Source[]): string[] {
  const mark = 'secrets/user_token';
  return sources
    .filter(({ path }) => path === mark || path.endsWith(`/${mark}`))
    .map(({ path }) => path.slice(0, -mark.length))
    .filter(folder => folder !== '');
}

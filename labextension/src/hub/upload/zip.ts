/** The files of a .zip: its directory is read at once, each file when it is asked for. */

import { unzipRaw, type ZipEntry } from 'unzipit';

import { Unusable, type Source } from './source';

const STORED = 0;
const DEFLATED = 8;
const UNIX = 3;
const KIND = 0o170000;
const LINK = 0o120000;
const EXECUTABLE = 0o100;

/** List the files of an archive; folders, and what macOS adds, are no files. */
export async function openZip(file: Blob, name: string): Promise<Source[]> {
  const damaged = (why: string): Unusable => new Unusable(`${name} is not a readable .zip: ${why}`, 'Create it again, or choose the folder instead.');
  let entries: ZipEntry[];
  try {
    ({ entries } = await unzipRaw(file));
  } catch (error) {
    throw damaged(error instanceof Error ? error.message : String(error));
  }
  const found: Source[] = [];
  const paths = new Set<string>();
  for (const entry of entries) {
    const path = pathOf(entry);
    if (path.endsWith('/') || path.startsWith('__MACOSX/')) continue;
    refuse(entry, path, name);
    if (paths.has(path)) throw damaged(`it contains ${path} twice`);
    paths.add(path);
    found.push({ path, size: entry.size, executable: (modeOf(entry) & EXECUTABLE) !== 0, bytes: () => unpack(entry, path, damaged) });
  }
  return found;
}

/** An archive of one folder stands for what is in the folder. */
export function withoutTop(sources: Source[]): { sources: Source[]; top: string | null } {
  const cut = sources[0]?.path.indexOf('/') ?? -1;
  if (cut < 1) return { sources, top: null };
  const prefix = sources[0]!.path.slice(0, cut + 1);
  if (!sources.every(source => source.path.startsWith(prefix))) return { sources, top: null };
  return { sources: sources.map(source => ({ ...source, path: source.path.slice(prefix.length) })), top: prefix.slice(0, -1) };
}

/** Throw for an entry outside of the archive, or one that cannot be unpacked. */
function refuse(entry: ZipEntry, path: string, archive: string): void {
  if (path.startsWith('/') || path.split('/').some(part => part === '' || part === '.' || part === '..')) {
    throw new Unusable(`${archive} contains “${path.slice(0, 100)}”, which points outside of it`);
  }
  if (entry.encrypted) throw new Unusable(`${archive} is encrypted`, 'Create it without a password.');
  if (entry.compressionMethod !== STORED && entry.compressionMethod !== DEFLATED) {
    throw new Unusable(`${path} in ${archive} uses a compression that browsers cannot read`, 'Create a plain .zip (deflate).');
  }
  if ((modeOf(entry) & KIND) === LINK) throw new Unusable(`${path} in ${archive} is a link, which cannot be uploaded`);
}

function modeOf(entry: ZipEntry): number {
  return entry.versionMadeBy >> 8 === UNIX ? entry.externalFileAttributes >>> 16 : 0;
}

async function unpack(entry: ZipEntry, path: string, damaged: (why: string) => Unusable): Promise<Uint8Array> {
  try {
    return new Uint8Array(await entry.arrayBuffer()); // never more than the entry says, which was checked before
  } catch {
    throw damaged(`${path} is damaged`);
  }
}

/** Names are UTF-8 nowadays, whatever the flag says; old ones are in some code page. */
function pathOf(entry: ZipEntry): string {
  const old = entry.name.includes('\ufffd');
  return (old ? new TextDecoder('latin1').decode(entry.nameBytes) : entry.name).replaceAll('\\', '/');
}

/** The files of a .zip, read in the browser: its directory at once, each file when it is asked for. */

import { collect, Unusable, type Source } from './source';

const END = 0x06054b50;
const ENTRY = 0x02014b50;
const LOCAL = 0x04034b50;
const STORED = 0;
const DEFLATED = 8;
const UNIX = 3;
const KIND = 0o170000;
const LINK = 0o120000;
const END_BYTES = 22;
const LONGEST_NOTE = 0xffff;

interface Entry {
  path: string;
  method: number;
  packed: number;
  size: number;
  at: number;
  executable: boolean;
}

/** List the files of an archive; folders, and what macOS adds, are no files. */
export async function openZip(file: Blob, name: string): Promise<Source[]> {
  const damaged = (why: string): Unusable => new Unusable(`${name} is no .zip that can be read: ${why}`, 'Pack it again, or choose the folder itself.');
  const tail = await view(file.slice(Math.max(0, file.size - END_BYTES - LONGEST_NOTE)));
  let at = tail.byteLength - END_BYTES;
  while (at >= 0 && tail.getUint32(at, true) !== END) at -= 1;
  if (at < 0) throw damaged('it has no directory');
  const count = tail.getUint16(at + 10, true);
  const size = tail.getUint32(at + 12, true);
  const start = tail.getUint32(at + 16, true);
  if (count === 0xffff || start === 0xffffffff) throw damaged('it is too large (zip64)');
  if (start + size > file.size) throw damaged('its end is missing');
  const directory = await view(file.slice(start, start + size));
  const found: Source[] = [];
  for (let i = 0, p = 0; i < count; i++) {
    if (p + 46 > directory.byteLength || directory.getUint32(p, true) !== ENTRY) throw damaged('its directory is damaged');
    const entry = readEntry(directory, p, name);
    if (entry) found.push({ path: entry.path, size: entry.size, executable: entry.executable, bytes: () => unpack(file, entry, damaged) });
    p += 46 + directory.getUint16(p + 28, true) + directory.getUint16(p + 30, true) + directory.getUint16(p + 32, true);
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

function readEntry(view: DataView, p: number, archive: string): Entry | null {
  const flags = view.getUint16(p + 8, true);
  const length = view.getUint16(p + 28, true);
  if (p + 46 + length > view.byteLength) throw new Unusable(`${archive} is no .zip that can be read: its directory is damaged`);
  const path = textOf(new Uint8Array(view.buffer, view.byteOffset + p + 46, length)).replaceAll('\\', '/');
  if (path.endsWith('/') || path.startsWith('__MACOSX/')) return null;
  if (path.startsWith('/') || path.split('/').some(part => part === '' || part === '.' || part === '..')) {
    throw new Unusable(`${archive} holds “${path.slice(0, 100)}”, which leads out of it`);
  }
  if (flags & 1) throw new Unusable(`${archive} is encrypted`, 'Pack it without a password.');
  const method = view.getUint16(p + 10, true);
  if (method !== STORED && method !== DEFLATED) {
    throw new Unusable(`${path} in ${archive} is packed in a way that browsers cannot read`, 'Pack it as a plain .zip (deflate).');
  }
  const mode = view.getUint8(p + 5) === UNIX ? view.getUint16(p + 40, true) : 0;
  if ((mode & KIND) === LINK) throw new Unusable(`${path} in ${archive} is a link, which cannot travel`);
  const [packed, size, at] = [view.getUint32(p + 20, true), view.getUint32(p + 24, true), view.getUint32(p + 42, true)];
  return { path, method, packed, size, at, executable: (mode & 0o100) !== 0 };
}

async function unpack(file: Blob, entry: Entry, damaged: (why: string) => Unusable): Promise<Uint8Array> {
  const head = await view(file.slice(entry.at, entry.at + 30));
  if (head.byteLength < 30 || head.getUint32(0, true) !== LOCAL) throw damaged(`${entry.path} is not where it should be`);
  const begin = entry.at + 30 + head.getUint16(26, true) + head.getUint16(28, true);
  const packed = file.slice(begin, begin + entry.packed);
  let bytes: Uint8Array;
  try {
    // what is longer than it says is not unpacked to its end
    bytes = entry.method === STORED
      ? new Uint8Array(await packed.arrayBuffer())
      : await collect(packed.stream().pipeThrough(new DecompressionStream('deflate-raw')), entry.size);
  } catch {
    throw damaged(`${entry.path} is damaged`);
  }
  if (bytes.length !== entry.size) throw damaged(`${entry.path} is damaged`);
  return bytes;
}

async function view(blob: Blob): Promise<DataView> {
  return new DataView(await blob.arrayBuffer());
}

/** Names are UTF-8 nowadays, whatever the flag says; old ones are in some code page. */
function textOf(bytes: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    return new TextDecoder('latin1').decode(bytes);
  }
}

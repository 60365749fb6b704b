/**
 * A tar archive, packed: byte for byte the one that the command line makes of the same files, so that the master knows
 * both by one digest (a test compares them).
 *
 * This is why no library writes it. The archive has to be that of Python's `tarfile` (POSIX ustar, pax headers for long
 * and foreign names), and no writer for browsers names its pax headers and fills up its last record as that does. The
 * packing is zlib's own, by its port `pako`: a browser's CompressionStream packs with a faster zlib to other bytes.
 */

import { Deflate } from 'pako';

import { inSlices } from './slices';
import { Unusable, type Source } from './source';

const BLOCK = 512;
const RECORD = 20 * BLOCK;
/** As in detlab.client.bundling.bundle; the header's system is "unknown" there. */
const LEVEL = 6;
const SYSTEM_AT = 9;
const UNKNOWN_SYSTEM = 255;
const encoder = new TextEncoder();

/** Pack files, sorted by path; nothing of who packed it or when. */
export async function pack(files: readonly Source[], alive: () => void): Promise<Uint8Array<ArrayBuffer>> {
  const packer = new Deflate({ gzip: true, level: LEVEL, legacyHash: true });
  let written = 0;
  const write = async (bytes: Uint8Array): Promise<void> => {
    written += bytes.length;
    await inSlices(bytes, slice => {
      alive();
      packer.push(slice, false);
    });
  };
  for (const file of [...files].sort((a, b) => byCodePoints(a.path, b.path))) {
    alive();
    const bytes = await file.bytes();
    if (bytes.length !== file.size) throw new Unusable(`${file.path} changed while it was read`, 'Choose it again.');
    await write(header(file.path, bytes.length, file.executable ?? isScript(bytes)));
    await write(bytes);
    await write(new Uint8Array(-bytes.length & (BLOCK - 1)));
  }
  const end = written + 2 * BLOCK;
  await write(new Uint8Array(2 * BLOCK + ((RECORD - (end % RECORD)) % RECORD)));
  packer.push(new Uint8Array(0), true);
  if (packer.err) throw new Unusable('the files could not be packed', packer.msg || null);
  const packed = packer.result as Uint8Array<ArrayBuffer>;
  packed[SYSTEM_AT] = UNKNOWN_SYSTEM;
  return packed;
}

/** A file's header, after a pax header if its name needs one. */
export function header(path: string, size: number, executable: boolean): Uint8Array<ArrayBuffer> {
  const characters = [...path];
  const ascii = characters.map(one => (one <= '\x7f' ? one : '?')).join('');
  const own = block(ascii.slice(0, 100), size, executable ? 0o755 : 0o644, '0');
  if (ascii === path && path.length <= 100) return own;
  const record = encoder.encode(pax('path', path));
  const filled = Math.ceil(record.length / BLOCK) * BLOCK;
  const all = new Uint8Array(2 * BLOCK + filled);
  all.set(block('././@PaxHeader', record.length, 0, 'x'));
  all.set(record, BLOCK);
  all.set(own, BLOCK + filled);
  return all;
}

/** `LENGTH key=value\n`, where LENGTH counts itself, in bytes. */
function pax(key: string, value: string): string {
  const rest = encoder.encode(` ${key}=${value}\n`).length;
  let length = rest;
  while (length !== rest + String(length).length) length = rest + String(length).length;
  return `${length} ${key}=${value}\n`;
}

function block(name: string, size: number, mode: number, type: string): Uint8Array<ArrayBuffer> {
  const out = new Uint8Array(BLOCK);
  const put = (at: number, text: string): void => out.set(encoder.encode(text), at);
  const octal = (value: number, digits: number): string => value.toString(8).padStart(digits, '0');
  put(0, name);
  put(100, `${octal(mode, 7)}\0${octal(0, 7)}\0${octal(0, 7)}\0`);
  put(124, `${octal(size, 11)}\0${octal(0, 11)}\0`);
  put(148, ' '.repeat(8));
  put(156, type);
  put(257, 'ustar\x0000');
  put(148, `${octal(out.reduce((sum, byte) => sum + byte, 0), 6)}\0 `);
  return out;
}

/** Python's order of texts. JavaScript's own is that of UTF-16, in which 😀 comes before ﬁ. */
export function byCodePoints(a: string, b: string): number {
  for (let at = 0; ; at++) {
    const [x, y] = [a.codePointAt(at), b.codePointAt(at)];
    if (x === undefined || y === undefined || x !== y) return (x ?? -1) - (y ?? -1);
    if (x > 0xffff) at += 1;
  }
}

function isScript(bytes: Uint8Array): boolean {
  return bytes[0] === 0x23 && bytes[1] === 0x21; // #!
}

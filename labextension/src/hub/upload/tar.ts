/** A tar archive (POSIX ustar, pax headers for long or foreign names), packed by the browser's own gzip. */

import { collect, Unusable, type Source } from './source';

const BLOCK = 512;
const encoder = new TextEncoder();

/** Pack files, sorted by path; nothing of who packed it or when. */
export async function pack(files: readonly Source[], alive: () => void): Promise<Uint8Array> {
  if (typeof CompressionStream === 'undefined') {
    throw new Unusable('this browser cannot pack files', 'Use a newer one, or det experiment create CONFIG DIR.');
  }
  const gzip = new CompressionStream('gzip');
  const packed = collect(gzip.readable);
  const writer = gzip.writable.getWriter();
  try {
    for (const file of [...files].sort((a, b) => (a.path < b.path ? -1 : 1))) {
      alive();
      const bytes = await file.bytes();
      if (bytes.length !== file.size) throw new Unusable(`${file.path} changed while it was read`, 'Choose it again.');
      await writer.write(header(file.path, bytes.length, file.executable ?? isScript(bytes)));
      await writer.write(padded(bytes));
    }
    await writer.write(new Uint8Array(2 * BLOCK));
    await writer.close();
  } catch (error) {
    void writer.abort().catch(() => undefined);
    packed.catch(() => undefined);
    throw error;
  }
  return packed;
}

/** A file's header, after a pax header if its name needs one. */
export function header(path: string, size: number, executable: boolean): Uint8Array<ArrayBuffer> {
  const name = encoder.encode(path);
  const mode = executable ? 0o755 : 0o644;
  // eslint-disable-next-line no-control-regex
  if (name.length <= 100 && /^[\x20-\x7e]*$/.test(path)) return block(name, size, mode, '0');
  const record = padded(encoder.encode(pax('path', path)));
  const length = encoder.encode(pax('path', path)).length;
  const all = new Uint8Array(2 * BLOCK + record.length);
  all.set(block(encoder.encode('./PaxHeaders/path'), length, 0o644, 'x'));
  all.set(record, BLOCK);
  all.set(block(name.slice(0, 100), size, mode, '0'), BLOCK + record.length);
  return all;
}

/** `LENGTH key=value\n`, where LENGTH counts itself, in bytes. */
function pax(key: string, value: string): string {
  const rest = encoder.encode(` ${key}=${value}\n`).length;
  let length = rest + String(rest).length;
  length = rest + String(length).length;
  return `${length} ${key}=${value}\n`;
}

function block(name: Uint8Array, size: number, mode: number, type: string): Uint8Array<ArrayBuffer> {
  const out = new Uint8Array(BLOCK);
  const put = (at: number, text: string): void => out.set(encoder.encode(text), at);
  const octal = (value: number, digits: number): string => value.toString(8).padStart(digits, '0');
  out.set(name);
  put(100, `${octal(mode, 7)}\0${octal(0, 7)}\0${octal(0, 7)}\0`);
  put(124, `${octal(size, 11)}\0${octal(0, 11)}\0`);
  put(148, ' '.repeat(8));
  put(156, type);
  put(257, 'ustar\x0000');
  put(148, `${octal(out.reduce((sum, byte) => sum + byte, 0), 6)}\0 `);
  return out;
}

function padded(bytes: Uint8Array): Uint8Array<ArrayBuffer> {
  const out = new Uint8Array(Math.ceil(bytes.length / BLOCK) * BLOCK);
  out.set(bytes);
  return out;
}

function isScript(bytes: Uint8Array): boolean {
  return bytes[0] === 0x23 && bytes[1] === 0x21; // #!
}

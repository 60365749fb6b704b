/**
 * A bundle of code: a tar.gz, and the digest of its files by which the master knows it (detlab.schemas.bundles; a test
 * compares the two). How the archive is packed does not matter.
 *
 * SHA-256 is a library's: browsers offer their own only on https, and many a Hub of a small site has none.
 */

import { sha256 } from '@noble/hashes/sha2.js';
import { bytesToHex } from '@noble/hashes/utils.js';
import { createTarPacker } from 'modern-tar';

import { inSlices } from './slices';
import { Unusable, type Source } from './source';

const HEAD = 'detlab bundle 1\n';
const encoder = new TextEncoder();

export interface Bundle {
  /** `tree:` and 64 hex digits. */
  digest: string;
  packed: Blob;
}

/** Pack files, with nothing of who packed them or when; `alive` is called often and may throw. */
export async function pack(files: readonly Source[], alive: () => void): Promise<Bundle> {
  const { readable, controller } = createTarPacker();
  const packed = collected(readable.pipeThrough(new CompressionStream('gzip') as ReadableWritablePair<Uint8Array, Uint8Array>));
  packed.catch(() => undefined); // an error is thrown below
  const tree = sha256.create().update(encoder.encode(HEAD));
  try {
    for (const file of [...files].sort((a, b) => byCodePoints(a.path, b.path))) {
      alive();
      const bytes = await file.bytes();
      if (bytes.length !== file.size) throw new Unusable(`${file.path} changed while it was read`, 'Choose it again.');
      const executable = file.executable ?? isScript(bytes);
      const own = sha256.create();
      const body = controller.add({ name: file.path, size: bytes.length, mode: executable ? 0o755 : 0o644, mtime: new Date(0) }).getWriter();
      await inSlices(bytes, async slice => {
        alive();
        own.update(slice);
        await body.write(slice);
      });
      await body.close();
      tree.update(encoder.encode(`${executable ? '755' : '644'} ${bytesToHex(own.digest())} ${file.path}\0`));
    }
    controller.finalize();
  } catch (error) {
    controller.error(error);
    throw error;
  }
  return { digest: `tree:${bytesToHex(tree.digest())}`, packed: new Blob(await packed, { type: 'application/gzip' }) };
}

async function collected(stream: ReadableStream<Uint8Array>): Promise<BlobPart[]> {
  const parts: BlobPart[] = [];
  const reader = stream.getReader();
  for (let next = await reader.read(); !next.done; next = await reader.read()) parts.push(next.value as BlobPart);
  return parts;
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

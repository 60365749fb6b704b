/** SHA-256 by a library: browsers offer their own only on https, and many a Hub of a small site has none. */

import { sha256 as hash } from '@noble/hashes/sha2.js';
import { bytesToHex } from '@noble/hashes/utils.js';

import { inSlices } from './slices';

/** The digest of bytes, as 64 hex digits. */
export async function sha256(data: Uint8Array): Promise<string> {
  const state = hash.create();
  await inSlices(data, slice => void state.update(slice));
  return bytesToHex(state.digest());
}

/** SHA-256 (FIPS 180-4). Browsers offer their own only on https, and many a Hub of a small site has none. */

/** Bytes after which the page may draw: a bundle of the largest size takes about a second. */
const SLICE = 4 * 1024 * 1024;

const K = new Uint32Array(64);
const START = new Uint32Array(8);

/** The first 32 bits of the fractional parts of the cube and square roots of the first primes. */
(function fill(): void {
  const part = (x: number): number => Math.floor((x - Math.floor(x)) * 2 ** 32);
  for (let n = 2, found = 0; found < 64; n++) {
    let prime = true;
    for (let d = 2; d * d <= n; d++) if (n % d === 0) prime = false;
    if (!prime) continue;
    if (found < 8) START[found] = part(Math.sqrt(n));
    K[found++] = part(Math.cbrt(n));
  }
})();

/** The digest of bytes, as 64 hex digits. */
export async function sha256(data: Uint8Array): Promise<string> {
  const state = START.slice();
  const whole = data.length - (data.length % 64);
  for (let at = 0; at < whole; at += SLICE) {
    if (at) await new Promise(resolve => setTimeout(resolve));
    blocks(state, data, at, Math.min(whole, at + SLICE));
  }
  const rest = data.length - whole;
  const tail = new Uint8Array(rest < 56 ? 64 : 128);
  tail.set(data.subarray(whole));
  tail[rest] = 0x80;
  const view = new DataView(tail.buffer);
  view.setUint32(tail.length - 8, Math.floor(data.length / 2 ** 29));
  view.setUint32(tail.length - 4, (data.length << 3) >>> 0);
  blocks(state, tail, 0, tail.length);
  return [...state].map(word => word.toString(16).padStart(8, '0')).join('');
}

function blocks(state: Uint32Array, data: Uint8Array, from: number, to: number): void {
  const w = new Uint32Array(64);
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  for (let at = from; at < to; at += 64) {
    for (let i = 0; i < 16; i++) w[i] = view.getUint32(at + 4 * i);
    for (let i = 16; i < 64; i++) {
      const a = w[i - 15]!;
      const b = w[i - 2]!;
      const s0 = ((a >>> 7) | (a << 25)) ^ ((a >>> 18) | (a << 14)) ^ (a >>> 3);
      const s1 = ((b >>> 17) | (b << 15)) ^ ((b >>> 19) | (b << 13)) ^ (b >>> 10);
      w[i] = w[i - 16]! + s0 + w[i - 7]! + s1;
    }
    round(state, w);
  }
}

function round(state: Uint32Array, w: Uint32Array): void {
  let a = state[0]!, b = state[1]!, c = state[2]!, d = state[3]!, e = state[4]!, f = state[5]!, g = state[6]!, h = state[7]!;
  for (let i = 0; i < 64; i++) {
    const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
    const t1 = (h + s1 + ((e & f) ^ (~e & g)) + K[i]! + w[i]!) | 0;
    const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
    const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    h = g; g = f; f = e; e = (d + t1) | 0; d = c; c = b; b = a; a = (t1 + t2) | 0;
  }
  [a, b, c, d, e, f, g, h].forEach((word, i) => (state[i] = state[i]! + word));
}

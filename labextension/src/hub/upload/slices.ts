/** Process bytes in short slices, between which the page stays responsive. */

/** Bytes per slice: some 20 ms of packing. */
const SLICE = 256 * 1024;
const MOST_MS = 30;

/** Give bytes to `work` piece by piece. */
export async function inSlices(bytes: Uint8Array, work: (slice: Uint8Array) => Promise<void>): Promise<void> {
  let begun = performance.now();
  for (let at = 0; at < bytes.length; at += SLICE) {
    await work(bytes.subarray(at, at + SLICE));
    if (performance.now() - begun < MOST_MS) continue;
    await nextTurn();
    begun = performance.now();
  }
}

/** The next turn of the event loop. A page that is hidden gets it at once, too, which no timer promises. */
function nextTurn(): Promise<void> {
  return new Promise(resolve => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });
}

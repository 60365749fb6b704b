/** Files that the page makes or the master writes. */

import type { Picture } from './svg';

/** Hand a file to the browser's downloads. */
export function download(file: Blob, name: string): void {
  const address = URL.createObjectURL(file);
  const link = document.createElement('a');
  link.href = address;
  link.download = name;
  link.click();
  window.setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

/** A file name of a text that somebody else may have chosen. */
export function fileName(text: string, ending: string): string {
  return `${text.replace(/[^\p{L}\p{N}._-]+/gu, '-').replace(/^[-.]+|[-.]+$/g, '').slice(0, 80) || 'figure'}.${ending}`;
}

/** Pixels of a PNG for one of the picture, and the most that one side has. */
const SCALE = 2;
const MOST_PIXELS = 8000;

/** Draw a picture as PNG. */
export async function rasterised({ svg, width, height }: Picture): Promise<Blob> {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await image.decode();
  const scale = Math.min(SCALE, MOST_PIXELS / Math.max(width, height));
  const canvas = document.createElement('canvas');
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.getContext('2d')!.drawImage(image, 0, 0, canvas.width, canvas.height);
  const file = await new Promise<Blob | null>(done => canvas.toBlob(done, 'image/png'));
  if (!file) throw new Error('this browser draws no picture of that size; save it as SVG');
  return file;
}

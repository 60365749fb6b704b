/** Pictures as SVG: the same drawing code draws on a canvas and into a file. */

/** What draws lines: the context of a canvas, or an `SvgPen`. */
export type Pen = Pick<
  CanvasRenderingContext2D,
  'arc' | 'beginPath' | 'fill' | 'fillStyle' | 'globalAlpha' | 'lineJoin' | 'lineTo' | 'lineWidth' | 'moveTo' | 'stroke' | 'strokeStyle'
>;

/** A finished picture. */
export interface Picture {
  svg: string;
  width: number;
  height: number;
}

/** Colours of a saved picture: those of print, whatever the page looks like. */
export const PAPER = { ground: '#ffffff', ink: '#24292f', soft: '#59636e', rule: '#d8dee4' };
export const FONT = 'system-ui, -apple-system, Segoe UI, Roboto, sans-serif';

/** Collects what is drawn as elements of SVG. */
export class SvgPen implements Pen {
  strokeStyle: CanvasRenderingContext2D['strokeStyle'] = '#000000';
  fillStyle: CanvasRenderingContext2D['fillStyle'] = '#000000';
  globalAlpha = 1;
  lineWidth = 1;
  lineJoin: CanvasLineJoin = 'miter';
  readonly elements: string[] = [];
  private path: string[] = [];

  beginPath(): void {
    this.path = [];
  }

  moveTo(x: number, y: number): void {
    this.path.push(`M${short(x)} ${short(y)}`);
  }

  lineTo(x: number, y: number): void {
    this.path.push(`L${short(x)} ${short(y)}`);
  }

  /** Whole circles only: nothing here draws another arc. */
  arc(x: number, y: number, radius: number): void {
    const r = short(radius);
    this.path.push(`M${short(x - radius)} ${short(y)}a${r} ${r} 0 1 0 ${short(2 * radius)} 0a${r} ${r} 0 1 0 ${short(-2 * radius)} 0`);
  }

  stroke(): void {
    const { strokeStyle, lineWidth, lineJoin } = this;
    this.add(`fill="none" stroke="${escaped(String(strokeStyle))}" stroke-width="${short(lineWidth)}" stroke-linejoin="${lineJoin}" stroke-opacity="${short(this.globalAlpha)}"`);
  }

  fill(): void {
    this.add(`fill="${escaped(String(this.fillStyle))}" fill-opacity="${short(this.globalAlpha)}"`);
  }

  private add(style: string): void {
    if (this.path.length) this.elements.push(`<path d="${this.path.join('')}" ${style}/>`);
  }
}

/** A hundredth of a pixel is exact enough. */
export function short(value: number): string {
  return String(Math.round(value * 100) / 100);
}

/** Text as it may stand in XML, which knows no control characters and no half of a surrogate pair. */
export function escaped(text: string): string {
  return text
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]|[\ud800-\udfff]/gu, '\ufffd')
    .replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;').replace(/"/g, '&quot;');
}

export function textElement(x: number, y: number, text: string, more: { anchor?: 'start' | 'middle' | 'end'; size?: number; fill?: string; bold?: boolean } = {}): string {
  const { anchor = 'start', size = 11, fill = PAPER.soft, bold } = more;
  return `<text x="${short(x)}" y="${short(y)}" text-anchor="${anchor}" font-size="${size}" fill="${fill}"${bold ? ' font-weight="600"' : ''}>${escaped(text)}</text>`;
}

export function lineElement(x1: number, y1: number, x2: number, y2: number, dashed = false): string {
  const stroke = dashed ? PAPER.soft : PAPER.rule;
  return `<line x1="${short(x1)}" y1="${short(y1)}" x2="${short(x2)}" y2="${short(y2)}" stroke="${stroke}"${dashed ? ' stroke-dasharray="2 3"' : ''}/>`;
}

/** Elements as a picture of a size in CSS pixels. */
export function pictureOf(width: number, height: number, elements: readonly string[]): Picture {
  const [w, h] = [Math.ceil(width), Math.ceil(height)];
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${w}" height="${h}" viewBox="0 0 ${w} ${h}" font-family="${FONT}">`
    + `<rect width="${w}" height="${h}" fill="${PAPER.ground}"/>${elements.join('')}</svg>`;
  return { svg, width: w, height: h };
}

export interface LegendItem {
  colour: string;
  text: string;
}

const ROW = 18;
const CHARACTER = 6.3;

/** A legend in as many rows as it needs, and how high it is. */
export function legendElements(items: readonly LegendItem[], left: number, top: number, width: number): { elements: string[]; height: number } {
  const elements: string[] = [];
  let [x, y] = [left, top + ROW - 6];
  for (const { colour, text } of items) {
    const wide = 22 + text.length * CHARACTER + 14;
    if (x > left && x + wide > left + width) [x, y] = [left, y + ROW];
    elements.push(`<rect x="${short(x)}" y="${short(y - 5)}" width="16" height="3" rx="1" fill="${escaped(colour)}"/>`, textElement(x + 22, y, text));
    x += wide;
  }
  return { elements, height: items.length ? y - top + 8 : 0 };
}

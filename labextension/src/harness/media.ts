/** What a made-up trial has logged beyond numbers. */

import type { MediaKeyView, MediaView } from '../state/wire';
import * as made from './fixtures';

const STEPS = Array.from({ length: 12 }, (_, i) => 100 * (i + 1));
const KINDS: Record<string, { kind: string; media_type: string; each: number; body?: unknown }> = {
  samples: { kind: 'image', media_type: 'image/png', each: 8 },
  answer: { kind: 'text', media_type: 'text/plain', each: 1, body: 'The quick brown fox jumps over the lazy dog.' },
  predictions: {
    kind: 'table', media_type: 'application/json', each: 1,
    body: { columns: ['digit', 'predicted', 'score'], rows: Array.from({ length: 40 }, (_, i) => [i % 10, (i * 7) % 10, 1 / (i + 1)]), left_out: 0 }
  },
  confusion: { kind: 'confusion', media_type: 'application/json', each: 1, body: { labels: ['cat', 'dog', 'cow'], counts: [[40, 3, 1], [2, 51, 4], [0, 6, 38]] } },
  weights: {
    kind: 'histogram', media_type: 'application/json', each: 1,
    body: { edges: Array.from({ length: 21 }, (_, i) => i - 10), counts: Array.from({ length: 20 }, (_, i) => Math.round(100 * Math.exp(-((i - 9.5) ** 2) / 20))), not_finite: 0 }
  }
};
const NAMES = Object.keys(KINDS);

function keyOf(name: string, hostile: boolean): string {
  return hostile ? `${made.HOSTILE.name} ${name}` : name;
}

export function keys(trials: number, hostile: boolean): { items: MediaKeyView[]; next: null } {
  const items = NAMES.map(name => ({
    key: keyOf(name, hostile), kind: KINDS[name]!.kind, count: STEPS.length * KINDS[name]!.each, bytes: 10_000, first_step: STEPS[0]!, last_step: STEPS.at(-1)!
  }));
  return { items: trials ? items : [], next: null };
}

export function steps(trials: number): { items: number[]; next: null } {
  return { items: trials ? STEPS : [], next: null };
}

export function page(trial: number, query: URLSearchParams, hostile: boolean): { items: MediaView[]; next: null } {
  const at = Math.max(0, STEPS.filter(step => step <= Number(query.get('at') ?? Infinity)).length - 1);
  const items = NAMES.flatMap((name, row) => Array.from({ length: KINDS[name]!.each }, (_, place) => ({
    id: 1000 * at + 20 * row + place, trial_id: trial, run_id: trial ? '' : 'a'.repeat(32), step: STEPS[at]!, key: keyOf(name, hostile), place, kind: KINDS[name]!.kind,
    media_type: KINDS[name]!.media_type, caption: hostile ? made.HOSTILE.name : name === 'samples' ? `digit ${place}` : '', size: 2048,
    width: name === 'samples' ? 64 : 0, height: name === 'samples' ? 64 : 0, time: made.BEGAN
  })));
  return { items, next: null };
}

const FILE = /^(?:trials|runs)\/[^/]+\/media\/(\d+)\/file$/;

/** The file of an object as text; null: it is none. */
export function text(path: string, hostile: boolean): string | null {
  const found = FILE.exec(path);
  if (!found) return null;
  const { body } = KINDS[NAMES[Math.floor((Number(found[1]) % 1000) / 20)]!] ?? {};
  const said = typeof body === 'string' ? body : JSON.stringify(body);
  return hostile && typeof body === 'string' ? `${made.HOSTILE.log}\n${made.HOSTILE.name}` : said;
}

/** An image for <img>; null: it is no file of an object. */
export function image(path: string): string | null {
  const found = FILE.exec(path);
  if (!found) return null;
  const hue = (Number(found[1]) * 37) % 360;
  return `data:image/svg+xml,${encodeURIComponent(`<svg xmlns="http://www.w3.org/2000/svg" width="64" height="64"><rect width="64" height="64" fill="hsl(${hue} 40% 30%)"/><circle cx="32" cy="32" r="20" fill="hsl(${hue} 70% 70%)"/></svg>`)}`;
}

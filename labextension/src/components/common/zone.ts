/**
 * The time zone in which times are shown: this browser's own, UTC, or another one by its IANA name. The master has what the
 * user has chosen; a copy is in the browser, so that the first paint is right.
 */

import { useSyncExternalStore } from 'react';

/** `local`, or an IANA name such as `UTC` or `Europe/Berlin`. */
export type Zone = string;

export const LOCAL = 'local';
const KEY = 'detlab:zone';
const listeners = new Set<() => void>();
let chosen: Zone | null = null;

export function zoneNow(): Zone {
  return (chosen ??= stored());
}

/** Show times in a zone from now on; one that this browser does not know is its own. */
export function chooseZone(zone: Zone): void {
  const known = knownZone(zone);
  if (known === zoneNow()) return;
  chosen = known;
  try {
    window.localStorage.setItem(KEY, known);
  } catch {
    // Then it lasts as long as this page.
  }
  listeners.forEach(listener => listener());
}

/** The zone; the component is drawn again when another one is chosen, here or in another tab. */
export function useZone(): Zone {
  return useSyncExternalStore(subscribe, zoneNow);
}

/** The names of zones that this browser knows. */
export function zoneNames(): string[] {
  const names = (Intl as { supportedValuesOf?: (key: string) => string[] }).supportedValuesOf?.('timeZone') ?? [];
  return names.includes('UTC') ? names : ['UTC', ...names];
}

/** Whether this browser can tell the time in a zone: it knows more names than it lists, as those that were changed. */
export function knowsZone(zone: Zone): boolean {
  try {
    formatOf(zone);
    return true;
  } catch {
    return false;
  }
}

const formats = new Map<Zone, Intl.DateTimeFormat>();

function formatOf(zone: Zone): Intl.DateTimeFormat {
  const known = formats.get(zone);
  if (known) return known;
  const made = new Intl.DateTimeFormat('en-GB', {
    timeZone: zone, hourCycle: 'h23', year: 'numeric', month: '2-digit', day: '2-digit',
    hour: '2-digit', minute: '2-digit', second: '2-digit', timeZoneName: 'short'
  });
  formats.set(zone, made);
  return made;
}

function partsOf(seconds: number, zone: Zone): { text: string; name: string } {
  const found: Record<string, string> = {};
  for (const { type, value } of formatOf(zone).formatToParts(seconds * 1000)) found[type] = value;
  const { year, month, day, hour, minute, second, timeZoneName = zone } = found;
  return { text: `${year!.padStart(4, '0')}-${month}-${day} ${hour}:${minute}:${second}`, name: timeZoneName };
}

/** `2026-11-29 20:05:00 CET`: of a zone that is not the browser's own. */
export function inZone(seconds: number, zone: Zone): string {
  const { text, name } = partsOf(seconds, zone);
  return `${text} ${name}`;
}

/** Seconds by which the clocks of a zone are ahead of UTC at a moment. */
export function aheadOf(seconds: number, zone: Zone): number {
  if (zone === LOCAL) return new Date(seconds * 1000).getTimezoneOffset() * -60;
  return Date.parse(`${partsOf(seconds, zone).text.replace(' ', 'T')}Z`) / 1000 - Math.floor(seconds);
}

function knownZone(zone: string): Zone {
  if (zone === LOCAL) return LOCAL;
  const name = zone === 'utc' ? 'UTC' : zone; // as it was kept before
  try {
    formatOf(name);
    return name;
  } catch {
    return LOCAL;
  }
}

function stored(): Zone {
  try {
    return knownZone(window.localStorage.getItem(KEY) ?? LOCAL);
  } catch {
    return LOCAL; // storage may be forbidden, or absent
  }
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  const elsewhere = (event: StorageEvent): void => {
    if (event.key !== KEY) return;
    chosen = stored();
    listener();
  };
  window.addEventListener('storage', elsewhere);
  return () => {
    listeners.delete(listener);
    window.removeEventListener('storage', elsewhere);
  };
}

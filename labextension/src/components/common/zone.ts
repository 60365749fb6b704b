/** The time zone in which times are shown: this browser's own, or UTC. Kept in the browser, for all pages of this site. */

import { useSyncExternalStore } from 'react';

export type Zone = 'local' | 'utc';

const KEY = 'detlab:zone';
const listeners = new Set<() => void>();
let chosen: Zone | null = null;

export function zoneNow(): Zone {
  return (chosen ??= stored());
}

export function chooseZone(zone: Zone): void {
  chosen = zone;
  try {
    window.localStorage.setItem(KEY, zone);
  } catch {
    // Then it lasts as long as this page.
  }
  listeners.forEach(listener => listener());
}

/** The zone; the component is drawn again when another one is chosen, here or in another tab. */
export function useZone(): Zone {
  return useSyncExternalStore(subscribe, zoneNow);
}

function stored(): Zone {
  try {
    return window.localStorage.getItem(KEY) === 'utc' ? 'utc' : 'local';
  } catch {
    return 'local'; // storage may be forbidden, or absent
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

/** What the user removed from the list of their work; the browser keeps it. */

import { useCallback, useState } from 'react';

import { Dismissed, NOTHING_DISMISSED } from './work';

const KEY = 'detlab:dismissed';
/** Entries kept; older ones are folded by their age anyway. */
const MOST = 300;

export interface Dismissal {
  dismissed: Dismissed;
  /** Remove one entry. */
  dismiss(key: string): void;
  /** Remove all that had ended by a moment. */
  clear(before: number): void;
}

/** The dismissed work of one cluster. */
export function useDismissed(cluster: string): Dismissal {
  const name = `${KEY}:${cluster}`;
  const [kept, setKept] = useState(() => ({ name, dismissed: read(name) }));
  const dismissed = kept.name === name ? kept.dismissed : read(name);
  const change = useCallback((to: (now: Dismissed) => Dismissed): void => {
    const next = to(read(name));
    write(name, next);
    setKept({ name, dismissed: next });
  }, [name]);
  const dismiss = useCallback(
    (key: string) => change(now => ({ ...now, keys: [...now.keys.filter(one => one !== key), key].slice(-MOST) })), [change]
  );
  const clear = useCallback((before: number) => change(() => ({ keys: [], before })), [change]);
  return { dismissed, dismiss, clear };
}

function read(name: string): Dismissed {
  try {
    const found = JSON.parse(localStorage.getItem(name) ?? 'null') as Partial<Dismissed> | null;
    const keys = Array.isArray(found?.keys) ? found.keys.filter(key => typeof key === 'string') : [];
    return { keys, before: typeof found?.before === 'number' ? found.before : 0 };
  } catch {
    return NOTHING_DISMISSED;
  }
}

function write(name: string, dismissed: Dismissed): void {
  try {
    localStorage.setItem(name, JSON.stringify(dismissed));
  } catch {
    // Private windows may have no storage: then it holds until the page is loaded again.
  }
}

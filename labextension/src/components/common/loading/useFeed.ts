/** A feed with the lifetime and visibility of the component that shows it. */

import { useEffect, useRef, useState, useSyncExternalStore } from 'react';

import { useApp } from '../../../state/context';
import type { AppContext } from '../../../state/context';
import type { Feed, FeedState } from '../../../state/feed';

/** `make` is called again for another `key`. */
export function useFeed<S extends FeedState, F extends Feed<S>>(
  make: (app: AppContext) => F & Feed<S>, key: string | number, visible: boolean
): { feed: F | null; state: S | null } {
  const app = useApp();
  const [feed, setFeed] = useState<(F & Feed<S>) | null>(null);
  const latest = useRef(() => make(app));
  latest.current = () => make(app);
  useEffect(() => {
    const made = latest.current();
    setFeed(made);
    made.begin();
    return () => made.stop();
  }, [app.api, app.store, key]);
  useEffect(() => feed?.setVisible(visible), [feed, visible]);
  const state = useSyncExternalStore(feed?.subscribe ?? nothing, () => feed?.getState() ?? null);
  return { feed, state };
}

function nothing(): () => void {
  return () => undefined;
}

/** The feed of one experiment for a component, and the summary of a trial that tells which metrics there are. */

import { useEffect, useState, useSyncExternalStore } from 'react';

import { useApp } from '../../state/context';
import { ExperimentFeed, FeedState } from './feed';

/** Follow an experiment while the component lives and is visible. */
export function useFeed(id: number, visible: boolean): { feed: ExperimentFeed | null; state: FeedState | null } {
  const { api, store } = useApp();
  const [feed, setFeed] = useState<ExperimentFeed | null>(null);
  useEffect(() => {
    const made = new ExperimentFeed(api, store.channel, id);
    setFeed(made);
    void made.start();
    return () => made.stop();
  }, [api, store, id]);
  useEffect(() => feed?.setVisible(visible), [feed, visible]);
  const state = useSyncExternalStore(feed?.subscribe ?? nothing, () => feed?.getState() ?? null);
  return { feed, state };
}

function nothing(): () => void {
  return () => undefined;
}

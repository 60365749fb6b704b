/** Archived experiments, which "My work" leaves out: shown when the filter asks for them. */

import type { ReactElement } from 'react';

import { useApp } from '../../state/context';
import { missedMetric } from '../../state/states';
import type { ExperimentView } from '../../state/wire';
import { ActionButton, EmptyState, formatAgo, formatTime, Loading, StateBadge, useLoaded, useNow } from '../common';
import { nameText } from '../common/text';
import { experimentName, matches } from './work';
import { WorkList } from './WorkList';
import { attempt } from './workactions';

const WORD = /(^|\s)state:archived(?=\s|$)/i;
/** Most that are loaded: the newest. */
const MOST = 200;

/** "My work", or archived experiments if the filter has the word `state:archived`. */
export function FilteredWork({ filter }: { filter: string }): ReactElement {
  return WORD.test(filter) ? <Archived filter={filter} /> : <WorkList filter={filter} />;
}

function Archived({ filter }: { filter: string }): ReactElement {
  const app = useApp();
  const now = useNow();
  const loaded = useLoaded('archived', signal =>
    app.api.get<{ items: ExperimentView[] }>(`experiments?archived=only&limit=${MOST}`, signal));
  if (loaded.error) return <EmptyState title={nameText(loaded.error.message, 300)} />;
  if (!loaded.data) return <Loading what="Loading archived experiments" />;
  const rest = filter.replace(WORD, ' ');
  const found = loaded.data.items.filter(e => matches({ kind: 'experiment', key: '', over: true, time: 0, experiment: e }, rest));
  if (!found.length) return <EmptyState title="No archived experiment matches." />;
  const restore = (e: ExperimentView): Promise<void> =>
    attempt(app, `Unarchive experiment ${e.id}`, async () => {
      app.store.learn({ experiment: await app.api.post<ExperimentView>(`experiments/${e.id}/edit`, { archived: false }) });
      loaded.reload();
    });
  return (
    <ul className="det-list" aria-label="Archived experiments">
      {found.map(e => (
        <li key={e.id} className="det-item">
          <div className="det-item-head">
            <button
              type="button" className="det-link det-name det-ellipsis" title={`Experiment ${e.id}: ${nameText(experimentName(e))}`}
              onClick={() => app.navigate({ kind: 'experiment', id: e.id })}
            >
              {nameText(experimentName(e))}
            </button>
            <span className="det-soft det-num">#{e.id}</span>
            <ActionButton label="Unarchive" onRun={() => restore(e)} />
          </div>
          <div className="det-facts">
            <StateBadge state={e.state} warning={missedMetric(e)} />
            <time className="det-age det-num" title={`archived ${formatTime(e.archived_at ?? 0)}`}>archived {formatAgo(e.archived_at, now)}</time>
          </div>
        </li>
      ))}
    </ul>
  );
}

/** How many trials are at each rung, round or generation of a search. */

import { ReactElement } from 'react';

import { useApp } from '../../state/context';
import { isOver } from '../../state/states';
import type { ExperimentView, ReplayedSearch } from '../../state/wire';
import { useLoaded } from '../common';
import { nameText } from '../common/text';
import { useThrottled } from '../common/loading/useThrottled';

/** The master computes it from the whole journal: it is asked again at most this often (ms). */
const RECOUNT_MS = 60_000;

/** Nothing is shown for methods without rungs, rounds or generations. `version`: another one after each change of a trial. */
export function Standing({ experiment: e, version }: { experiment: ExperimentView; version: number }): ReactElement | null {
  const { api } = useApp();
  const round = useThrottled(version, RECOUNT_MS);
  const { data } = useLoaded(`${e.id} ${round} ${isOver(e.state)}`, signal =>
    api.get<ReplayedSearch>(`experiments/${e.id}/search/replay?only=standing`, signal));
  const rows = data?.standing ?? [];
  if (!rows.length) return null;
  const names = [...new Set(rows.flatMap(row => Object.keys(row.counts)))];
  const seeds = Number((e.config?.['searcher'] as Record<string, unknown> | undefined)?.['seeds'] ?? 1);
  const caption = `${seeds > 1 ? 'Points' : 'Trials'} by ${/^(generation|round)/.exec(rows[0]!.where)?.[1] ?? 'rung'}`;
  return (
    <div className="det-x-scroll" tabIndex={0} role="group" aria-label={caption}>
      <table className="det-standing">
        <caption>{caption}</caption>
        <thead>
          <tr><th scope="col">Where</th>{names.map(name => <th key={name} scope="col" className="det-num">{nameText(name, 40)}</th>)}</tr>
        </thead>
        <tbody>
          {rows.map(({ where, counts }) => (
            <tr key={where}>
              <th scope="row">{nameText(where, 120)}</th>
              {names.map(name => <td key={name} className="det-num">{counts[name] || '–'}</td>)}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

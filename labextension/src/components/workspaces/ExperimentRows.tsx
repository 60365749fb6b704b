/** The experiments of a workspace, of a project, or of others: newest first, page by page. */

import { ReactElement, ReactNode, useState } from 'react';

import { useStore } from '../../state/context';
import { experimentState, missedMetric } from '../../state/states';
import type { ExperimentView } from '../../state/wire';
import { Ago, Go, Sheet } from '../admin/parts';
import { ActionButton, EmptyState, ErrorBanner, formatNumber, Loading, Menu, StateBadge, Toggle } from '../common';
import { nameText } from '../common/text';
import { useSettled } from '../common/loading/useThrottled';
import { ownersAlone } from '../view/actions';
import { bestOf } from '../view/progress';
import { useReloadOn } from '../common/loading/load';
import { useRechecked } from '../common/loading/rights';
import { usePaged } from './load';
import { MoveExperiment } from './MoveExperiment';

const PAGE = 50;
const RELOAD_MS = 1500;

export interface Where {
  /** An id, a name or OWNER/NAME. */
  workspace?: string;
  project?: string;
  /** A filter of the list. */
  filter?: string;
}

export function ExperimentRows({ where, label, empty, showProject = false }: {
  where: Where; label: string; empty: ReactNode; showProject?: boolean;
}): ReactElement {
  const [search, setSearch] = useState('');
  const [archived, setArchived] = useState(false);
  const name = useSettled(search.trim());
  const found = usePaged<ExperimentView>(pathOf(where, name, archived), 'before');
  const [moving, setMoving] = useState<ExperimentView | null>(null);
  useRechecked(found.reload);
  // One that is new here, and one whose state has changed; what its progress is, its own page shows.
  useReloadOn('experiment', found.reload, RELOAD_MS, ({ experiment_id, data }) => {
    const known = found.items?.find(one => one.id === experiment_id);
    return known === undefined || known.state !== data.state;
  });
  const { items, error, more } = found;
  const filtered = name !== '' || archived;
  return (
    <div className="det-rows">
      {(filtered || search !== '' || (items !== null && items.length > 0)) && (
        <div className="det-adm-filters" role="search" aria-label={label}>
          <input className="det-input" type="search" aria-label="Filter by name" placeholder="A part of the name" value={search} onChange={event => setSearch(event.target.value)} />
          <Toggle on={archived} label="Archived" tip="Show also archived experiments" onChange={setArchived} />
        </div>
      )}
      {error && <ErrorBanner error={error} what="Experiments" onRetry={found.reload} />}
      {!items && !error && <Loading what="Loading the experiments" />}
      {items && !items.length && (filtered ? <EmptyState title="No experiment fits." /> : empty)}
      {items && items.length > 0 && <Rows items={items} label={label} showProject={showProject} onMove={setMoving} />}
      {more && <p className="det-adm-more"><ActionButton label="Show more" onRun={found.showMore} /></p>}
      {moving && <MoveExperiment experiment={moving} onClose={() => setMoving(null)} onMoved={() => { setMoving(null); found.reload(); }} />}
    </div>
  );
}

function pathOf({ workspace, project, filter }: Where, name: string, archived: boolean): string {
  const query = [`limit=${PAGE}`];
  const conditions = filter ? [filter] : [];
  if (name && filter) conditions.push(`name contains ${JSON.stringify(name)}`);
  else if (name) query.push(`name=${encodeURIComponent(name)}`);
  if (conditions.length) query.push(`filter=${encodeURIComponent(conditions.join(' and '))}`);
  if (workspace !== undefined) query.push(`workspace=${encodeURIComponent(workspace)}`);
  if (project !== undefined) query.push(`project=${encodeURIComponent(project)}`);
  if (archived) query.push('archived=any');
  return `experiments?${query.join('&')}`;
}

function Rows({ items, label, showProject, onMove }: {
  items: readonly ExperimentView[]; label: string; showProject: boolean; onMove: (e: ExperimentView) => void;
}): ReactElement {
  const me = useStore(s => s.me);
  const head = (
    <>
      <th className="det-right">Id</th>
      <th>Experiment</th>
      <th>State</th>
      <th>Owner</th>
      {showProject && <th>Project</th>}
      <th className="det-right">Best</th>
      <th>Submitted</th>
      <th><span className="det-hidden">Actions</span></th>
    </>
  );
  return (
    <Sheet label={label} head={head}>
      {items.map(e => (
        <tr key={e.id} data-archived={e.archived_at ? true : undefined}>
          <td className="det-right det-num">{e.id}</td>
          <td>
            <Go to={{ kind: 'experiment', id: e.id }}><span className="det-adm-name"><bdi>{nameText(e.name) || `experiment ${e.id}`}</bdi></span></Go>
            {e.archived_at ? <span className="det-chip">archived</span> : null}
          </td>
          <td><StateBadge state={experimentState(e)} about={e.pending_reason} warning={missedMetric(e)} /></td>
          <td><span className="det-adm-name">{nameText(e.owner, 60)}</span></td>
          {showProject && (
            <td>
              {e.workspace_id !== null && e.project_id !== null
                ? <Go to={{ kind: 'project', workspace: String(e.workspace_id), project: String(e.project_id) }}><span className="det-adm-name"><bdi>{nameText(e.project, 120)}</bdi></span></Go>
                : '–'}
            </td>
          )}
          <td className="det-right det-num" title={e.best ? `${nameText(e.metric, 60)} of ${bestOf(e.best)}` : undefined}>{e.best ? formatNumber(e.best.value) + (e.best.failed ? ' (failed)' : '') : '–'}</td>
          <td><Ago time={e.created_at} /></td>
          <td className="det-right">
            <Menu label={`Actions of experiment ${e.id}`} actions={() => [{ key: 'move', label: 'Move …', why: ownersAlone(me, e), run: () => onMove(e) }]} />
          </td>
        </tr>
      ))}
    </Sheet>
  );
}

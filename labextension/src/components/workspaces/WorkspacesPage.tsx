/** The workspaces in which one has a role: one's own, and those of others. */

import { ReactElement, useState } from 'react';

import { useApp, useStore } from '../../state/context';
import type { WorkspaceView } from '../../state/wire';
import { Ago, Go, Sheet, View } from '../admin/parts';
import { ActionButton, EmptyState, ErrorBanner, Loading, Toggle } from '../common';
import { nameText } from '../common/text';
import { useSettled } from '../common/loading/useThrottled';
import { readOnly } from '../view/actions';
import { NewWorkspace } from './forms';
import { useRechecked } from '../common/loading/rights';
import { usePaged } from './load';
import { roleWord, workspaceName } from './model';

const PAGE = 100;

export function WorkspacesPage(): ReactElement {
  const { navigate } = useApp();
  const me = useStore(s => s.me);
  const [search, setSearch] = useState('');
  const [archived, setArchived] = useState(false);
  const [making, setMaking] = useState(false);
  const name = useSettled(search.trim());
  const found = usePaged<WorkspaceView>(
    `workspaces?limit=${PAGE}${name ? `&name=${encodeURIComponent(name)}` : ''}${archived ? '&archived=any' : ''}`, 'after'
  );
  useRechecked(found.reload);
  const { items, error, more } = found;
  const mine = items?.filter(one => one.owner === me?.name) ?? [];
  const others = items?.filter(one => one.owner !== me?.name) ?? [];
  const teams = items?.some(one => !one.personal) ?? false;
  const filtered = name !== '' || archived;
  return (
    <View
      title="Workspaces" summary="Folders with members, who see what lies in them."
      tools={<ActionButton label="New workspace …" why={readOnly(me)} onRun={() => setMaking(true)} />}
    >
      {making && <NewWorkspace onClose={() => setMaking(false)} onMade={made => { setMaking(false); navigate({ kind: 'workspace', workspace: String(made.id) }); }} />}
      {(teams || filtered || search !== '') && (
        <div className="det-adm-filters" role="search" aria-label="Workspaces">
          <input className="det-input" type="search" aria-label="Search workspaces" placeholder="A part of the name" value={search} onChange={event => setSearch(event.target.value)} />
          <Toggle on={archived} label="Archived" tip="Show also archived workspaces" onChange={setArchived} />
        </div>
      )}
      {error && <ErrorBanner error={error} what="Workspaces" onRetry={found.reload} />}
      {!items && !error && <Loading what="Loading the workspaces" />}
      {items && !teams && !filtered && <FirstWorkspace />}
      {items && !items.length && filtered && <EmptyState title="No workspace fits." />}
      {teams && mine.length > 0 && <Part title="Yours" items={mine} />}
      {others.length > 0 && <Part title="Shared with you" items={others} />}
      {more && <p className="det-adm-more"><ActionButton label="Show more" onRun={found.showMore} /></p>}
    </View>
  );
}

function Part({ title, items }: { title: string; items: readonly WorkspaceView[] }): ReactElement {
  const me = useStore(s => s.me?.name ?? '');
  const head = (
    <>
      <th>Workspace</th>
      <th>Your role</th>
      <th className="det-right">Projects</th>
      <th className="det-right">Experiments</th>
      <th className="det-right">Runs</th>
      <th className="det-right">Models</th>
      <th className="det-adm-roomy">Made</th>
    </>
  );
  return (
    <section className="det-part">
      <h2>{title}</h2>
      <Sheet label={title} head={head}>
        {items.map(one => (
          <tr key={one.id} data-archived={one.archived_at ? true : undefined}>
            <td className="det-models-name">
              <Go to={{ kind: 'workspace', workspace: String(one.id) }}><span className="det-adm-name"><bdi>{workspaceName(one, me)}</bdi></span></Go>
              {one.archived_at ? <span className="det-chip">archived</span> : null}
              {one.description && <span className="det-models-about det-soft">{nameText(one.description, 200)}</span>}
            </td>
            <td>{roleWord(one)}</td>
            <td className="det-right det-num">{one.projects}</td>
            <td className="det-right det-num">{one.experiments}</td>
            <td className="det-right det-num">{one.runs}</td>
            <td className="det-right det-num">{one.models}</td>
            <td className="det-adm-roomy"><Ago time={one.created_at} /></td>
          </tr>
        ))}
      </Sheet>
    </section>
  );
}

/** What a workspace is for, where there is none but the personal one. */
export function FirstWorkspace(): ReactElement {
  return (
    <EmptyState title="No workspace is shared yet.">
      <p>What you submit lies in your personal workspace, which you alone see. Make a workspace to work with others on the same experiments and models.</p>
      <p>In a terminal: <code>det workspace create vision</code>, <code>det workspace add-member vision --user bob --role editor</code></p>
    </EmptyState>
  );
}

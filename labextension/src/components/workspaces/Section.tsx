/** Workspaces in the panel: nothing where there is only the personal one. */

import type { ReactElement } from 'react';

import { useApp, useStore } from '../../state/context';
import type { WorkspaceView } from '../../state/wire';
import { nameText } from '../common/text';
import { roleWord, workspaceName } from './model';

export function WorkspaceItems({ items, filter }: { items: readonly WorkspaceView[]; filter: string }): ReactElement {
  const { navigate } = useApp();
  const me = useStore(s => s.me?.name ?? '');
  const wanted = filter.trim().toLowerCase();
  const shown = items.filter(one => workspaceName(one, me).toLowerCase().includes(wanted));
  return (
    <>
      <ul className="det-list" aria-label="Workspaces">
        {shown.map(one => (
          <li key={one.id} className="det-item">
            <div className="det-item-head">
              <button
                type="button" className="det-link det-name det-ellipsis" title={nameText(one.description, 300) || undefined}
                onClick={() => navigate({ kind: 'workspace', workspace: String(one.id) })}
              >
                {workspaceName(one, me)}
              </button>
              <span className="det-soft">{roleWord(one)}</span>
            </div>
          </li>
        ))}
      </ul>
      <div className="det-fold">
        <button type="button" className="det-link" onClick={() => navigate({ kind: 'workspaces' })}>All workspaces</button>
        <button type="button" className="det-link" onClick={() => navigate({ kind: 'shared' })}>Shared with me</button>
      </div>
    </>
  );
}

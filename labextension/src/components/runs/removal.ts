/** Deleting a run, and what can be done with a deleted one: who may, and what is asked before. */

import { useCallback } from 'react';

import { useApp } from '../../state/context';
import type { RunView, UserView } from '../../state/wire';
import type { Action } from '../common';
import { useAct } from '../common/loading/load';
import { nameText } from '../common/text';
import { readOnly } from '../view/actions';
import { goesOn, titleOf } from './model';

/** Why this user may not delete a run, or null. */
function notMine(me: UserView | null, run: RunView): string | null {
  return readOnly(me) ?? (run.may === 'own' ? null : `Only its owner, ${nameText(run.owner, 40)}, and admins may do this.`);
}

/** What can be done with a run: it is marked as deleted; one that is marked comes back, or goes for good. */
export type Removal = (run: RunView, me: UserView | null, changed: () => void, gone: () => void) => Action[];

export function useRemoval(): Removal {
  const { api, confirm, notify } = useApp();
  const act = useAct();
  return useCallback((run, me, changed, gone) => {
    const why = notMine(me, run);
    const path = `runs/${encodeURIComponent(run.id)}`;
    const mark = async (): Promise<void> => {
      const still = goesOn(run) ? ' Its script goes on, and nothing more of it is kept.' : '';
      const body = `It leaves all lists. Among the deleted ones it can be restored.${still}`;
      if (!(await confirm({ title: `Delete run ${titleOf(run)}?`, body, yes: 'Delete', danger: true }))) return;
      if (!(await act(() => api.del(path)))) return;
      notify(`Run ${titleOf(run)} was deleted.`, 'good');
      gone();
    };
    const restore = async (): Promise<void> => {
      if (!(await act(() => api.post(`${path}/restore`, {})))) return;
      notify(`Run ${titleOf(run)} is back.`, 'good');
      changed();
    };
    const remove = async (): Promise<void> => {
      const body = 'Its metrics, output, media and files are removed. This cannot be undone.';
      if (!(await confirm({ title: `Remove run ${titleOf(run)} for good?`, body, yes: 'Remove', danger: true }))) return;
      if (!(await act(() => api.del(`${path}?forever=true`)))) return;
      notify(`Run ${titleOf(run)} was removed.`, 'good');
      gone();
    };
    return run.deleted
      ? [{ key: 'restore', label: 'Restore', why, run: restore }, { key: 'forever', label: 'Remove for good …', danger: true, why, run: remove }]
      : [{ key: 'delete', label: 'Delete …', danger: true, why, run: mark }];
  }, [api, confirm, notify, act]);
}

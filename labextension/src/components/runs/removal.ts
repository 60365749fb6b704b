/** Deleting a run: who may, and what is asked before. */

import { useCallback } from 'react';

import { useApp } from '../../state/context';
import type { RunView, UserView } from '../../state/wire';
import { useAct } from '../common/load';
import { nameText } from '../common/text';
import { readOnly } from '../view/actions';
import { goesOn, titleOf } from './model';

/** Why this user may not delete a run, or null. */
function notMine(me: UserView | null, run: RunView): string | null {
  return readOnly(me) ?? (run.may === 'own' ? null : `Only its owner, ${nameText(run.owner, 40)}, and admins may do this.`);
}

export type Removal = (run: RunView, me: UserView | null, done: () => void) => { why: string | null; run(): Promise<void> };

export function useRemoval(): Removal {
  const { api, confirm, notify } = useApp();
  const act = useAct();
  return useCallback((run, me, done) => ({
    why: notMine(me, run),
    run: async () => {
      const title = `Delete run ${titleOf(run)}?`;
      const still = goesOn(run) ? ' Its script goes on, and nothing more of it is kept.' : '';
      if (!(await confirm({ title, body: `It leaves all lists, with its metrics, output and files.${still}`, yes: 'Delete', danger: true }))) return;
      if (!(await act(() => api.del(`runs/${encodeURIComponent(run.id)}`)))) return;
      notify(`Run ${titleOf(run)} was deleted.`, 'good');
      done();
    }
  }), [api, confirm, notify, act]);
}

/** Shown in the place of a view whose object the user may no longer see. */

import type { ReactElement } from 'react';

import { useApp } from '../../state/context';
import { ActionButton } from '../common';

export function Gone({ what }: { what: string }): ReactElement {
  const { host, navigate } = useApp();
  return (
    <section className="det-missing">
      <h1 tabIndex={-1}>You can no longer see {what}</h1>
      <div className="det-banner" data-tone="warn" role="alert">
        <span>It was deleted, moved to another workspace, or your role or share was taken away. What was shown is from before and was put away.</span>
        {host === 'hub' && <ActionButton label="What others share with me" onRun={() => navigate({ kind: 'shared' })} />}
      </div>
    </section>
  );
}

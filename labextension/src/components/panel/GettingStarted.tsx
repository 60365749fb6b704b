/** The card for a user who has run nothing yet: three ways to begin. */

import { ReactElement, useState } from 'react';

import { useApp } from '../../state/context';
import { ActionButton, EmptyState } from '../common';
import { CopyButton } from '../common/CopyButton';

const KEY = 'detlab:getting-started';
const COMMAND = 'det experiment create search.yaml .';

/** `alone`: nothing else is in the list, so that something has to be shown. */
export function GettingStarted({ alone }: { alone: boolean }): ReactElement | null {
  const app = useApp();
  const [hidden, setHidden] = useState(dismissed);
  const create = (
    <ActionButton label="New experiment" primary={hidden || !app.openTutorial} onRun={() => app.navigate({ kind: 'new' })} />
  );
  if (hidden && !alone) return null;
  if (hidden) return <EmptyState title="Nothing here yet.">{create}</EmptyState>;
  const dismiss = (): void => {
    remember();
    setHidden(true);
  };
  return (
    <section className="det-start" aria-label="Getting started">
      <div className="det-item-head">
        <h3 className="det-name">Getting started</h3>
        <button type="button" className="det-button det-compact" aria-label="Dismiss" title="Dismiss" onClick={dismiss}>×</button>
      </div>
      <p>An experiment trains a model with many hyperparameters and finds the best.</p>
      <ul>
        {app.openTutorial && (
          <li>
            <span>Run the tutorial: a search from a notebook, in five minutes.</span>
            <ActionButton label="Open the tutorial" primary onRun={() => app.openTutorial?.()} />
          </li>
        )}
        <li>
          <span>{app.openTutorial ? 'Run your own code: right-click a script in the file browser, or fill in the form.' : 'Run your own code: upload it and fill in the form.'}</span>
          {create}
        </li>
        <li>
          <span>From a terminal, in the folder of your code:</span>
          <code className="det-start-command">{COMMAND}</code>
          <CopyButton text={COMMAND} label="Copy" />
        </li>
      </ul>
    </section>
  );
}

function dismissed(): boolean {
  try {
    return localStorage.getItem(KEY) === 'dismissed';
  } catch {
    return false;
  }
}

function remember(): void {
  try {
    localStorage.setItem(KEY, 'dismissed');
  } catch {
    // Private windows may have no storage: then the card comes back with the next page.
  }
}

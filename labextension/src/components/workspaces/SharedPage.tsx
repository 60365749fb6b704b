/** What others share with me: workspaces in which I have a role, experiments and models. */

import { ReactElement, useState } from 'react';

import { useApp, useStore } from '../../state/context';
import type { ModelView } from '../../state/wire';
import { Go, View } from '../admin/parts';
import { ActionButton, EmptyState } from '../common';
import { nameText } from '../common/text';
import { readOnly } from '../view/actions';
import { ExperimentRows } from './ExperimentRows';
import { NewWorkspace } from './forms';
import { useRechecked } from '../common/loading/rights';
import { usePaged, useShared } from './load';
import { roleWord, workspaceName } from './model';
import { ModelRows } from './WorkspacePage';

const OTHERS = 'owner != me';
const MOST_PLACES = 20;

export function SharedPage(): ReactElement {
  const { navigate } = useApp();
  const me = useStore(s => s.me);
  const [making, setMaking] = useState(false);
  return (
    <View
      title="Shared with me"
      summary={me?.admin ? 'As an administrator of the cluster you see what is everybody\'s, shared with you or not.' : 'Experiments and models of others that you may see.'}
      tools={<ActionButton label="New workspace …" why={readOnly(me)} onRun={() => setMaking(true)} />}
    >
      {making && <NewWorkspace onClose={() => setMaking(false)} onMade={made => { setMaking(false); navigate({ kind: 'workspace', workspace: String(made.id) }); }} />}
      <Places />
      <section className="det-part">
        <h2>Experiments</h2>
        <ExperimentRows
          where={{ filter: OTHERS }} label="Experiments of others" showProject
          empty={(
            <EmptyState title="Nobody shares an experiment with you.">
              An owner shares one by <code>det experiment share ID --user {nameText(me?.name ?? 'NAME', 40)}</code>, or makes you a member of a workspace.
            </EmptyState>
          )}
        />
      </section>
      <OthersModels />
    </View>
  );
}

function Places(): ReactElement | null {
  const me = useStore(s => s.me?.name ?? '');
  const places = useShared(null, MOST_PLACES);
  if (!places.length) return null;
  return (
    <section className="det-part">
      <h2>Workspaces</h2>
      <ul className="det-places">
        {places.map(one => (
          <li key={one.id}>
            <Go to={{ kind: 'workspace', workspace: String(one.id) }}><bdi>{workspaceName(one, me)}</bdi></Go> <span className="det-soft">{roleWord(one)}</span>
          </li>
        ))}
        <li><Go to={{ kind: 'workspaces' }}>All workspaces</Go></li>
      </ul>
    </section>
  );
}

/** Of the newest models that I may see, those of others; the page of models has them all. */
function OthersModels(): ReactElement | null {
  const me = useStore(s => s.me?.name ?? '');
  const found = usePaged<ModelView>('models?limit=200', 'after');
  useRechecked(found.reload);
  const others = found.items?.filter(model => model.owner !== me) ?? [];
  if (!others.length) return null;
  return (
    <section className="det-part">
      <h2>Models</h2>
      <ModelRows items={others} />
      {found.more && <p className="det-soft">Of the newest 200 models; <Go to={{ kind: 'models' }}>Models</Go> has all.</p>}
    </section>
  );
}

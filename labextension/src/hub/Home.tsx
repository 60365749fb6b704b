/** The user's own work, the queue and the cluster, and buttons to start new work. */

import { useState, type ReactElement, type ReactNode } from 'react';

import { View } from '../components/admin';
import { ActionButton, Loading, Menu, plural } from '../components/common';
import { Cluster, FilteredWork, Queue } from '../components/panel';
import { readOnly } from '../components/view/actions';
import { StorageWarning } from '../components/storage';
import { useApp, useStore } from '../state/context';
import { isOver } from '../state/states';
import { StartDialog, TITLES } from './start/StartDialog';
import { START_KINDS, type StartKind } from './start/task';

export function Home(): ReactElement {
  const { navigate } = useApp();
  const ready = useStore(snapshot => snapshot.ready);
  const active = useStore(
    snapshot =>
      snapshot.experiments.filter(one => !isOver(one.state)).length + snapshot.tasks.filter(one => !isOver(one.state)).length
  );
  const [filter, setFilter] = useState('');
  const [starting, setStarting] = useState<StartKind | null>(null);
  const me = useStore(snapshot => snapshot.me);
  const start = (
    <>
      <ActionButton label="New experiment" primary why={readOnly(me)} onRun={() => navigate({ kind: 'new' })} />
      <Menu
        label="Notebook, shell …"
        actions={() => START_KINDS.map(kind => ({ key: kind, label: `${TITLES[kind]} …`, why: readOnly(me), run: () => setStarting(kind) }))}
      >
        Notebook, shell … <span aria-hidden="true">▾</span>
      </Menu>
    </>
  );
  return (
    <View title="My work" summary={ready ? `${active} active` : undefined} tools={start}>
      {ready && <StorageWarning />}
      {starting && <StartDialog kind={starting} onClose={() => setStarting(null)} />}
      {ready ? (
        <div className="det-hub-home">
          <div className="det-hub-card">
            <div className="det-hub-cardtools">
              <input
                className="det-input" type="search" placeholder="Filter by name, id, state" title="state:archived shows archived experiments" aria-label="Filter my work"
                value={filter} onChange={event => setFilter(event.target.value)}
              />
            </div>
            <FilteredWork filter={filter} />
          </div>
          <div className="det-hub-aside">
            <Card title="Queue"><Queue filter="" /></Card>
            <Card title="Cluster"><SlotsLine /><Cluster filter="" /></Card>
          </div>
        </div>
      ) : (
        <Loading what="Loading your work" />
      )}
    </View>
  );
}

function Card({ title, children }: { title: string; children: ReactNode }): ReactElement {
  return (
    <section className="det-hub-card" aria-label={title}>
      <h2>{title}</h2>
      {children}
    </section>
  );
}

function SlotsLine(): ReactElement | null {
  const cluster = useStore(snapshot => snapshot.cluster);
  if (!cluster) return null;
  return (
    <p className="det-hub-slots det-num">
      {cluster.slots_total - cluster.slots_used} of {plural(cluster.slots_total, 'slot')} free
      {cluster.draining && <strong> · draining: nothing new starts</strong>}
    </p>
  );
}

/** The panel: my work, the queue, the cluster. */

import { ReactElement, ReactNode, useId, useRef, useState } from 'react';

import { useApp, useStore } from '../../state/context';
import { isOver } from '../../state/states';
import { Go } from '../admin/parts';
import { AlertBell } from '../alerts';
import { Loading } from '../common';
import { ClusterMessage } from '../common/ClusterMessage';
import { QuotaItems, usedWords, useQuotas } from '../jobs';
import { ArtifactItems, useNewestArtifacts } from '../artifacts/Section';
import { ModelItems, useNewestModels } from '../models/Section';
import { StorageWarning } from '../storage';
import { useShared } from '../workspaces/load';
import { WorkspaceItems } from '../workspaces/Section';
import { Cluster } from './Cluster';
import { LinkStatus } from './LinkStatus';
import { Queue } from './Queue';
import { FilteredWork } from './Archived';

/** Workspaces that the panel lists: the oldest; their own page has all. */
const MOST_WORKSPACES = 20;

/** `notice` is the host's, such as that two halves have different versions; `footer` likewise. */
export function Panel({ notice, footer }: { notice?: ReactNode; footer?: ReactNode }): ReactElement {
  const app = useApp();
  const [filter, setFilter] = useState('');
  const ready = useStore(s => s.ready);
  const failed = useStore(s => s.problem !== null);
  return (
    <div className="det-panel">
      <div className="det-panel-head">
        <input
          type="search" className="det-input" placeholder="Name, id or state" title="Filter by name, id or state; state:archived shows archived experiments" aria-label="Filter"
          value={filter} onChange={event => setFilter(event.target.value)}
        />
        <button
          type="button" className="det-button det-primary" title="New experiment"
          onClick={() => app.navigate({ kind: 'new' })}
        >
          New
        </button>
        <AlertBell />
      </div>
      {notice}
      <LinkStatus />
      <ClusterMessage />
      {ready && <StorageWarning />}
      {ready ? <Sections filter={filter} /> : !failed && <Loading what="Connecting" />}
      {footer}
    </div>
  );
}

function Sections({ filter }: { filter: string }): ReactElement {
  const active = useStore(
    s => s.experiments.filter(e => !isOver(e.state)).length + s.tasks.filter(t => !isOver(t.state)).length
  );
  const waiting = useStore(s => s.queue.length);
  const used = useStore(s => s.cluster?.slots_used ?? 0);
  const total = useStore(s => s.cluster?.slots_total ?? 0);
  const draining = useStore(s => s.cluster?.draining ?? false);
  const me = useStore(s => s.me?.name ?? '');
  const quotas = useQuotas().data?.items ?? [];
  const mine = quotas.find(quota => quota.kind === 'user' && quota.name === me);
  return (
    <div className="det-sections">
      <Section title="My work" count={active ? `${active} active` : ''}>
        <FilteredWork filter={filter} />
        <p className="det-fold">
          <span>All <Go to={{ kind: 'runs', table: 'experiments' }}>experiments</Go>, <Go to={{ kind: 'runs', table: 'trials' }}>trials</Go>, <Go to={{ kind: 'tracked' }}>runs from anywhere</Go></span>
        </p>
      </Section>
      <Section title="Queue" count={waiting ? String(waiting) : ''}><Queue filter={filter} /></Section>
      {quotas.length > 0 && (
        <Section title="Quotas" count={mine ? usedWords({ ...mine, waiting: 0 }) : ''}><QuotaItems items={quotas} /></Section>
      )}
      <ModelsSection filter={filter} />
      <ArtifactsSection filter={filter} />
      <WorkspacesSection filter={filter} />
      <Section title="Cluster" count={`${used}/${total} slots in use`}>
        {draining && <div className="det-reason" data-tone="waiting">Draining: nothing new starts until the service is restarted.</div>}
        <Cluster filter={filter} />
      </Section>
    </div>
  );
}

function ModelsSection({ filter }: { filter: string }): ReactElement {
  const found = useNewestModels();
  const count = found.data?.items.length ?? 0;
  return <Section title="Models" count={count ? `${count}${found.data!.after === null ? '' : '+'}` : ''}><ModelItems found={found} filter={filter} /></Section>;
}

/** A master that is older than its front end knows none. */
function ArtifactsSection({ filter }: { filter: string }): ReactElement | null {
  const found = useNewestArtifacts();
  const count = found.data?.items.length ?? 0;
  if (found.error?.status === 404) return null;
  return <Section title="Artifacts" count={count ? `${count}${found.data!.next === null ? '' : '+'}` : ''}><ArtifactItems found={found} filter={filter} /></Section>;
}

/** Who works alone never meets workspaces. */
function WorkspacesSection({ filter }: { filter: string }): ReactElement | null {
  const items = useShared(null, MOST_WORKSPACES);
  return items.length ? <Section title="Workspaces" count={String(items.length)}><WorkspaceItems items={items} filter={filter} /></Section> : null;
}

function Section({ title, count, children }: { title: string; count: string; children: ReactNode }): ReactElement {
  const id = useId();
  const [open, setOpen] = useState(() => remembered(title));
  const body = useRef<HTMLDivElement>(null);
  const toggle = (): void => {
    remember(title, !open);
    setOpen(!open);
  };
  return (
    <section className="det-section" aria-labelledby={id}>
      <h2>
        <button
          type="button" id={id} className="det-section-head" aria-expanded={open} aria-controls={`${id}-b`} onClick={toggle}
        >
          <span aria-hidden="true" className="det-twist">{open ? '▾' : '▸'}</span>
          {title}
          <span className="det-count det-num">{count}</span>
        </button>
      </h2>
      <div ref={body} id={`${id}-b`} hidden={!open}>{open && children}</div>
    </section>
  );
}

function remembered(title: string): boolean {
  try {
    return localStorage.getItem(`detlab:section:${title}`) !== 'closed';
  } catch {
    return true;
  }
}

function remember(title: string, open: boolean): void {
  try {
    localStorage.setItem(`detlab:section:${title}`, open ? 'open' : 'closed');
  } catch {
    // Private windows may have no storage: then all sections start open.
  }
}

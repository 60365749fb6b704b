/** The hub page: which view is shown, in which frame, fed by which store. */

import { useEffect, useMemo, useRef, useState, type ReactElement } from 'react';

import { Audit, AllWork, MasterLog, Nodes, Queue, Quotas, Service, Tokens, Usage, View } from '../components/admin';
import { ArtifactPage, ArtifactsPage, ArtifactVersionPage } from '../components/artifacts';
import { NotificationsPage } from '../components/alerts/settings/NotificationsPage';
import { ErrorBoundary } from './ErrorBoundary';
import { CompareRuns } from '../components/compare';
import { EmptyState } from '../components/common';
import { ExperimentView } from '../components/experiment';
import { nameText } from '../components/common/text';
import { RunsPage } from '../components/finding';
import { ComparePage, ModelPage, ModelsPage, VersionPage } from '../components/models';
import { RunPage, TrackedPage } from '../components/runs';
import { SchedulesPage } from '../components/schedules/SchedulesPage';
import { applySettings } from '../components/settings/own';
import { SettingsPage } from '../components/settings/SettingsPage';
import { TemplatesPage } from '../components/configs/TemplatesPage';
import { StoragePage } from '../components/storage';
import { TaskView, TrialView } from '../components/trial';
import { useZone } from '../components/common/zone';
import { ProjectPage, SharedPage, WorkspacePage, WorkspacesPage } from '../components/workspaces';
import { loadPlotly } from './plotlyloader';
import { AppProvider, type AppContext, type Place } from '../state/context';
import { viaHub } from '../state/serverurl';
import { Store } from '../state/store';
import type { HubApi } from './api';
import { FOR_ALL, Header, NAMES, Nav, Notices } from './Chrome';
import { Home } from './Home';
import { NewExperiment } from './NewExperiment';
import { useOverlay } from './overlay';
import type { PageInfo } from './page';
import { usePlace, type HubPlace, type Router } from './router';
import { chooseTheme, chosenTheme } from './theme';

export function App({ page, api, router }: { page: PageInfo; api: HubApi; router: Router }): ReactElement {
  const place = usePlace(router);
  const overlay = useOverlay();
  const [ended, setEnded] = useState(false);
  const zone = useZone();
  const main = useRef<HTMLElement>(null);
  const { store, pair } = useStores(api, page.admin && !isMine(place));
  useEffect(() => {
    api.onSessionEnd = () => {
      pair.dispose();
      setEnded(true);
    };
  }, [api, pair]);
  useEffect(() => void applySettings(api, chooseTheme), [api]);
  useArrival(keyOf(place), titleOf(place), main);
  const { confirm, notify } = overlay;
  const app = useMemo<AppContext>(
    () => ({
      api, store, confirm, notify,
      host: 'hub',
      navigate: (to: Place) => router.go(to),
      address: (to: Place) => router.href(to),
      settle: (to: Place) => router.settle(to),
      theme: { chosen: chosenTheme, choose: chooseTheme },
      openUrl: path => void window.open(viaHub(path), '_blank', 'noopener'),
      plotly: page.plotly ? () => loadPlotly(page.plotly!) : undefined
    }),
    [api, store, confirm, notify, router, page.plotly]
  );
  return (
    <AppProvider value={app}>
      <div className="det-app det-hub">
        <Header page={page} router={router} />
        <Nav page={page} router={router} place={place} />
        <main id="main" ref={main} tabIndex={-1}>
          <Notices page={page} ended={ended} />
          <ErrorBoundary key={`${keyOf(place)} ${zone}`}>
            <Shown place={place} page={page} api={api} />
          </ErrorBoundary>
        </main>
        {overlay.element}
      </div>
    </AppProvider>
  );
}

function isMine(place: HubPlace): boolean {
  return place.kind === 'new' || (place.kind === 'list' && place.view === 'work');
}

/** A store of the user's own work and one of all work, for administrators. Only the one in use has a stream. */
class StorePair {
  readonly mine: Store;
  readonly all: Store;

  constructor(api: HubApi) {
    this.mine = new Store(api);
    this.all = new Store(api, { all: true });
  }

  use(everything: boolean): void {
    const [used, other] = everything ? [this.all, this.mine] : [this.mine, this.all];
    used.start();
    used.setVisible(true);
    other.setVisible(false);
  }

  dispose(): void {
    this.mine.dispose();
    this.all.dispose();
  }
}

function useStores(api: HubApi, everything: boolean): { store: Store; pair: StorePair } {
  const pair = useMemo(() => new StorePair(api), [api]);
  useEffect(() => pair.use(everything), [pair, everything]);
  return { store: everything ? pair.all : pair.mine, pair };
}

/** A new view begins at its top, with its name in the title and the focus on its heading. */
function useArrival(key: string, title: string, main: { readonly current: HTMLElement | null }): void {
  const shown = useRef(key);
  useEffect(() => {
    document.title = `${title} · detlab`;
    if (shown.current === key) return; // the page itself has just been opened
    shown.current = key;
    window.scrollTo(0, 0);
    const heading = main.current?.querySelector<HTMLElement>('h1[tabindex]');
    (heading ?? main.current)?.focus({ preventScroll: true });
  }, [key, title, main]);
}

function titleOf(place: HubPlace): string {
  switch (place.kind) {
    case 'list':
      return NAMES[place.view];
    case 'experiment':
      return `Experiment ${place.id}`;
    case 'trial':
      return `Trial ${place.id}`;
    case 'task':
      return nameText(place.id);
    case 'workspace':
      return `Workspace ${nameText(place.workspace, 80)}`;
    case 'project':
      return `Project ${nameText(place.project, 80)}`;
    case 'runs':
      return NAMES[place.table];
    case 'tracked':
      return NAMES.runs;
    case 'run':
      return `Run ${nameText(place.id, 80)}`;
    case 'models':
    case 'artifacts':
    case 'storage':
    case 'workspaces':
    case 'shared':
    case 'settings':
      return NAMES[place.kind];
    case 'model':
      return `Model ${nameText(place.name, 80)}`;
    case 'version':
      return `${nameText(place.model, 80)} version ${place.version}`;
    case 'compare':
      return `Compare ${nameText(place.model, 80)}`;
    case 'artifact':
      return `Artifact ${nameText(place.artifact, 80)}`;
    case 'artifactversion':
      return `${nameText(place.artifact, 80)}:v${place.version}`;
    case 'comparison':
      return 'Compare';
    case 'new':
      return 'New experiment';
    case 'nowhere':
      return 'Not found';
  }
}

/** Another tab is no other view. */
function keyOf(place: HubPlace): string {
  if (place.kind === 'comparison') return place.kind;
  if (place.kind === 'runs') return place.table;
  if (place.kind === 'tracked') return place.kind;
  const { tab: _, experiment: __, ...rest } = place as HubPlace & { tab?: string; experiment?: number };
  return JSON.stringify(rest);
}

function Shown({ place, page, api }: { place: HubPlace; page: PageInfo; api: HubApi }): ReactElement {
  switch (place.kind) {
    case 'experiment':
      return <ExperimentView id={place.id} tab={place.tab} />;
    case 'trial':
      return <TrialView id={place.id} tab={place.tab} />;
    case 'task':
      return <TaskView id={place.id} />;
    case 'workspace':
      return <WorkspacePage workspace={place.workspace} tab={place.tab} />;
    case 'project':
      return <ProjectPage workspace={place.workspace} project={place.project} />;
    case 'runs':
      return <RunsPage table={place.table} query={place.query} />;
    case 'tracked':
      return <TrackedPage query={place.query} />;
    case 'run':
      return <RunPage id={place.id} tab={place.tab} />;
    case 'models':
    case 'artifacts':
    case 'storage':
    case 'workspaces':
    case 'shared':
    case 'settings':
      return <List view={place.kind} page={page} />;
    case 'model':
      return <ModelPage name={place.name} />;
    case 'version':
      return <VersionPage model={place.model} version={place.version} />;
    case 'compare':
      return <ComparePage model={place.model} versions={place.versions} />;
    case 'artifact':
      return <ArtifactPage artifact={place.artifact} />;
    case 'artifactversion':
      return <ArtifactVersionPage artifact={place.artifact} version={place.version} />;
    case 'comparison':
      return <CompareRuns {...place} />;
    case 'new':
      return <NewExperiment page={page} api={api} from={place.from} />;
    case 'nowhere':
      return (
        <View title="Page not found">
          <EmptyState title={`There is no page “${nameText(place.path)}”.`}>
            <a href={page.base}>Go to My work</a>
          </EmptyState>
        </View>
      );
    case 'list':
      return page.admin || FOR_ALL.includes(place.view) ? <List view={place.view} page={page} /> : <Refused name={NAMES[place.view]} />;
  }
}

function List({ view, page }: { view: Extract<HubPlace, { kind: 'list' }>['view']; page: PageInfo }): ReactElement {
  switch (view) {
    case 'work':
      return <Home />;
    case 'experiments':
    case 'trials':
      return <RunsPage table={view} />;
    case 'runs':
      return <TrackedPage />;
    case 'queue':
      return <Queue />;
    case 'cluster':
      return <Nodes title="Cluster" />;
    case 'models':
      return <ModelsPage />;
    case 'artifacts':
      return <ArtifactsPage />;
    case 'storage':
      return <StoragePage />;
    case 'workspaces':
      return <WorkspacesPage />;
    case 'shared':
      return <SharedPage />;
    case 'schedules':
      return <SchedulesPage />;
    case 'templates':
      return <TemplatesPage />;
    case 'notifications':
      return <NotificationsPage />;
    case 'settings':
      return <SettingsPage />;
    case 'nodes':
      return <Nodes title="Nodes" manage />;
    case 'everybody':
      return <AllWork />;
    case 'quotas':
      return <Quotas />;
    case 'usage':
      return <Usage own={!page.admin} />;
    case 'tokens':
      return <Tokens />;
    case 'audit':
      return <Audit />;
    case 'log':
      return <MasterLog />;
    case 'service':
      return <Service />;
  }
}

function Refused({ name }: { name: string }): ReactElement {
  return (
    <View title={name}>
      <EmptyState title="This page is for administrators.">
        It requires the scope <code>custom:detlab:admin</code>. Ask the operators of this Hub for it.
      </EmptyState>
    </View>
  );
}

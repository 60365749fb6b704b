/**
 * One view on a page of its own, fed with made-up data: `?view=experiment&tab=trials&theme=dark&case=search`.
 * Tests, the bench and the script of screenshots manage it through `window.detlab`.
 */

import { ReactElement, StrictMode, useState } from 'react';
import { createRoot } from 'react-dom/client';
import { flushSync } from 'react-dom';

import { NotificationsPage } from '../components/alerts/settings/NotificationsPage';
import { ConfirmDialog } from '../components/common';
import { CompareRuns } from '../components/compare';
import { ArtifactPage, ArtifactsPage, ArtifactVersionPage } from '../components/artifacts';
import { placeOfQuery } from '../components/compare/link';
import { ExperimentTab, ExperimentView } from '../components/experiment/index';
import { RunsPage } from '../components/finding';
import { ComparePage, ModelPage, ModelsPage, VersionPage } from '../components/models';
import { Panel } from '../components/panel';
import { RunPage, TrackedPage } from '../components/runs';
import { SchedulesPage } from '../components/schedules/SchedulesPage';
import { SettingsPage } from '../components/settings/SettingsPage';
import { TemplatesPage } from '../components/configs/TemplatesPage';
import { StoragePage } from '../components/storage';
import { ProjectPage, SharedPage, WorkspacePage, WorkspacesPage } from '../components/workspaces';
import { TaskView, TrialTab, TrialView } from '../components/trial';
import { Header } from '../hub/Chrome';
import type { PageInfo } from '../hub/page';
import { loadPlotly } from '../hub/plotlyloader';
import { Router } from '../hub/router';
import { AppContext, AppProvider, Question, RunTab, WorkspaceTab } from '../state/context';
import { Store } from '../state/store';
import { LiveView } from '../widget/LiveView';
import { Case, FixtureApi } from './api';
import { BEGAN, logLine, metricsEvent } from './fixtures';
import { notebookView } from './notebook';
import './harness.css';

const CASES: Record<string, Case> = {
  search: { trials: 36, curves: 36, points: 100, logs: 3000, experiments: 12, experiment: { budgets: [{ name: 'slot_hours', limit: 12, used: 4.5 }, { name: 'wall_clock', limit: 7200, used: 760 }] } },
  governed: { trials: 40, curves: 20, points: 60, logs: 200, experiments: 12, experiment: { governed: true } },
  hostile: { trials: 12, curves: 12, points: 60, logs: 200, experiments: 12, hostile: true, experiment: { governed: true } },
  empty: { trials: 0, curves: 0, points: 0, logs: 0, experiments: 0, experiment: { best: null, trials: {}, progress: 0, started_at: null, pending_reason: 'no agent is connected' } },
  failed: { trials: 36, curves: 36, points: 100, logs: 3000, experiments: 12, experiment: { state: 'ERROR', progress: 0.5, ended_at: BEGAN + 900, failure: { kind: 'no_metrics', message: "trial 3 ended without reporting 'validation_error'; the report contained: loss", trial_id: 103, rank: null, exit_code: 0, signal: null, where: null, node: null, log_tail: [], hint: 'report the metric that searcher.metric names', command: null } } },
  done: { trials: 36, curves: 36, points: 100, logs: 3000, experiments: 12, experiment: { description: 'A wider second layer', labels: ['nightly', 'baseline'], notes: 'Diverges above lr 0.1.\nThe best one is stable over five seeds.', state: 'COMPLETED', progress: 1, ended_at: BEGAN + 900, trials: { COMPLETED: 34, ERROR: 2 } } },
  missed: { trials: 3, curves: 0, points: 0, logs: 10, experiments: 3, experiment: { state: 'COMPLETED', best: null, progress: 1, trials: { COMPLETED: 3 }, trials_total: 3, ended_at: BEGAN + 90, warnings: ["trial 103 never reported 'validation_error' (its validations reported: accuracy, loss)"] } },
  missing: { trials: 0, curves: 0, points: 0, logs: 0, experiments: 0, refuse: { experiments: 404, trials: 404, tasks: 404 } },
  broken: { trials: 20, curves: 20, points: 50, logs: 100, experiments: 5, refuse: { experiments: 503, trials: 503, tasks: 503 } },
  silent: { trials: 0, curves: 0, points: 0, logs: 0, experiments: 0, silent: true },
  none: { trials: 0, curves: 0, points: 0, logs: 0, experiments: 1, experiment: { best: null, trials: {}, progress: 0 } },
  one: { trials: 1, curves: 1, points: 100, logs: 10, experiments: 1 },
  compared: { trials: 40, curves: 40, points: 500, logs: 10, experiments: 1 },
  three: { trials: 3, curves: 3, points: 40, logs: 10, experiments: 1 },
  many: { trials: 200, curves: 100, points: 60, logs: 10, experiments: 1 },
  due: { trials: 12, curves: 0, points: 0, logs: 10, experiments: 1, due: true },
  nan: { trials: 12, curves: 12, points: 60, logs: 10, experiments: 1, nan: true },
  large: { trials: 10_000, curves: 100, points: 1000, logs: 10_000, experiments: 1000 }
};

const query = new URLSearchParams(location.search);
// The clock of the made-up search, so that ages and estimates are the same every time.
const opened = Date.now();
const realNow = Date.now.bind(Date);
Date.now = () => (BEGAN + 760) * 1000 + realNow() - opened;
const theme = query.get('theme') ?? 'light';
document.documentElement.dataset.bsTheme = theme;
document.body.dataset.jpThemeLight = String(theme !== 'dark');

const api = new FixtureApi(CASES[query.get('case') ?? 'search'] ?? CASES.search!);
const done: string[] = [];
const store = new Store(api);
let ask: (question: Question) => Promise<boolean> = async () => true;

const app: AppContext = {
  api, store, host: 'hub',
  navigate: place => void done.push(`navigate ${JSON.stringify(place)}`),
  address: place => `#${JSON.stringify(place)}`,
  openUrl: url => void done.push(`open ${url}`),
  confirm: question => ask(question),
  notify: message => void done.push(`notify ${message}`),
  theme: { chosen: () => 'system', choose: choice => void done.push(`theme ${choice}`) },
  plotly: () => loadPlotly(new URL('plotly.js', location.href).href)
};

const PAGE: PageInfo = { base: '/services/detlab/', hub: '/hub/', xsrf: '', user: 'alice', admin: true, version: '', schema: '', bundleLimit: 1 };

function View(): ReactElement {
  const tab = query.get('tab') ?? undefined;
  const id = query.get('id');
  switch (query.get('view')) {
    case 'trial': return <TrialView id={Number(id ?? 117)} tab={tab as TrialTab} />;
    case 'task': return <TaskView id={id ?? 'nb-7f3a'} />;
    case 'panel': return <Panel />;
    case 'header': return <div className="det-hub"><Header page={PAGE} router={new Router(PAGE.base)} /></div>;
    case 'models': return <ModelsPage />;
    case 'model': return <ModelPage name={id ?? 'digits'} />;
    case 'version': return <VersionPage model="digits" version={Number(id ?? 5)} />;
    case 'compare': return <ComparePage model="digits" versions={(id ?? '3,5').split(',')} />;
    case 'comparison': return <CompareRuns {...placeOfQuery(query.has('trials') ? location.search : `${location.search}&trials=100,101,102,103,104`)} view={location.search} />;
    case 'artifacts': return <ArtifactsPage />;
    case 'artifact': return <ArtifactPage artifact={id ?? 'cats'} />;
    case 'artifactversion': return <ArtifactVersionPage artifact="cats" version={Number(id ?? 3)} />;
    case 'storage': return <StoragePage />;
    case 'workspaces': return <WorkspacesPage />;
    case 'workspace': return <WorkspacePage workspace={id ?? '7'} tab={tab as WorkspaceTab} />;
    case 'project': return <ProjectPage workspace="7" project={id ?? '3'} />;
    case 'shared': return <SharedPage />;
    case 'schedules': return <SchedulesPage />;
    case 'templates': return <TemplatesPage />;
    case 'notifications': return <NotificationsPage />;
    case 'settings': return <SettingsPage />;
    case 'runs': return <RunsPage table={tab === 'experiments' ? 'experiments' : 'trials'} query={location.search.slice(1).replace(/(^|&)view=runs/, '')} />;
    case 'tracked': return <TrackedPage query={query.get('q') ?? ''} />;
    case 'run': return <RunPage id={id ?? 'a'.repeat(32)} tab={tab as RunTab} />;
    case 'notebook': return <div className="det-live"><LiveView view={notebookView(api.of)} advice={null} /></div>;
    default: return <ExperimentView id={12} tab={tab as ExperimentTab} />;
  }
}

function Page(): ReactElement {
  const [asked, setAsked] = useState<{ question: Question; answer: (yes: boolean) => void } | null>(null);
  ask = question => new Promise(resolve => setAsked({ question, answer: yes => { setAsked(null); resolve(yes); } }));
  return (
    <AppProvider value={app}>
      <main className={`det-app det-harness det-harness-${query.get('view') ?? 'experiment'}`}><View /></main>
      {asked && <ConfirmDialog question={asked.question} onAnswer={asked.answer} />}
    </AppProvider>
  );
}

declare global {
  interface Window {
    detlab: unknown;
  }
}

window.detlab = { api, done, store, metricsEvent, logLine, flushSync };
performance.mark('detlab-script');
store.start();
const root = createRoot(document.getElementById('root')!);
root.render(query.get('strict') === '1' ? <StrictMode><Page /></StrictMode> : <Page />);

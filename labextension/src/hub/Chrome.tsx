/** The frame of the page: name, navigation, user, and state of the connection. */

import { useEffect, useRef, useState, type ReactElement } from 'react';

import { AlertBell } from '../components/alerts';
import { ClusterMessage } from '../components/common/ClusterMessage';
import { nameText } from '../components/common/text';
import { LinkStatus } from '../components/panel';
import { useSaveSettings } from '../components/settings/own';
import { useTeams } from '../components/workspaces';
import { useStore } from '../state/context';
import type { PageInfo } from './page';
import { ADMIN, LISTS, type AdminView, type HubPlace, type ListView, type Router } from './router';
import { switchTheme, themeNow } from './theme';

export const NAMES: Record<ListView | AdminView, string> = {
  work: 'My work', experiments: 'Experiments', trials: 'Trials', runs: 'Runs', schedules: 'Schedules', shared: 'Shared with me', workspaces: 'Workspaces', templates: 'Templates', notifications: 'Notifications', settings: 'Settings', queue: 'Queue', cluster: 'Cluster', models: 'Models', artifacts: 'Artifacts', storage: 'Storage', nodes: 'Nodes', everybody: 'All work', quotas: 'Quotas', usage: 'Usage',
  tokens: 'Tokens', audit: 'Audit log', log: 'Master log', service: 'Service'
};

/** Views for all users; users see only their own usage. */
export const FOR_ALL: readonly (ListView | AdminView)[] = [...LISTS, 'usage'];

export function Header({ page, router }: { page: PageInfo; router: Router }): ReactElement {
  const cluster = useStore(snapshot => snapshot.cluster);
  return (
    <header className="det-hub-top">
      <a className="det-hub-skip" href="#main">Skip to content</a>
      <a className="det-hub-brand" href={router.href({ kind: 'list', view: 'work' })}>detlab</a>
      {cluster && (
        <span className="det-hub-glance det-num">
          {cluster.slots_used} of {cluster.slots_total} slots in use
        </span>
      )}
      <span className="det-hub-right">
        <AlertBell more={<a href={router.href({ kind: 'list', view: 'notifications' })}>Settings of notifications</a>} />
        <ThemeSwitch />
        <span className="det-hub-user">
          {nameText(page.user)}
          {page.admin && <span className="det-soft"> (admin)</span>}
        </span>
        <a href={router.href({ kind: 'settings' })}>Settings</a>
        <a href={`${page.hub}home`}>Hub</a>
        <a href={`${page.hub}logout`}>Log out</a>
      </span>
    </header>
  );
}

function ThemeSwitch(): ReactElement {
  const [theme, setTheme] = useState(themeNow);
  const save = useSaveSettings();
  const other = theme === 'dark' ? 'light' : 'dark';
  const switched = (): typeof theme => {
    const next = switchTheme();
    void save({ theme: next });
    return next;
  };
  return (
    <button
      type="button" className="det-button det-compact" aria-label={`Switch to ${other} colours`}
      title={`Switch to ${other} colours`} onClick={() => setTheme(switched())}
    >
      <span aria-hidden="true">◐</span>
    </button>
  );
}

export function Nav({ page, router, place }: { page: PageInfo; router: Router; place: HubPlace }): ReactElement {
  const waiting = useStore(snapshot => snapshot.queue.length);
  const inTeams = place.kind === 'workspace' || place.kind === 'project' || (place.kind === 'list' && place.view === 'workspaces');
  const teams = useTeams(inTeams);
  const nav = useRef<HTMLElement>(null);
  useEffect(() => {
    nav.current?.querySelector('[aria-current]')?.scrollIntoView?.({ block: 'nearest', inline: 'nearest' });
  }, [place]);
  const entry = (view: ListView | AdminView): ReactElement => (
    <li key={view}>
      <a href={router.href({ kind: 'list', view })} aria-current={isUnder(place, view) ? 'page' : undefined}>
        {view === 'usage' && !page.admin ? 'My usage' : NAMES[view]}
        {view === 'queue' && waiting > 0 && <span className="det-hub-count det-num">{waiting}</span>}
      </a>
    </li>
  );
  // Settings stand in the header; who works alone never meets workspaces.
  const hidden = new Set<string>(['settings', ...(page.admin ? ['usage'] : []), ...(teams || inTeams ? [] : ['workspaces'])]);
  return (
    <nav ref={nav} className="det-hub-nav" aria-label="Views">
      <ul>{FOR_ALL.filter(view => !hidden.has(view)).map(entry)}</ul>
      {page.admin && (
        <>
          <h2 id="det-admin">Administration</h2>
          <ul aria-labelledby="det-admin">{ADMIN.map(entry)}</ul>
        </>
      )}
    </nav>
  );
}

/** Whether a place is a view, or one of the pages that are reached from it only. */
function isUnder(place: HubPlace, view: ListView | AdminView): boolean {
  if (place.kind === 'list') return place.view === view;
  if (view === 'workspaces') return place.kind === 'workspace' || place.kind === 'project';
  if (place.kind === 'runs') return place.table === view;
  if (view === 'artifacts') return place.kind === 'artifact' || place.kind === 'artifactversion';
  if (view === 'runs') return place.kind === 'tracked' || place.kind === 'run';
  return view === 'models' && (place.kind === 'model' || place.kind === 'version' || place.kind === 'compare');
}

/** Notices on every view: session ended, connection lost, new version. */
export function Notices({ page, ended }: { page: PageInfo; ended: boolean }): ReactElement {
  const version = useStore(snapshot => snapshot.cluster?.version ?? page.version);
  const reload = (): void => window.location.reload();
  return (
    <div className="det-hub-notices">
      {ended ? (
        <div className="det-banner" data-tone="bad" role="alert">
          <span>Your session has ended. Running work continues; log in again to see it.</span>
          <button type="button" className="det-button" onClick={reload}>Log in</button>
        </div>
      ) : (
        <LinkStatus />
      )}
      <ClusterMessage />
      {page.version && version !== page.version && (
        <div className="det-banner" data-tone="paused" role="status">
          <span>detlab was updated to {version}; this page is from {page.version}.</span>
          <button type="button" className="det-button" onClick={reload}>Reload</button>
        </div>
      )}
    </div>
  );
}

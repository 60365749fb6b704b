/** Addresses of the views. Each is a path that the service answers with the same page, so that a link survives a login. */

import { useSyncExternalStore } from 'react';

import { pathOfComparison, placeOfQuery } from '../components/compare/link';
import {
  EXPERIMENT_TABS, RUN_TABS, TRIAL_TABS, WORKSPACE_TABS, type Place
} from '../state/context';

export const LISTS = ['work', 'experiments', 'trials', 'runs', 'schedules', 'shared', 'workspaces', 'queue', 'cluster', 'models', 'artifacts', 'storage', 'templates', 'notifications', 'settings'] as const;
export const ADMIN = ['nodes', 'everybody', 'quotas', 'usage', 'tokens', 'audit', 'log', 'service'] as const;

export type ListView = (typeof LISTS)[number];
export type AdminView = (typeof ADMIN)[number];

/** Where one may be on the hub page: the views that the components know, the lists, and addresses of nothing. */
export type HubPlace = Place | { kind: 'list'; view: ListView | AdminView } | { kind: 'nowhere'; path: string };

export function isAdminView(view: string): view is AdminView {
  return (ADMIN as readonly string[]).includes(view);
}

/** The place of an address below the service's prefix. */
export function placeOf(path: string, search = ''): HubPlace {
  const parts = path.split('/').filter(part => part !== '');
  const [first = 'work', second] = parts;
  if (parts.length <= 1) {
    if (first === 'experiments' || first === 'trials') return { kind: 'runs', table: first, ...queryOf(search) };
    if (first === 'runs') return { kind: 'tracked', ...queryOf(search) };
    if (first === 'new') return { kind: 'new', ...fromOf(search) };
    if (first === 'compare') return placeOfQuery(search);
    if ((LISTS as readonly string[]).includes(first) || isAdminView(first)) {
      return { kind: 'list', view: first as ListView | AdminView };
    }
  }
  if (parts.length === 2 && second !== undefined) {
    const id = /^\d{1,15}$/.test(second) ? Number(second) : null;
    if (first === 'experiments' && id !== null) return { kind: 'experiment', id, ...tabOf(search, EXPERIMENT_TABS) };
    if (first === 'trials' && id !== null) return { kind: 'trial', id, ...tabOf(search, TRIAL_TABS) };
    if (first === 'workspaces') return { kind: 'workspace', workspace: decoded(second), ...tabOf(search, WORKSPACE_TABS) };
    if (first === 'tasks') return { kind: 'task', id: decoded(second) };
    if (first === 'runs') return { kind: 'run', id: decoded(second), ...tabOf(search, RUN_TABS) };
  }
  if (parts.length === 4 && first === 'workspaces' && parts[2] === 'projects') {
    return { kind: 'project', workspace: decoded(second!), project: decoded(parts[3]!) };
  }
  return ofModel(parts, search) ?? ofArtifact(parts) ?? { kind: 'nowhere', path };
}

/** `models/NAME`, `models/NAME/compare?versions=1,2`, `models/NAME/versions/3`. */
function ofModel([first, name, part, version, ...rest]: string[], search: string): HubPlace | null {
  if (first !== 'models' || name === undefined || rest.length) return null;
  const model = decoded(name);
  if (part === undefined) return { kind: 'model', name: model };
  if (part === 'compare' && version === undefined) return { kind: 'compare', model, versions: versionsOf(search) };
  return part === 'versions' && /^\d{1,15}$/.test(version ?? '') ? { kind: 'version', model, version: Number(version) } : null;
}

/** `artifacts/NAME`, `artifacts/NAME/versions/3`. */
function ofArtifact([first, name, part, version, ...rest]: string[]): HubPlace | null {
  if (first !== 'artifacts' || name === undefined || rest.length) return null;
  const artifact = decoded(name);
  if (part === undefined) return { kind: 'artifact', artifact };
  return part === 'versions' && /^\d{1,15}$/.test(version ?? '') ? { kind: 'artifactversion', artifact, version: Number(version) } : null;
}

function versionsOf(search: string): string[] {
  return (new URLSearchParams(search).get('versions') ?? '').split(',').filter(Boolean);
}

function fromOf(search: string): { from?: number } {
  const from = new URLSearchParams(search).get('from') ?? '';
  return /^\d{1,15}$/.test(from) ? { from: Number(from) } : {};
}

/** What MLflow's clients print as the address of a run, below a path that leads here: `#/experiments/1/runs/RUN`. */
export function ofMlflow(hash: string): HubPlace | null {
  const found = /^#\/experiments\/(\d{1,15})(?:\/runs\/([0-9a-f]{32}))?$/.exec(hash);
  if (!found) return null;
  const run = found[2];
  if (!run) return { kind: 'tracked' };
  return run.startsWith('0'.repeat(16)) ? { kind: 'trial', id: Number.parseInt(run, 16) } : { kind: 'run', id: run };
}

function queryOf(search: string): { query?: string } {
  const query = search.replace(/^\?/, '');
  return query ? { query } : {};
}

function tabOf<T extends string>(search: string, tabs: readonly T[]): { tab?: T } {
  const tab = tabs.find(one => one === new URLSearchParams(search).get('tab'));
  return tab ? { tab } : {};
}

/** The address of a place below the service's prefix. */
export function pathOf(place: HubPlace): string {
  switch (place.kind) {
    case 'experiment':
      return `experiments/${place.id}${place.tab ? `?tab=${place.tab}` : ''}`;
    case 'trial':
      return `trials/${place.id}${place.tab ? `?tab=${place.tab}` : ''}`;
    case 'task':
      return `tasks/${encodeURIComponent(place.id)}`;
    case 'tracked':
      return `runs${place.query ? `?${place.query}` : ''}`;
    case 'run':
      return `runs/${encodeURIComponent(place.id)}${place.tab ? `?tab=${place.tab}` : ''}`;
    case 'model':
      return `models/${encodeURIComponent(place.name)}`;
    case 'version':
      return `models/${encodeURIComponent(place.model)}/versions/${place.version}`;
    case 'compare':
      return `models/${encodeURIComponent(place.model)}/compare?versions=${place.versions.map(encodeURIComponent).join(',')}`;
    case 'artifact':
      return `artifacts/${encodeURIComponent(place.artifact)}`;
    case 'artifactversion':
      return `artifacts/${encodeURIComponent(place.artifact)}/versions/${place.version}`;
    case 'comparison':
      return pathOfComparison(place);
    case 'workspace':
      return `workspaces/${encodeURIComponent(place.workspace)}${place.tab ? `?tab=${place.tab}` : ''}`;
    case 'project':
      return `workspaces/${encodeURIComponent(place.workspace)}/projects/${encodeURIComponent(place.project)}`;
    case 'runs':
      return `${place.table}${place.query ? `?${place.query}` : ''}`;
    case 'models':
    case 'artifacts':
    case 'storage':
    case 'workspaces':
    case 'shared':
    case 'settings':
      return place.kind;
    case 'new':
      return place.from ? `new?from=${place.from}` : 'new';
    case 'nowhere':
      return place.path;
    case 'list':
      return place.view === 'work' ? '' : place.view;
  }
}

export class Router {
  private listeners = new Set<() => void>();
  private now: HubPlace;

  constructor(readonly base: string) {
    const named = ofMlflow(window.location.hash);
    if (named) window.history.replaceState(null, '', this.href(named));
    this.now = this.read();
    window.addEventListener('popstate', () => this.moved());
  }

  get place(): HubPlace {
    return this.now;
  }

  href(place: HubPlace): string {
    return this.base + pathOf(place);
  }

  go(place: HubPlace): void {
    const href = this.href(place);
    if (href !== window.location.pathname + window.location.search) window.history.pushState(null, '', href);
    this.moved();
  }

  /** Put another address in the place of this one, without a step in the history. */
  settle(place: HubPlace): void {
    const href = this.href(place);
    if (href === window.location.pathname + window.location.search) return;
    window.history.replaceState(null, '', href);
    this.moved();
  }

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  private read(): HubPlace {
    const { pathname, search } = window.location;
    return placeOf(pathname.startsWith(this.base) ? pathname.slice(this.base.length) : '', search);
  }

  private moved(): void {
    this.now = this.read();
    this.listeners.forEach(listener => listener());
  }
}

export function usePlace(router: Router): HubPlace {
  return useSyncExternalStore(router.subscribe, () => router.place);
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

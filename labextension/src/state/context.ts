/** What components get from their host (JupyterLab or the hub page) in addition to their props. */

import { createContext, useContext, useSyncExternalStore } from 'react';

import type { Api } from './api';
import type { Snapshot, Store } from './store';

export const EXPERIMENT_TABS = ['curves', 'trials', 'search', 'parallel', 'checkpoints', 'events', 'config', 'code'] as const;
export const TRIAL_TABS = ['metrics', 'media', 'logs', 'checkpoints', 'artifacts', 'hparams', 'governance'] as const;
export const WORKSPACE_TABS = ['projects', 'experiments', 'models', 'tasks', 'members', 'defaults'] as const;

export const RUN_TABS = ['metrics', 'media', 'logs', 'config', 'system', 'code', 'files', 'artifacts'] as const;

export type RunTab = (typeof RUN_TABS)[number];
export type ExperimentTab = (typeof EXPERIMENT_TABS)[number];
export type TrialTab = (typeof TRIAL_TABS)[number];
export type WorkspaceTab = (typeof WORKSPACE_TABS)[number];

export type Place =
  | { kind: 'experiment'; id: number; tab?: ExperimentTab }
  | { kind: 'trial'; id: number; experiment?: number; tab?: TrialTab }
  | { kind: 'task'; id: string }
  | { kind: 'models' }
  | { kind: 'model'; name: string }
  | { kind: 'version'; model: string; version: number }
  | { kind: 'artifacts' }
  | { kind: 'artifact'; /** Its name, or OWNER/NAME. */ artifact: string }
  | { kind: 'artifactversion'; artifact: string; version: number }
  | {
    kind: 'compare'; model: string;
    /** Numbers, semantic versions or labels. */
    versions: string[];
  }
  | {
    kind: 'comparison'; trials: number[]; experiments: number[];
    /** Runs that no cluster started: their ids, or keys of the user's own. */
    runs?: string[];
    /** What an address said that names nothing: it is told. */
    wrong?: string[];
    /** Options as a query, made by `compareLink`. */
    view?: string;
  }
  | { kind: 'storage' }
  | { kind: 'workspaces' }
  | {
    kind: 'workspace';
    /** Its id, its name or OWNER/NAME. */
    workspace: string;
    tab?: WorkspaceTab;
  }
  | { kind: 'project'; workspace: string; /** Its id or its name. */ project: string }
  | { kind: 'shared' }
  | { kind: 'settings' }
  | {
    kind: 'runs'; table: 'experiments' | 'trials';
    /** Filter, order and columns, as `writeRequest` writes them. */
    query?: string;
  }
  | {
    /** Runs that no cluster started. */
    kind: 'tracked';
    /** State, group and job type, as `writeRuns` writes them. */
    query?: string;
  }
  | { kind: 'run'; /** Its id, or the key by which its owner's scripts know it. */ id: string; tab?: RunTab }
  | {
    kind: 'new'; path?: string;
    /** The experiment whose config and code it begins with. */
    from?: number;
  };

export interface Question {
  title: string;
  /** The consequences, in a sentence or two. */
  body: string;
  /** The label of the button that does it. */
  yes: string;
  /** It cannot be undone. */
  danger?: boolean;
}

/** The part of plotly.js that is used. */
export interface Plotly {
  react(element: HTMLElement, data: unknown[], layout: object, config: object): Promise<unknown>;
  purge(element: HTMLElement): void;
  toImage(figure: { data: unknown[]; layout: object }, options: { format: 'svg'; width: number; height: number; imageDataOnly: true }): Promise<string>;
  Plots: { resize(element: HTMLElement): void };
}

export interface AppContext {
  api: Api;
  store: Store;
  /** JupyterLab, or the page of the Hub. */
  host: 'lab' | 'hub';
  /** Show a view. */
  navigate(place: Place): void;
  /** The address of a view for <a href>, so that it can be copied and opened in a new tab; null in JupyterLab. */
  address(place: Place): string | null;
  /** Note in the address, where there is one, which tab and options the view has, so that a link leads to it. */
  settle?(place: Place): void;
  /** The page's colours; absent where they are the host's. */
  theme?: { chosen(): 'light' | 'dark' | 'system'; choose(choice: 'light' | 'dark' | 'system'): void };
  /** Put code in the notebook that is open; absent where there are no notebooks. */
  insertCode?(code: string): Promise<void> | void;
  /** Open the tutorial notebook, which is put beside the user's files; absent where there are no notebooks. */
  openTutorial?(): Promise<void>;
  /** Open a path at the Hub (such as TaskView.url) in a new tab. */
  openUrl(path: string): void;
  /** Ask for confirmation. */
  confirm(question: Question): Promise<boolean>;
  /** Load plotly.js, which draws figures of a search; absent where it was not built. */
  plotly?(): Promise<Plotly>;
  /** Show a short notification. */
  notify(message: string, tone?: 'good' | 'bad'): void;
}

const Context = createContext<AppContext | null>(null);

export const AppProvider = Context.Provider;

/** Null where components stand by themselves, as in a notebook's output. */
export function useOptionalApp(): AppContext | null {
  return useContext(Context);
}

export function useApp(): AppContext {
  const app = useContext(Context);
  if (!app) throw new Error('a component of detlab is shown outside an AppProvider');
  return app;
}

/** A part of the store's snapshot; the component is rendered again only when that part changes. */
export function useStore<T>(select: (snapshot: Snapshot) => T): T {
  const { store } = useApp();
  return useSyncExternalStore(store.subscribe, () => select(store.getSnapshot()));
}

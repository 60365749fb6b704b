/** The known state of the cluster: one overview, then the page's stream of events folded in. No polling. */

import { Api, ApiError, asApiError, everyItem } from './api';
import { Channel, Subscription } from './channel';
import type { Link } from './follow';
import { isOver } from './states';
import type {
  AgentView, ClusterView, Event, ExperimentView, OverviewView, QueueItem, TaskView, TrialView, UserView
} from './wire';

/** Experiments kept; as many as an overview holds. */
const MOST_EXPERIMENTS = 200;
const MOST_ENDED_TASKS = 50;
/** Agents and the queue are loaded at most this often, however many `cluster` events come. */
const CLUSTER_MS = 1000;

export interface Snapshot {
  /** The first overview has come. */
  ready: boolean;
  link: Link;
  /** Why there is no overview; once there is one, errors are in `link`. */
  problem: ApiError | null;
  me: UserView | null;
  cluster: ClusterView | null;
  agents: readonly AgentView[];
  queue: readonly QueueItem[];
  /** Newest first. */
  experiments: readonly ExperimentView[];
  /** Newest first. */
  tasks: readonly TaskView[];
}

const NOTHING: Snapshot = {
  ready: false, link: { kind: 'opening' }, problem: null, me: null, cluster: null,
  agents: [], queue: [], experiments: [], tasks: []
};

export class Store {
  /** The stream of the page, which views share. */
  readonly channel: Channel;
  private snapshot: Snapshot = NOTHING;
  private listeners = new Set<() => void>();
  private eventListeners = new Set<(event: Event) => void>();
  private pending: Event[] = [];
  private frame = 0;
  private subscription: Subscription | null = null;
  private clusterTimer = 0;
  private clusterAsked = 0;
  /** The stream continues from the current overview. */
  private fresh = false;
  private disposed = false;

  /** `all`: all work that the caller may see, not only their own. */
  constructor(readonly api: Api, private options: { all?: boolean } = {}) {
    this.channel = new Channel(api);
  }

  /** Begin; does nothing when begun. */
  start(): void {
    if (this.subscription || this.disposed) return;
    this.subscription = this.channel.subscribe({
      subject: null,
      cursor: 0,
      onEvent: event => this.take(event),
      onLink: link => this.linked(link),
      prepare: async () => { if (!this.fresh) await this.load(); }
    });
  }

  dispose(): void {
    this.disposed = true;
    this.channel.dispose();
    window.clearTimeout(this.clusterTimer);
    cancelAnimationFrame(this.frame);
    this.listeners.clear();
    this.eventListeners.clear();
  }

  getSnapshot = (): Snapshot => this.snapshot;

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  /** Listen to each event (experiment, trial, task, checkpoint states; no metrics) before it is folded in. */
  onEvent(listener: (event: Event) => void): () => void {
    this.eventListeners.add(listener);
    return () => this.eventListeners.delete(listener);
  }

  /** Reconnect now instead of after the backoff. */
  retry = (): void => this.channel.retry();

  /** Close the stream while no view is visible; the page's own visibility counts as well. */
  setVisible(visible: boolean): void {
    this.channel.setVisible(visible);
  }

  /** Reload the overview. */
  async refresh(): Promise<void> {
    try {
      await this.load();
    } catch (error) {
      this.set({ problem: asApiError(error) });
    }
  }

  /** Fold in the answer to an action, so that its effect shows before the stream reports it. */
  learn(view: { experiment?: ExperimentView; task?: TaskView; trial?: TrialView; agent?: AgentView }): void {
    if (view.experiment) this.set({ experiments: this.withExperiment(this.snapshot.experiments, view.experiment) });
    if (view.task) this.set({ tasks: this.withTask(this.snapshot.tasks, view.task) });
    if (view.agent) {
      const agent = view.agent;
      this.set({ agents: this.snapshot.agents.map(old => (old.id === agent.id ? agent : old)) });
    }
  }

  private async load(): Promise<void> {
    const view = await this.api.get<OverviewView>(this.options.all ? 'overview?all=true' : 'overview');
    if (this.disposed) return;
    this.fresh = true;
    this.pending = [];
    // Events after the overview that were just dropped with `pending` come again.
    this.subscription?.rebase(view.cursor);
    this.set({
      ready: true, problem: null, me: view.me, cluster: view.cluster, agents: view.agents, queue: view.queue,
      experiments: view.experiments, tasks: view.tasks
    });
  }

  private linked(link: Link): void {
    if (link.kind === 'lost' && !this.snapshot.ready) this.set({ link, problem: link.error });
    else this.set({ link });
  }

  private take(event: Event): void {
    for (const listener of this.eventListeners) listener(event);
    if (event.kind === 'resync') {
      this.fresh = false;
      // If that fails, the stream is reopened, which starts with an overview.
      void this.load().catch(() => this.channel.reopen());
      return;
    }
    this.pending.push(event);
    // A page that is being hidden gets no frame: the events wait until it is visible again.
    if (!this.frame) this.frame = requestAnimationFrame(() => this.fold());
  }

  private fold(): void {
    this.frame = 0;
    const events = this.pending;
    this.pending = [];
    let { experiments, tasks } = this.snapshot;
    let asked = false;
    for (const event of events) {
      if (event.kind === 'experiment') experiments = this.withExperiment(experiments, event.data as never);
      else if (event.kind === 'task') tasks = this.withTask(tasks, event.data as never);
      else if (event.kind === 'cluster') asked = true;
    }
    if (experiments !== this.snapshot.experiments || tasks !== this.snapshot.tasks) this.set({ experiments, tasks });
    if (asked) this.askCluster();
  }

  private withExperiment(all: readonly ExperimentView[], one: ExperimentView): readonly ExperimentView[] {
    const gone = one.state === 'DELETED' || one.archived_at;
    if (!gone && !this.concerns(one.owner)) return all;
    const at = all.findIndex(old => old.id === one.id);
    if (gone) return at < 0 ? all : all.filter(old => old.id !== one.id);
    if (at >= 0) return all.map((old, i) => (i === at ? one : old));
    return [one, ...all].sort((a, b) => b.id - a.id).slice(0, MOST_EXPERIMENTS);
  }

  private withTask(all: readonly TaskView[], one: TaskView): readonly TaskView[] {
    if (!this.concerns(one.owner)) return all;
    const found = all.some(old => old.id === one.id);
    const next = found ? all.map(old => (old.id === one.id ? one : old)) : [one, ...all];
    let ended = 0;
    return next.filter(task => !isOver(task.state) || ++ended <= MOST_ENDED_TASKS);
  }

  private concerns(owner: string): boolean {
    return Boolean(this.options.all) || owner === this.snapshot.me?.name;
  }

  private askCluster(): void {
    if (this.clusterTimer) return;
    const wait = Math.max(0, this.clusterAsked + CLUSTER_MS - Date.now());
    this.clusterTimer = window.setTimeout(() => void this.loadCluster(), wait);
  }

  private async loadCluster(): Promise<void> {
    this.clusterTimer = 0;
    this.clusterAsked = Date.now();
    try {
      const [cluster, agents, queue] = await Promise.all([
        this.api.get<ClusterView>('cluster'), this.api.get<AgentView[]>('agents'), everyItem<QueueItem>(this.api, 'queue', 'skip')
      ]);
      if (!this.disposed) this.set({ cluster, agents, queue });
    } catch {
      // The stream reports the same error; when it reconnects, the overview is reloaded.
      this.fresh = false;
    }
  }

  private set(change: Partial<Snapshot>): void {
    if (this.disposed) return;
    this.snapshot = { ...this.snapshot, ...change };
    for (const listener of this.listeners) listener();
  }
}

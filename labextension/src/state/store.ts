/** What is known of the cluster: one overview, then the page's stream of events folded into it. No polling. */

import { Api, ApiError, asApiError } from './api';
import { Channel, Subscription } from './channel';
import type { Link } from './follow';
import { isOver } from './states';
import type {
  AgentView, ClusterView, Event, ExperimentView, OverviewView, QueueItem, QueueView, TaskView, TrialView, UserView
} from './wire';

/** As many experiments are kept as an overview holds. */
const MOST_EXPERIMENTS = 200;
const MOST_ENDED_TASKS = 50;
/** Agents and the queue are asked for at most so often, however many `cluster` events come. */
const CLUSTER_MS = 1000;

export interface Snapshot {
  /** The first overview has come. */
  ready: boolean;
  link: Link;
  /** Why there is no overview; once there is one, `link` tells of trouble. */
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
  /** The overview is what the stream goes on from. */
  private fresh = false;
  private disposed = false;

  /** `all`: everybody's work that the caller may see, not only their own. */
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

  /** Hear each event as it comes (experiment, trial, task, checkpoint states; no metrics), before it is folded in. */
  onEvent(listener: (event: Event) => void): () => void {
    this.eventListeners.add(listener);
    return () => this.eventListeners.delete(listener);
  }

  /** Try again now instead of after the back-off. */
  retry = (): void => this.channel.retry();

  /** Close the stream while nothing of ours is visible; the page's own visibility counts besides. */
  setVisible(visible: boolean): void {
    this.channel.setVisible(visible);
  }

  /** Take the overview anew. */
  async refresh(): Promise<void> {
    try {
      await this.load();
    } catch (error) {
      this.set({ problem: asApiError(error) });
    }
  }

  /** Fold in what an action answered, so that its effect shows before the stream tells of it. */
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
    // What was heard beyond the overview and just dropped with `pending` comes again.
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
      // If it cannot be had now, the stream is opened anew, and that begins with an overview.
      void this.load().catch(() => this.channel.reopen());
      return;
    }
    this.pending.push(event);
    // A frame may never come to a page that is just being hidden: then the events wait for it with the stream.
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
    const gone = one.state === 'DELETED';
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
        this.api.get<ClusterView>('cluster'), this.api.get<AgentView[]>('agents'), this.api.get<QueueView>('queue')
      ]);
      if (!this.disposed) this.set({ cluster, agents, queue: queue.items });
    } catch {
      // The stream tells of the same trouble; when it is back, the overview is taken anew.
      this.fresh = false;
    }
  }

  private set(change: Partial<Snapshot>): void {
    if (this.disposed) return;
    this.snapshot = { ...this.snapshot, ...change };
    for (const listener of this.listeners) listener();
  }
}

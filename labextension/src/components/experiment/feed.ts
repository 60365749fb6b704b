/** What an experiment's view lives on: a snapshot, its trials page by page, then what the page's stream says of it. */

import { Api, ApiError, asApiError } from '../../state/api';
import type { Channel, Subscription } from '../../state/channel';
import type { Link } from '../../state/follow';
import { isOver } from '../../state/states';
import type { CurvesView, Event, ExperimentView, TrialView } from '../../state/wire';
import { ExperimentModel, MAX_CURVES, MAX_POINTS, Metric } from './model';

/** Trials asked for at once, and the most that are kept. */
const PAGE = 2000;
const MOST_TRIALS = 20_000;
/** A snapshot that could not be had in the middle is asked for again after so long. */
const AGAIN_MS = 5000;

export interface FeedState {
  model: ExperimentModel | null;
  /** Grows when there is something new to draw. */
  version: number;
  /** Grows when a checkpoint was written or deleted, and when trials or the experiment changed. */
  checkpoints: number;
  states: number;
  link: Link;
  /** Why there is nothing to show; trouble after that is told by `link`. */
  error: ApiError | null;
  /** Trials that exist beyond those that are kept. */
  surplus: boolean;
}

export class ExperimentFeed {
  private state: FeedState = {
    model: null, version: 0, checkpoints: 0, states: 0, link: { kind: 'opening' }, error: null, surplus: false
  };
  private listeners = new Set<() => void>();
  private subscription: Subscription | null = null;
  private metric: Metric | null = null;
  private config: Record<string, unknown> | null = null;
  private frame = 0;
  private again = 0;
  /** Answers to an older question than this are not heard. */
  private round = 0;
  private stopped = false;
  private held = false;
  /** Not all trials could be had. */
  private missing = false;

  constructor(private api: Api, private channel: Channel, readonly id: number) {}

  getState = (): FeedState => this.state;

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  /** Begin, or begin again after an error, or with another metric. */
  start = async (metric: Metric | null = this.metric): Promise<void> => {
    this.metric = metric;
    const round = (this.round += 1);
    window.clearTimeout(this.again);
    this.subscription?.stop();
    this.subscription = null;
    try {
      await this.load(round);
    } catch (error) {
      if (round === this.round && !this.stopped) this.failed(asApiError(error));
      return;
    }
    if (round !== this.round || this.stopped) return;
    if (isOver(this.state.model!.experiment.state)) this.set({ link: { kind: 'ended' } });
    else this.follow();
    await this.loadTrials(round);
  };

  /** Try again now: the stream goes on where it was; without anything to show, from the beginning. */
  retry = (): void => {
    if (this.subscription) this.channel.retry();
    else void this.start();
  };

  setVisible(visible: boolean): void {
    this.held = !visible;
    if (visible) this.subscription?.resume();
    else this.subscription?.pause();
  }

  /** Fold in what an action answered. */
  learn(experiment: ExperimentView): void {
    const model = this.state.model;
    if (!model) return;
    model.experiment = { ...experiment, config: experiment.config ?? this.config };
    this.set({ states: this.state.states + 1 });
  }

  stop(): void {
    this.stopped = true;
    this.subscription?.stop();
    window.clearTimeout(this.again);
    cancelAnimationFrame(this.frame);
    this.listeners.clear();
  }

  /** Without a snapshot there is nothing to show; if there is an old one, it is shown until the new one can be had. */
  private failed(error: ApiError): void {
    if (!this.state.model || !error.passing) return this.set({ error });
    this.set({ link: { kind: 'lost', error, retryAt: Date.now() + AGAIN_MS } });
    this.again = window.setTimeout(() => void this.start(), AGAIN_MS);
  }

  private async load(round: number): Promise<void> {
    if (!this.metric || !this.config) {
      const view = await this.api.get<ExperimentView>(`experiments/${this.id}`);
      this.config = view.config ?? {};
      this.metric ??= { group: 'validation', name: view.metric };
    }
    const metric = this.metric;
    const query = `group=${encodeURIComponent(metric.group)}&name=${encodeURIComponent(metric.name)}`;
    const limits = `max_points=${MAX_POINTS}&max_trials=${MAX_CURVES}`;
    const snapshot = await this.api.get<CurvesView>(`experiments/${this.id}/curves?${query}&${limits}`);
    if (round !== this.round) return;
    const model = new ExperimentModel(snapshot, metric);
    model.experiment = { ...model.experiment, config: this.config };
    const old = this.state.model;
    // With another metric, or after a resync, the trials that were fetched are still those that exist.
    if (old) model.addTrials([...old.trials.values()]);
    this.set({ model, error: null, states: this.state.states + 1, checkpoints: this.state.checkpoints + 1 });
  }

  private async loadTrials(round: number): Promise<void> {
    let after = 0;
    for (let known = 0; known < MOST_TRIALS; known += PAGE) {
      const page = await this.trialsAfter(after);
      if (round !== this.round || this.stopped || !page) return;
      this.state.model?.addTrials(page.items);
      this.set({ surplus: page.next !== null && known + PAGE >= MOST_TRIALS });
      if (page.next === null || !page.items.length) return;
      after = page.next;
    }
  }

  private async trialsAfter(after: number): Promise<{ items: TrialView[]; next: number | null } | null> {
    try {
      return await this.api.get(`experiments/${this.id}/trials?limit=${PAGE}${after ? `&after=${after}` : ''}`);
    } catch {
      // The stream tells of the same trouble; when it is back, they are asked for again.
      this.missing = true;
      return null;
    }
  }

  private follow(): void {
    this.subscription = this.channel.subscribe({
      subject: { experiment: this.id, ...this.metric! },
      cursor: this.state.model!.cursor,
      onEvent: event => this.take(event),
      onLink: link => this.linked(link)
    });
    if (this.held) this.subscription.pause();
  }

  private linked(link: Link): void {
    this.set({ link });
    if (link.kind !== 'open' || !this.missing) return;
    this.missing = false;
    void this.loadTrials(this.round);
  }

  private take(event: Event): void {
    const change = this.state.model!.apply(event);
    if (change === 'resync') void this.start();
    else if (change === 'checkpoints') this.later({ checkpoints: this.state.checkpoints + 1 });
    else if (change === 'trials' || change === 'experiment') this.later({ states: this.state.states + 1 });
    else if (change === 'curves') this.later({});
  }

  /** Tell in the next frame: a burst of events is one drawing. */
  private later(change: Partial<FeedState>): void {
    this.state = { ...this.state, ...change };
    if (!this.frame) {
      this.frame = requestAnimationFrame(() => {
        this.frame = 0;
        this.set({});
      });
    }
  }

  private set(change: Partial<FeedState>): void {
    if (this.stopped) return;
    this.state = { ...this.state, ...change, version: this.state.version + 1 };
    for (const listener of this.listeners) listener();
  }
}

/** The state behind an experiment's view: a snapshot, its trials page by page, then events of the page's stream. */

import { type Api, everyPart } from '../../state/api';
import type { Channel, Subject } from '../../state/channel';
import { FeedState, SnapshotFeed } from '../../state/feed';
import type { Link } from '../../state/follow';
import { isOver } from '../../state/states';
import type { CurvesView, Event, ExperimentView, TrialView } from '../../state/wire';
import type { Metric } from '../view/metrics';
import { ExperimentModel, MAX_CURVES, MAX_POINTS } from './model';

/** Trials per request, and the most that are kept. */
const PAGE = 2000;
const MOST_TRIALS = 20_000;

export interface ExperimentState extends FeedState {
  model: ExperimentModel | null;
  /** Grows when a checkpoint was written or deleted, and when trials or the experiment changed. */
  checkpoints: number;
  states: number;
  /** Trials that exist beyond those that are kept. */
  surplus: boolean;
}

export class ExperimentFeed extends SnapshotFeed<ExperimentState> {
  private metric: Metric | null = null;
  private config: Record<string, unknown> | null = null;
  /** Not all trials could be had. */
  private missing = false;

  constructor(api: Api, channel: Channel, readonly id: number) {
    super(api, channel, { model: null, version: 0, checkpoints: 0, states: 0, link: { kind: 'opening' }, error: null, surplus: false });
  }

  /** Begin again with another metric. */
  show(metric: Metric): void {
    this.metric = metric;
    void this.start();
  }

  /** Fold in the answer to an action. */
  learn(experiment: ExperimentView): void {
    const model = this.state.model;
    if (!model) return;
    model.experiment = { ...experiment, config: experiment.config ?? this.config };
    this.set({ states: this.state.states + 1 });
  }

  protected get shown(): boolean {
    return this.state.model !== null;
  }

  protected get over(): boolean {
    return isOver(this.state.model!.experiment.state);
  }

  protected get wanted(): { subject: Subject; cursor: number } {
    return { subject: { experiment: this.id, ...this.metric! }, cursor: this.state.model!.cursor };
  }

  protected async load(stale: () => boolean): Promise<void> {
    if (!this.metric || !this.config) {
      const view = await this.api.get<ExperimentView>(`experiments/${this.id}`);
      this.config = view.config ?? {};
      this.metric ??= { group: 'validation', name: view.metric };
    }
    const metric = this.metric;
    const query = `group=${encodeURIComponent(metric.group)}&name=${encodeURIComponent(metric.name)}`;
    const limits = `max_points=${MAX_POINTS}&max_trials=${MAX_CURVES}`;
    const parts = await everyPart<CurvesView>(this.api, `experiments/${this.id}/curves?${query}&${limits}`, 'skip');
    const snapshot = { ...parts[0]!, curves: parts.flatMap(part => part.curves) };
    if (stale()) return;
    const model = new ExperimentModel(snapshot, metric);
    model.experiment = { ...model.experiment, config: this.config };
    const old = this.state.model;
    // With another metric, or after a resync, the trials that were fetched are still those that exist.
    if (old) model.addTrials([...old.trials.values()]);
    this.set({ model, error: null, states: this.state.states + 1, checkpoints: this.state.checkpoints + 1 });
  }

  protected async loadRest(stale: () => boolean): Promise<void> {
    let after = 0;
    for (let known = 0; known < MOST_TRIALS; known += PAGE) {
      const page = await this.trialsAfter(after);
      if (stale() || !page) return;
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
      // The stream reports the same error; when it reconnects, they are loaded again.
      this.missing = true;
      return null;
    }
  }

  protected linked(link: Link, stale: () => boolean): void {
    super.linked(link, stale);
    if (link.kind !== 'open' || !this.missing) return;
    this.missing = false;
    void this.loadRest(stale);
  }

  protected take(event: Event): void {
    const change = this.state.model!.apply(event);
    if (change === 'resync') void this.start();
    else if (change === 'checkpoints') this.later({ checkpoints: this.state.checkpoints + 1 });
    else if (change === 'trials' || change === 'experiment') this.later({ states: this.state.states + 1 });
    else if (change === 'curves') this.later({});
  }
}

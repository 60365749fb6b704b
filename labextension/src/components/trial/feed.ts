/** The state behind a trial's view: the trial, its curves, then events of the page's stream. */

import { type Api, everyItem } from '../../state/api';
import type { Channel, Subject } from '../../state/channel';
import { FeedState, SnapshotFeed } from '../../state/feed';
import { isOver } from '../../state/states';
import type { AttemptView, CurvesView, Event, ExperimentView, SeriesView, TrialView } from '../../state/wire';
import { Curve, addPoint, curveOf, decodeNumber, emptyCurve, finite, noteInfinite, thin } from '../charts/curve';

const MAX_POINTS = 1000;
/** Curves kept; a trial may report thousands of names. */
export const MAX_SERIES = 2000;

/** A metric's curves by group. */
export type Series = Map<string, Map<string, Curve>>;

export interface TrialState extends FeedState {
  trial: TrialView | null;
  /** Those of the trial: an event's view has none, so they are asked for when another one begins. */
  attempts: readonly AttemptView[];
  experiment: ExperimentView | null;
  /** name -> group -> curve */
  series: Series;
  /** Grows when a checkpoint was written or deleted. */
  checkpoints: number;
}

/** Fold one event into the curves of a trial; true if it changed something. */
export function foldMetrics(series: Series, event: Event): boolean {
  const { data } = event;
  const group = String(data.group ?? '');
  let changed = false;
  for (const [name, value] of Object.entries((data.metrics ?? {}) as Record<string, unknown>)) {
    if (decodeNumber(value) === undefined) continue;
    let groups = series.get(name);
    if (!groups) {
      if (series.size >= MAX_SERIES) continue;
      series.set(name, (groups = new Map()));
    }
    let curve = groups.get(group);
    if (!curve) groups.set(group, (curve = emptyCurve(groups.size)));
    if (!addPoint(curve, Number(data.steps_completed ?? 0), finite(value), event.time, Number(data.run ?? 0))) continue;
    noteInfinite(curve, Number(data.steps_completed ?? 0), value);
    thin(curve, MAX_POINTS);
    changed = true;
  }
  return changed;
}

export class TrialFeed extends SnapshotFeed<TrialState> {
  private cursor = 0;

  constructor(api: Api, channel: Channel, readonly id: number) {
    super(api, channel, {
      trial: null, attempts: [], experiment: null, series: new Map(), version: 0, checkpoints: 0, link: { kind: 'opening' }, error: null
    });
  }

  protected async load(stale: () => boolean): Promise<void> {
    const first = await this.api.get<TrialView>(`trials/${this.id}`);
    // The cursor first: what is reported while the curves are on their way comes again with the stream.
    const snapshot = await this.api.get<CurvesView>(`experiments/${first.experiment_id}/curves?max_trials=1&max_points=2`);
    const [trial, curves] = await Promise.all([
      this.api.get<TrialView>(`trials/${this.id}`),
      everyItem<SeriesView>(this.api, `trials/${this.id}/metrics?max_points=${MAX_POINTS}`, 'skip')
    ]);
    if (stale()) return;
    this.cursor = snapshot.cursor;
    this.set({ trial, attempts: trial.attempts, experiment: snapshot.experiment, series: seriesOf(curves), error: null, checkpoints: this.state.checkpoints + 1 });
  }

  /** Rights to its experiment have changed. */
  learnExperiment(experiment: ExperimentView): void {
    if (experiment.may !== this.state.experiment?.may) this.set({ experiment: { ...experiment, config: null } });
  }

  learn(trial: TrialView): void {
    this.set({ trial: this.merged(trial) });
  }

  protected get shown(): boolean {
    return this.state.trial !== null;
  }

  protected get over(): boolean {
    return isOver(this.state.trial!.state);
  }

  protected get wanted(): { subject: Subject; cursor: number } {
    return { subject: { experiment: this.state.trial!.experiment_id, trial: this.id }, cursor: this.cursor };
  }

  private merged(trial: TrialView): TrialView {
    // A stream's view has no summaries; the last that are known stay.
    const old = this.state.trial;
    if (Object.keys(trial.summary).length || !old) return trial;
    if (trial.run > old.run) void this.learnAttempts();
    return { ...trial, summary: old.summary, summary_left_out: old.summary_left_out };
  }

  private async learnAttempts(): Promise<void> {
    const { attempts } = await this.api.get<TrialView>(`trials/${this.id}`).catch(() => ({ attempts: null })); // drawn without them
    if (attempts) this.set({ attempts });
  }

  protected take(event: Event): void {
    if (event.kind === 'resync') {
      void this.start();
      return;
    }
    if (event.id <= this.cursor) return;
    this.cursor = event.id;
    if (event.kind === 'experiment') this.later({ experiment: event.data as unknown as ExperimentView });
    if (event.trial_id !== this.id) return;
    if (event.kind === 'trial') this.later({ trial: this.merged(event.data as unknown as TrialView) });
    else if (event.kind === 'checkpoint') this.later({ checkpoints: this.state.checkpoints + 1 });
    else if (event.kind === 'metrics' && foldMetrics(this.state.series, event)) this.later({});
  }
}

function seriesOf(items: readonly SeriesView[]): Series {
  const series: Series = new Map();
  for (const item of items.slice(0, 2 * MAX_SERIES)) {
    let groups = series.get(item.name);
    if (!groups) series.set(item.name, (groups = new Map()));
    groups.set(item.group, curveOf(groups.size, item.steps, item.values, item.times));
  }
  return series;
}

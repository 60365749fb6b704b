/** What a trial's view lives on: the trial, its curves, then what the page's stream says of it. */

import { Api, ApiError, asApiError } from '../../state/api';
import type { Channel, Subscription } from '../../state/channel';
import type { Link } from '../../state/follow';
import { isOver } from '../../state/states';
import type { CurvesView, Event, ExperimentView, SeriesView, TrialView } from '../../state/wire';
import { Curve, addPoint, curveOf, decodeNumber, emptyCurve, finite, thin } from '../charts/curve';

const MAX_POINTS = 1000;
/** A snapshot that could not be had in the middle is asked for again after so long. */
const AGAIN_MS = 5000;
/** Curves kept; a trial may report thousands of names. */
export const MAX_SERIES = 2000;

/** A metric's curves by group. */
export type Series = Map<string, Map<string, Curve>>;

export interface TrialState {
  trial: TrialView | null;
  experiment: ExperimentView | null;
  /** name -> group -> curve */
  series: Series;
  version: number;
  checkpoints: number;
  link: Link;
  error: ApiError | null;
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
    thin(curve, MAX_POINTS);
    changed = true;
  }
  return changed;
}

export class TrialFeed {
  private state: TrialState = {
    trial: null, experiment: null, series: new Map(), version: 0, checkpoints: 0, link: { kind: 'opening' }, error: null
  };
  private listeners = new Set<() => void>();
  private subscription: Subscription | null = null;
  private cursor = 0;
  private frame = 0;
  private again = 0;
  private round = 0;
  private stopped = false;
  private held = false;

  constructor(private api: Api, private channel: Channel, readonly id: number) {}

  getState = (): TrialState => this.state;

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  start = async (): Promise<void> => {
    const round = (this.round += 1);
    window.clearTimeout(this.again);
    this.subscription?.stop();
    this.subscription = null;
    try {
      const first = await this.api.get<TrialView>(`trials/${this.id}`);
      // The cursor first: what is reported while the curves are on their way comes again with the stream.
      const snapshot = await this.api.get<CurvesView>(`experiments/${first.experiment_id}/curves?max_trials=1&max_points=2`);
      const [trial, curves] = await Promise.all([
        this.api.get<TrialView>(`trials/${this.id}`),
        this.api.get<{ items: SeriesView[] }>(`trials/${this.id}/metrics?max_points=${MAX_POINTS}`)
      ]);
      if (round !== this.round || this.stopped) return;
      this.cursor = snapshot.cursor;
      this.set({ trial, experiment: snapshot.experiment, series: seriesOf(curves.items), error: null, checkpoints: this.state.checkpoints + 1 });
    } catch (error) {
      if (round === this.round && !this.stopped) this.failed(asApiError(error));
      return;
    }
    if (isOver(this.state.trial!.state)) this.set({ link: { kind: 'ended' } });
    else this.follow();
  };

  /** Without a snapshot there is nothing to show; if there is an old one, it is shown until the new one can be had. */
  private failed(error: ApiError): void {
    if (!this.state.trial || !error.passing) return this.set({ error });
    this.set({ link: { kind: 'lost', error, retryAt: Date.now() + AGAIN_MS } });
    this.again = window.setTimeout(() => void this.start(), AGAIN_MS);
  }

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

  learn(trial: TrialView): void {
    this.set({ trial: this.merged(trial) });
  }

  stop(): void {
    this.stopped = true;
    this.subscription?.stop();
    window.clearTimeout(this.again);
    cancelAnimationFrame(this.frame);
    this.listeners.clear();
  }

  private merged(trial: TrialView): TrialView {
    // A stream's view has no summaries; the last that are known stay.
    const old = this.state.trial;
    return Object.keys(trial.summary).length || !old ? trial : { ...trial, summary: old.summary };
  }

  private follow(): void {
    this.subscription = this.channel.subscribe({
      subject: { experiment: this.state.trial!.experiment_id, trial: this.id },
      cursor: this.cursor,
      onEvent: event => this.take(event),
      onLink: link => this.set({ link })
    });
    if (this.held) this.subscription.pause();
  }

  private take(event: Event): void {
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

  private later(change: Partial<TrialState>): void {
    this.state = { ...this.state, ...change };
    if (!this.frame) {
      this.frame = requestAnimationFrame(() => {
        this.frame = 0;
        this.set({});
      });
    }
  }

  private set(change: Partial<TrialState>): void {
    if (this.stopped) return;
    this.state = { ...this.state, ...change, version: this.state.version + 1 };
    for (const listener of this.listeners) listener();
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

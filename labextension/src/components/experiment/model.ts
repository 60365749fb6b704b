/** The fold of an experiment's snapshot and stream, without rendering or network. */

import type { CurvesView, Event, ExperimentView, SeriesView, TrialView } from '../../state/wire';
import { Curve, addPoint, curveOf, decodeNumber, emptyCurve, finite, noteInfinite, thin } from '../charts/curve';
import type { Metric } from '../view/metrics';

/** Points kept of one curve; the stream adds to the snapshot's until twice as many, then they are thinned. */
export const MAX_POINTS = 1000;
/** Curves drawn at once. */
export const MAX_CURVES = 100;

/** What an event changed. */
export type Change = 'nothing' | 'curves' | 'trials' | 'experiment' | 'checkpoints' | 'resync';

export class ExperimentModel {
  experiment: ExperimentView;
  trials = new Map<number, TrialView>();
  curves = new Map<number, Curve>();
  cursor: number;
  /** Grows with each change of the trials or their curves. */
  version = 0;

  constructor(snapshot: CurvesView, readonly metric: Metric) {
    this.experiment = snapshot.experiment;
    this.cursor = snapshot.cursor;
    for (const trial of snapshot.trials) this.trials.set(trial.id, trial);
    for (const series of snapshot.curves) this.take(series);
  }

  private take(series: SeriesView): void {
    if (series.group !== this.metric.group || series.name !== this.metric.name) return;
    this.curves.set(series.trial_id, curveOf(series.trial_id, series.steps, series.values, series.times));
  }

  /** Add trials that were loaded after the snapshot; those known from the stream are newer and stay. */
  addTrials(trials: readonly TrialView[]): void {
    for (const trial of trials) if (!this.trials.has(trial.id)) this.trials.set(trial.id, trial);
    this.version += 1;
  }

  /** Fold one event in. Those at or before the cursor are known already. */
  apply(event: Event): Change {
    if (event.kind === 'resync') return 'resync';
    if (event.id <= this.cursor) return 'nothing';
    this.cursor = event.id;
    const change = this.fold(event);
    if (change !== 'nothing') this.version += 1;
    return change;
  }

  private fold(event: Event): Change {
    const { data } = event;
    if (event.kind === 'experiment') {
      // A stream's view has neither config nor notes; those that are known stay.
      const { config, notes } = this.experiment;
      this.experiment = { ...(data as unknown as ExperimentView), config, notes };
      return 'experiment';
    }
    if (event.kind === 'trial') {
      const trial = data as unknown as TrialView;
      this.trials.set(trial.id, trial);
      return 'trials';
    }
    if (event.kind === 'metrics' && event.trial_id) return this.addMetrics(event.trial_id, event) ? 'curves' : 'nothing';
    return event.kind === 'checkpoint' ? 'checkpoints' : 'nothing';
  }

  private addMetrics(trial: number, event: Event): boolean {
    const { data } = event;
    if (data.group !== this.metric.group) return false;
    const value = (data.metrics as Record<string, unknown> | undefined)?.[this.metric.name];
    if (decodeNumber(value) === undefined) return false;
    let curve = this.curves.get(trial);
    if (!curve) {
      if (this.curves.size >= 2 * MAX_CURVES) return false;
      this.curves.set(trial, (curve = emptyCurve(trial)));
    }
    const added = addPoint(curve, Number(data.steps_completed ?? 0), finite(value), event.time ?? NaN, Number(data.run ?? 0));
    if (added) {
      noteInfinite(curve, Number(data.steps_completed ?? 0), value);
      thin(curve, MAX_POINTS);
    }
    return added;
  }

  /** The curves to draw, the most interesting last (they are painted on top). */
  drawn(most = MAX_CURVES): { trial: TrialView; curve: Curve }[] {
    const best = this.experiment.best?.trial_id;
    const pairs = [...this.curves.values()].flatMap(curve => {
      const trial = this.trials.get(curve.trial);
      return trial && curve.steps.length ? [{ trial, curve }] : [];
    });
    const rank = (trial: TrialView): number => (trial.id === best ? 2 : trial.state === 'ACTIVE' ? 1 : 0);
    pairs.sort((a, b) => rank(a.trial) - rank(b.trial) || a.trial.index - b.trial.index);
    return pairs.slice(-most);
  }
}

/** The frames that the kernel sends (detlab_magics/view/frames.py), and how they fold into what the widget shows. */

import { Curve, emptyCurve, replaceFrom } from '../components/charts/curve';
import type { ExperimentState } from '../state/wire';

export interface Experiment {
  id: number;
  title: string;
  state: ExperimentState;
  /** As it is shown; views that an older kernel drew have none. */
  shown?: ExperimentState | 'QUEUED';
  /** What is wrong with a good end: it has no result. */
  warning?: string | null;
  ended: boolean;
  metric: string;
  progress: number;
  /** The progress in one line. */
  line: string;
  url: string | null;
  best: { trial: number; step: number; value: number } | null;
  smallerIsBetter: boolean;
  notices: string[];
}

export interface Trial {
  id: number;
  index: number;
  cells: string[];
  grey: boolean;
  /** Views that an older kernel drew do not tell it. */
  failed?: boolean;
  running: boolean;
}

/** A curve from position `from` on; it replaces the points known there. */
export interface CurvePart {
  trial: number;
  from: number;
  steps: number[];
  values: (number | string)[];
  /** Steps after which a later run of the trial resumed. */
  gaps: number[];
}

export interface Frame {
  experiment: Experiment;
  header: string[];
  trials: Trial[];
  /** Trials whose curves are drawn; the curves of all others are dropped. */
  drawn: number[];
  /** How many points each of them has by now, in the same order. */
  lengths: number[];
  /** Trials that exist; more than `trials` holds in a very large search. */
  count: number;
  curves: CurvePart[];
  /** Complete: it replaces everything known before. */
  whole?: boolean;
}

/** What the widget shows: the frames so far. */
export class View {
  experiment: Experiment | null = null;
  header: string[] = [];
  trials = new Map<number, Trial>();
  /** Trial ids, best first. */
  order: number[] = [];
  count = 0;
  /** By trial id, in the order in which they are painted. */
  curves = new Map<number, Curve>();

  /** Fold one frame in. Returns false if points before it are missing: then a snapshot is needed. */
  apply(frame: Frame): boolean {
    if (frame.whole) this.curves.clear();
    this.count = frame.count;
    this.experiment = frame.experiment;
    this.header = frame.header;
    this.order = frame.trials.map(trial => trial.id);
    this.trials = new Map(frame.trials.map(trial => [trial.id, trial]));
    const known = new Map(this.curves);
    const joined = frame.curves.map(part => join(known, part));
    this.curves = new Map(frame.drawn.flatMap(id => (known.has(id) ? [[id, known.get(id)!] as const] : [])));
    const complete = frame.drawn.every((id, at) => this.curves.get(id)?.steps.length === frame.lengths[at]);
    return complete && joined.every(Boolean);
  }

  /** Points of all curves. */
  get points(): number {
    return [...this.curves.values()].reduce((sum, curve) => sum + curve.steps.length, 0);
  }
}

/** Add a part to its curve; false if points before it are missing. */
function join(curves: Map<number, Curve>, part: CurvePart): boolean {
  const curve = curves.get(part.trial) ?? emptyCurve(part.trial);
  if (part.from > curve.steps.length) return false;
  replaceFrom(curve, part.from, part.steps, part.values);
  const gaps = part.gaps.map(step => curve.steps.findIndex(later => later > step)).filter(at => at > 0);
  if (gaps.join() !== curve.gaps.join()) curve.version += 1;
  curve.gaps = gaps;
  curves.set(part.trial, curve);
  return true;
}

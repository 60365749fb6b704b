/** What the kernel tells the view, and how increments fold into it. Mirrors detlab_magics/view. */

export interface Experiment {
  id: number;
  title: string;
  state: string;
  ended: boolean;
  metric: string;
  progress: number;
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
  running: boolean;
}

/** A curve from position `from` on: what stood there before is replaced. */
export interface CurvePart {
  trial: number;
  from: number;
  steps: number[];
  values: (number | string)[];
  gaps: number[];
}

export interface Update {
  experiment: Experiment;
  header: string[];
  trials: Trial[];
  /** Trials whose curves are drawn; the others' are forgotten. */
  drawn: number[];
  /** How many points each of them has by now, in the same order; views saved by older versions do not tell. */
  lengths?: number[];
  /** Trials that exist; more than `trials` holds in a very large search. */
  count: number;
  curves: CurvePart[];
  /** It holds all there is: what was known before is replaced. */
  whole?: boolean;
}

export interface Curve {
  steps: number[];
  values: (number | null)[];
  gaps: number[];
}

export class View {
  experiment: Experiment | null = null;
  header: string[] = [];
  trials = new Map<number, Trial>();
  order: number[] = [];
  count = 0;
  curves = new Map<number, Curve>();

  /**
   * Fold one update in; a snapshot is an update that begins at 0 for each curve.
   * Returns false if points before it are missing: the snapshot is needed.
   */
  apply(update: Update): boolean {
    if (update.whole) this.curves.clear();
    let fits = true;
    this.count = update.count;
    this.experiment = update.experiment;
    this.header = update.header;
    this.order = update.trials.map(t => t.id);
    this.trials = new Map(update.trials.map(t => [t.id, t]));
    for (const part of update.curves) {
      const curve = this.curves.get(part.trial) ?? { steps: [], values: [], gaps: [] };
      if (part.from > curve.steps.length) {
        fits = false;
        continue;
      }
      curve.steps = [...curve.steps.slice(0, part.from), ...part.steps];
      curve.values = [...curve.values.slice(0, part.from), ...part.values.map(finite)];
      curve.gaps = part.gaps;
      this.curves.set(part.trial, curve);
    }
    update.lengths?.forEach((length, at) => {
      if (this.curves.get(update.drawn[at] ?? 0)?.steps.length !== length) fits = false;
    });
    const drawn = new Set(update.drawn);
    for (const id of [...this.curves.keys()]) if (!drawn.has(id)) this.curves.delete(id);
    return fits;
  }
}

function finite(value: number | string): number | null {
  return typeof value === 'number' && Number.isFinite(value) ? value : null;
}

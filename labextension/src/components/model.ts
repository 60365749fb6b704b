/** What the kernel tells the view, and how increments fold into it. Mirrors detlab_magics/view. */

export interface Experiment {
  id: number;
  name: string;
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
  curves: CurvePart[];
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
  curves = new Map<number, Curve>();

  /** Fold one update in; a snapshot is an update that begins at 0 for each curve. */
  apply(update: Update): void {
    this.experiment = update.experiment;
    this.header = update.header;
    this.order = update.trials.map(t => t.id);
    this.trials = new Map(update.trials.map(t => [t.id, t]));
    for (const part of update.curves) {
      const curve = this.curves.get(part.trial) ?? { steps: [], values: [], gaps: [] };
      curve.steps = [...curve.steps.slice(0, part.from), ...part.steps];
      curve.values = [...curve.values.slice(0, part.from), ...part.values.map(finite)];
      curve.gaps = part.gaps;
      this.curves.set(part.trial, curve);
    }
  }
}

function finite(value: number | string): number | null {
  return typeof value === 'number' && Number.isFinite(value) ? value : null;
}

/** The curves of a search with their legend: in the notebook, in JupyterLab and on the hub page. */

import type { ReactElement } from 'react';

import { EmptyState } from '../common/notices';
import { CurvePlot } from './CurvePlot';
import type { ChartData } from './curvechart';

export function LearningCurves({ data, metric, describe, nameOf, onPick, note }: {
  data: ChartData;
  metric: string;
  /** Text about a trial beside its value, such as its hyperparameters. */
  describe: (trial: number) => string;
  /** What a curve is called; by default `trial 3`. */
  nameOf?: (trial: number) => string;
  onPick?: (trial: number) => void;
  /** One more entry of the legend, such as how many trials are drawn. */
  note?: string;
}): ReactElement {
  if (!data.entries.length) {
    return (
      <EmptyState title={data.live ? `Waiting for the first report of ${metric} …` : `No trial reported ${metric}.`}>
        {data.live && 'Curves appear with the first validation of a trial.'}
      </EmptyState>
    );
  }
  if (!data.live && !data.entries.some(entry => entry.curve.values.some(Number.isFinite))) {
    return (
      <EmptyState title={`No finite value of ${metric} was reported.`}>
        There is no curve of NaN or infinity: a smaller learning rate, clipped gradients or the data may be the reason.
      </EmptyState>
    );
  }
  return (
    <>
      <CurvePlot data={data} metric={metric} describe={describe} nameOf={nameOf} onPick={onPick} />
      <ul className="det-legend-list" aria-label="Legend">
        <li><i className="det-key-best" /> best trial</li>
        <li><i className="det-key-active" /> other trials</li>
        <li><i className="det-key-grey" /> stopped early or failed</li>
        {data.options.best && <li><i className="det-key-stairs" /> best so far</li>}
        {note && <li>{note}</li>}
      </ul>
    </>
  );
}

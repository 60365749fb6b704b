/** The curves of a search with their legend: in the notebook, in JupyterLab and on the hub page. */

import type { ReactElement } from 'react';

import { EmptyState } from '../common/notices';
import { CurvePlot } from './CurvePlot';
import { COLORS, FEW } from './colours';
import type { ChartData, Entry } from './curvechart';

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
  if (data.entries.length <= FEW) return <Few data={data} metric={metric} describe={describe} onPick={onPick} note={note} />;
  return (
    <>
      <CurvePlot data={data} metric={metric} describe={describe} nameOf={nameOf} onPick={onPick} />
      <ul className="det-legend-list" aria-label="Legend">
        <li><i className="det-key-best" /> best trial</li>
        <li><i className="det-key-active" /> other trials</li>
        <li><i className="det-key-grey" /> stopped early or canceled</li>
        {data.entries.some(entry => entry.failed) && <li><i className="det-key-failed" /> failed</li>}
        {data.options.best && <li><i className="det-key-stairs" /> best so far</li>}
        {note && <li>{note}</li>}
      </ul>
    </>
  );
}

/** Colours by the order of the trials, so that one keeps its colour when others come. */
export function coloured(entries: readonly Entry[]): Entry[] {
  const order = new Map([...entries].sort((a, b) => a.index - b.index).map((entry, place) => [entry.curve.trial, place]));
  return entries.map(entry => ({ ...entry, colour: COLORS[order.get(entry.curve.trial)! % COLORS.length]! }));
}

function Few({ data, metric, describe, onPick, note }: Parameters<typeof LearningCurves>[0]): ReactElement {
  const entries = coloured(data.entries);
  const listed = [...entries].sort((a, b) => a.index - b.index);
  return (
    <>
      <CurvePlot data={{ ...data, entries }} metric={metric} describe={describe} onPick={onPick} />
      <ul className="det-legend-list" aria-label="Legend">
        {listed.map(({ curve, colour, best, grey, failed }) => (
          <li key={curve.trial} className="det-legend-one" title={describe(curve.trial)}>
            <svg className="det-key-own" width="16" height="4" aria-hidden="true"><rect width="16" height={best ? 4 : 2} y={best ? 0 : 1} fill={colour} /></svg>{' '}
            {onPick ? <button type="button" className="det-link" onClick={() => onPick(curve.trial)}>trial {curve.trial}</button> : `trial ${curve.trial}`}
            {best && ', best'}{failed ? ', failed' : grey && ', stopped early or canceled'}
            {describe(curve.trial) && <span className="det-legend-about"> {describe(curve.trial)}</span>}
          </li>
        ))}
        {data.options.best && <li><i className="det-key-stairs" /> best so far</li>}
        {note && <li>{note}</li>}
      </ul>
    </>
  );
}

/** Learning curves with their controls. */

import { ReactElement, ReactNode, useId, useMemo, useState } from 'react';

import { useApp } from '../../state/context';
import { isOver } from '../../state/states';
import type { ExperimentView, TrialView } from '../../state/wire';
import { PlotOptions } from '../charts/axes';
import type { Curve } from '../charts/curve';
import type { ChartData, Entry } from '../charts/curvechart';
import { LearningCurves } from '../charts/LearningCurves';
import { flatten } from '../charts/parallel';
import { formatValue, Toggle, useLoaded } from '../common';
import { nameText } from '../common/text';
import { meanOf } from '../compare/model';
import type { ExperimentFeed, ExperimentState } from './feed';
import { Metric, metricsOf } from '../view/metrics';
import { MAX_CURVES } from './model';
import { greyed } from '../view/progress';
import { bestPoint, pointsOf, seedsOf } from './trials/seeds';

const SMOOTHINGS = [0, 0.3, 0.6, 0.9, 0.97];

export function CurvesTab({ feed, state }: { feed: ExperimentFeed; state: ExperimentState }): ReactElement {
  const { navigate } = useApp();
  const [options, setOptions] = useState<PlotOptions>({ x: 'steps', log: false, smoothing: 0, best: false, focus: true });
  const [means, setMeans] = useState(true);
  const model = state.model!;
  const e = model.experiment;
  const drawn = model.drawn();
  const data: ChartData = {
    entries: drawn.map(({ trial, curve }) => ({ curve, index: trial.index, grey: greyed(trial), failed: trial.state === 'ERROR', best: trial.id === e.best?.trial_id })),
    options, origin: e.started_at ?? e.created_at, smallerIsBetter: e.smaller_is_better, live: !isOver(e.state)
  };
  const name = nameText(model.metric.name, 60);
  const all = model.trials.size;
  const several = seedsOf(e) > 1;
  const points = several && means ? meansOf(drawn, e, options.x) : null;
  const shown = points ? { ...data, entries: points.map(one => one.entry) } : data;
  return (
    <div className="det-curves-tab">
      <Controls feed={feed} metric={model.metric} options={options} onOptions={setOptions}>
        {several && <Toggle on={means} label="Mean of seeds" tip="One curve for the trials of a point, with its standard deviation" onChange={setMeans} />}
      </Controls>
      <LearningCurves
        data={shown} metric={name} nameOf={id => points?.find(one => one.entry.curve.trial === id)?.name ?? `trial ${id}`} describe={id => hparamText(model.trials.get(id))}
        onPick={trial => navigate({ kind: 'trial', id: trial, experiment: e.id })}
        note={drawn.length >= MAX_CURVES && all > drawn.length ? `the best and newest ${drawn.length} of ${all} trials are drawn` : undefined}
      />
    </div>
  );
}

/** One entry for each point of a search with seeds: the mean of its trials' curves, the point with the best mean as the best. */
export function meansOf(
  drawn: readonly { trial: TrialView; curve: Curve }[], e: ExperimentView, x: PlotOptions['x']
): { entry: Entry; name: string }[] {
  const curves = new Map(drawn.map(({ trial, curve }) => [trial.id, curve]));
  const points = pointsOf(drawn.map(({ trial }) => ({ trial, hparams: flatten(trial.hparams) })));
  const best = bestPoint(points, e.smaller_is_better);
  return points.map(point => {
    const trials = point.rows.map(row => row.trial);
    const [first] = trials;
    const shared = { index: first!.index, grey: trials.every(greyed), failed: trials.every(trial => trial.state === 'ERROR'), best: point === best };
    if (trials.length === 1) return { entry: { ...shared, curve: curves.get(first!.id)! }, name: `trial ${first!.id}` };
    return { entry: { ...shared, ...meanOf(trials.map(trial => curves.get(trial.id)!), x, first!.id) }, name: `mean of trials ${trials.map(trial => trial.id).join(', ')}` };
  });
}

function hparamText(trial: TrialView | undefined): string {
  const parts = Object.entries(trial?.hparams ?? {}).map(([name, value]) => `${nameText(name, 40)} ${nameText(formatValue(value), 60)}`);
  return parts.slice(0, 8).join(', ');
}

function Controls({ feed, metric, options, onOptions, children }: {
  feed: ExperimentFeed; metric: Metric; options: PlotOptions; onOptions: (options: PlotOptions) => void; children: ReactNode;
}): ReactElement {
  const id = useId();
  const { metrics, reload } = useMetrics(feed, metric);
  const set = (change: Partial<PlotOptions>): void => onOptions({ ...options, ...change });
  const keyOf = (m: Metric): string => `${m.group}\n${m.name}`;
  return (
    <div className="det-controls" role="group" aria-label="Chart options">
      <span className="det-labelled">
        <label htmlFor={`${id}-m`}>Metric</label>
        <select
          id={`${id}-m`} className="det-input" value={keyOf(metric)} onFocus={reload}
          onChange={event => {
            const chosen = metrics.find(m => keyOf(m) === event.target.value);
            if (chosen) feed.show(chosen);
          }}
        >
          {metrics.map(m => <option key={keyOf(m)} value={keyOf(m)}>{`${nameText(m.group, 40)} / ${nameText(m.name, 60)}`}</option>)}
        </select>
      </span>
      <span className="det-labelled">
        <label htmlFor={`${id}-x`}>over</label>
        <select id={`${id}-x`} className="det-input" value={options.x} onChange={event => set({ x: event.target.value as 'steps' | 'time' })}>
          <option value="steps">steps</option>
          <option value="time">time</option>
        </select>
      </span>
      <span className="det-labelled">
        <label htmlFor={`${id}-s`}>Smoothing</label>
        <select id={`${id}-s`} className="det-input" value={options.smoothing} onChange={event => set({ smoothing: Number(event.target.value) })}>
          {SMOOTHINGS.map(weight => <option key={weight} value={weight}>{weight === 0 ? 'none' : weight}</option>)}
        </select>
      </span>
      <Toggle on={options.log} label="Log scale" tip="Logarithmic metric axis; omits values ≤ 0" onChange={log => set({ log })} />
      <Toggle on={options.best} label="Best so far" tip="Best value of all trials up to each point" onChange={best => set({ best })} />
      <Toggle on={options.focus} label="Focus" tip="Ignore a few outliers that would flatten the other curves" onChange={focus => set({ focus })} />
      {children}
    </div>
  );
}

/** The metrics to choose from: those that one trial has reported, the best or the first; asked anew when one is to be chosen. */
function useMetrics(feed: ExperimentFeed, current: Metric): { metrics: Metric[]; reload: () => void } {
  const { api } = useApp();
  const model = feed.getState().model!;
  const e = model.experiment;
  const trial = e.best?.trial_id ?? [...model.curves.keys()][0] ?? [...model.trials.keys()][0];
  const { data, reload } = useLoaded(trial === undefined ? null : `${trial}`, signal => api.get<TrialView>(`trials/${trial}`, signal));
  const metrics = useMemo(
    () => metricsOf(data?.summary ?? {}, { group: current.group, name: current.name }, e.metric),
    [data, current.group, current.name, e.metric]
  );
  return { metrics, reload };
}

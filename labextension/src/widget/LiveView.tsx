/** The live view of one experiment in a notebook: title, progress, learning curves, notices, table. */

import { ReactElement, useState } from 'react';

import type { PlotOptions } from '../components/charts/axes';
import type { ChartData } from '../components/charts/curvechart';
import { LearningCurves } from '../components/charts/LearningCurves';
import { plural, Progress, StateBadge, Toggle } from '../components/common';
import { stateTone } from '../state/states';
import type { Experiment, View } from './frames';

const MAX_ROWS = 50;
/** Columns of the table before the hyperparameters: trial, metric, steps, state. */
const FIXED_COLUMNS = 4;

export function LiveView({ view, advice }: { view: View; advice: string | null }): ReactElement | null {
  const [options, setOptions] = useState<PlotOptions>({ x: 'steps', log: false, smoothing: 0, best: false, focus: true });
  const e = view.experiment;
  if (!e) return null;
  const set = (change: Partial<PlotOptions>): void => setOptions({ ...options, ...change });
  return (
    <>
      <div className="det-live-head">
        {e.url ? <a className="det-live-title" href={e.url} target="_blank" rel="noopener">{e.title}</a> : <span className="det-live-title">{e.title}</span>}
        <StateBadge state={e.shown ?? e.state} warning={e.warning} />
        <span className="det-live-tools">
          <Toggle on={options.log} label="Log scale" tip="Logarithmic metric axis; omits values ≤ 0" onChange={log => set({ log })} />
          <Toggle on={options.smoothing > 0} label="Smooth" tip="Moving average over the raw curve" onChange={on => set({ smoothing: on ? 0.6 : 0 })} />
        </span>
      </div>
      <Progress value={e.state === 'COMPLETED' ? 1 : e.progress} label="Progress of the search" tone={e.warning ? 'warn' : stateTone(e.shown ?? e.state)} />
      <div className="det-live-line det-soft det-num">{e.line}</div>
      <div className="det-live-plot" role="group" aria-label={`Learning curves of ${e.metric}: ${plural(view.curves.size, 'trial')}, ${view.points} points`}>
        <div className="det-live-metric">{e.metric}</div>
        <LearningCurves data={chartData(view, e, options)} metric={e.metric} describe={id => hparamText(view, id)} />
      </div>
      {e.notices.length > 0 && <pre className="det-live-notices">{e.notices.join('\n')}</pre>}
      {advice && <div className="det-live-advice det-soft">{advice}</div>}
      <details className="det-live-trials" open>
        <summary className="det-soft">Trials ({view.count})</summary>
        <div className="det-live-scroll" role="group" tabIndex={0} aria-label="Trials"><TrialTable view={view} best={e.best?.trial ?? null} /></div>
      </details>
    </>
  );
}

function chartData(view: View, e: Experiment, options: PlotOptions): ChartData {
  const entries = [...view.curves.values()].flatMap(curve => {
    const trial = view.trials.get(curve.trial);
    return trial && curve.steps.length ? [{ curve, index: trial.index, grey: trial.grey, failed: trial.failed, best: trial.id === e.best?.trial }] : [];
  });
  return { entries, options, origin: 0, smallerIsBetter: e.smallerIsBetter, live: !e.ended };
}

function hparamText(view: View, id: number): string {
  const cells = view.trials.get(id)?.cells ?? [];
  const names = view.header.slice(FIXED_COLUMNS, view.header.at(-1) === WHY ? -1 : undefined);
  return names.map((name, i) => `${name} ${cells[FIXED_COLUMNS + i] ?? ''}`).join(', ');
}

/** The column of the reasons why trials were stopped, which are sentences: cut, and in full where the pointer rests. */
const WHY = 'why';

function TrialTable({ view, best }: { view: View; best: number | null }): ReactElement {
  return (
    <table className="det-live-table">
      <thead><tr>{view.header.map((name, i) => <th key={i} className={name === WHY ? 'det-live-why' : undefined}>{name}</th>)}</tr></thead>
      <tbody>
        {view.order.slice(0, MAX_ROWS).map(id => {
          const trial = view.trials.get(id)!;
          const kind = id === best ? 'det-live-best' : trial.grey ? 'det-live-grey' : undefined;
          return <tr key={id} className={kind}>{trial.cells.map((cell, i) => view.header[i] === WHY
            ? <td key={i} className="det-live-why" title={cell}>{cell}</td> : <td key={i}>{cell}</td>)}</tr>;
        })}
      </tbody>
    </table>
  );
}

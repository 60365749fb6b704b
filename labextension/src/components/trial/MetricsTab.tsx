/** The metrics of one trial: a small chart for each name, its groups together. */

import { ReactElement, useMemo, useState } from 'react';

import { isOver } from '../../state/states';
import type { AttemptView } from '../../state/wire';
import type { PlotOptions } from '../charts/axes';
import { reportedAt, type Curve } from '../charts/curve';
import { CurvePlot } from '../charts/CurvePlot';
import type { ChartData } from '../charts/curvechart';
import { EmptyState, formatNumber, plural, Toggle } from '../common';
import { isOfMachine } from '../view/metrics';
import { nameText } from '../common/text';
import type { TrialState } from './feed';

/** Charts drawn at once; more on request. */
const PAGE = 8;
/** Attempts that are named and marked; the last ones of many. */
const MARKS = 5;

export function MetricsTab({ state }: { state: TrialState }): ReactElement {
  const [search, setSearch] = useState('');
  const [most, setMost] = useState(PAGE);
  const [options, setOptions] = useState<PlotOptions>({ x: 'steps', log: false, smoothing: 0, best: false, focus: false });
  const trial = state.trial!;
  const metric = state.experiment?.metric ?? '';
  const names = useMemo(() => {
    const wanted = search.trim().toLowerCase();
    const all = [...state.series.keys()].filter(name => name.toLowerCase().includes(wanted));
    const ofMachine = (name: string): number => Number([...state.series.get(name)!.keys()].every(isOfMachine));
    return all.sort((a, b) => Number(b === metric) - Number(a === metric) || ofMachine(a) - ofMachine(b) || (a < b ? -1 : 1));
    // eslint-disable-next-line react-hooks/exhaustive-deps -- series are added in place: the size says when
  }, [state.series, state.series.size, search, metric]);
  const set = (change: Partial<PlotOptions>): void => setOptions({ ...options, ...change });
  if (!state.series.size) {
    return (
      <EmptyState title={isOver(trial.state) ? 'This trial reported no metrics.' : 'Waiting for the first report …'}>
        {!isOver(trial.state) && trial.pending_reason}
      </EmptyState>
    );
  }
  return (
    <div className="det-metrics-tab">
      <div className="det-controls">
        <input
          className="det-input det-grow" type="search" aria-label="Filter metrics" placeholder={`Filter ${plural(state.series.size, 'metric')}`}
          value={search} onChange={event => setSearch(event.target.value)}
        />
        <Toggle on={options.x === 'time'} label="Over time" onChange={on => set({ x: on ? 'time' : 'steps' })} />
        <Toggle on={options.log} label="Log scale" onChange={log => set({ log })} />
        <Toggle on={options.smoothing > 0} label="Smooth" tip="Moving average over the raw curve" onChange={on => set({ smoothing: on ? 0.6 : 0 })} />
      </div>
      {state.attempts.length > 1 && <p className="det-soft">{attemptsText(state.attempts)}</p>}
      {!names.length && <EmptyState title="No metric matches the filter." />}
      <div className="det-metric-cards">
        {names.slice(0, most).map(name => (
          <MetricCard key={name} name={name} groups={state.series.get(name)!} state={state} options={options} searched={name === metric} />
        ))}
      </div>
      {names.length > most && (
        <button type="button" className="det-button" onClick={() => setMost(most + 2 * PAGE)}>Show more ({names.length - most})</button>
      )}
    </div>
  );
}

/** The later attempts, and where each took over. */
export function attemptsText(attempts: readonly AttemptView[]): string {
  const later = attempts.slice(1).map((one, place) => `attempt ${place + 2} ${one.resume_step === null ? 'began anew' : `resumed at step ${one.resume_step}`}`);
  return `Dotted lines: ${later.slice(-MARKS).join(', ')}${later.length > MARKS ? `, and ${later.length - MARKS} before` : ''}.`;
}

/** Where the later attempts took over, on the axis that is shown. */
export function attemptMarks(attempts: readonly AttemptView[], axis: PlotOptions['x'], origin: number): number[] {
  const later = attempts.slice(1).slice(-MARKS);
  const found = axis === 'time' ? later.map(one => (one.started_at === null ? NaN : one.started_at - origin)) : later.map(one => one.resume_step ?? 0);
  return found.filter(mark => Number.isFinite(mark));
}

const ORDER: Record<string, number> = { validation: 1, training: 0 };

function MetricCard({ name, groups, state, options, searched }: {
  name: string; groups: ReadonlyMap<string, Curve>; state: TrialState; options: PlotOptions; searched: boolean;
}): ReactElement {
  const trial = state.trial!;
  const list = [...groups].sort((a, b) => (ORDER[a[0]] ?? 2) - (ORDER[b[0]] ?? 2));
  const first = Math.min(...list.map(([, curve]) => curve.times.find(time => Number.isFinite(time)) ?? Infinity));
  const origin = Math.min(trial.started_at ?? first, first);
  const data: ChartData = {
    marks: attemptMarks(state.attempts, options.x, origin),
    entries: list.map(([group, curve]) => ({ curve, index: group === 'training' ? 0 : group === 'validation' ? 1 : 2 + curve.trial, grey: false, best: group === 'validation' })),
    options, origin, live: !isOver(trial.state),
    smallerIsBetter: state.experiment?.smaller_is_better ?? true
  };
  const groupOf = (id: number): string => nameText(list.find(([, curve]) => curve.trial === id)?.[0] ?? '', 40);
  const shown = nameText(name, 60);
  return (
    <section className="det-card" aria-label={shown}>
      <h2 className="det-card-head">
        <span className="det-ellipsis" title={nameText(name)}>{shown}</span>
        {searched && <span className="det-soft">search metric</span>}
      </h2>
      <ul className="det-legend-list">
        {list.map(([group, curve]) => (
          <li key={group}>
            <i className={group === 'validation' ? 'det-key-best' : group === 'training' ? 'det-key-training' : 'det-key-other'} />
            {nameText(group, 40)} <span className="det-num">{curve.values.length ? last(curve) : '–'}</span>
          </li>
        ))}
      </ul>
      <CurvePlot data={data} metric={shown} small nameOf={groupOf} />
    </section>
  );
}

function last(curve: Curve): string {
  return formatNumber(reportedAt(curve, curve.values.length - 1));
}

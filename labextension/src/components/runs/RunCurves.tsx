/** Metrics of a run from elsewhere: a small chart for each name, loaded as they are looked at, again while it runs. */

import { ReactElement, ReactNode, useMemo, useState } from 'react';

import { everyItem } from '../../state/api';
import { useApp } from '../../state/context';
import type { RunCurve, RunView } from '../../state/wire';
import type { PlotOptions } from '../charts/axes';
import { curveOf, type Curve } from '../charts/curve';
import { CurvePlot } from '../charts/CurvePlot';
import type { ChartData } from '../charts/curvechart';
import { EmptyState, ErrorBanner, formatNumber, plural, Toggle, useLoaded } from '../common';
import { nameText } from '../common/text';
import { useSettled } from '../common/loading/useThrottled';
import { goesOn } from './model';

/** Charts drawn at once; more on request. */
const PAGE = 8;
const POINTS = 500;

export function RunCurves({ run, names, cut = '', empty }: {
  run: RunView; names: readonly string[];
  /** What all names begin with, and titles leave out. */
  cut?: string;
  empty: ReactNode;
}): ReactElement {
  const { api } = useApp();
  const [search, setSearch] = useState('');
  const [most, setMost] = useState(PAGE);
  const [options, setOptions] = useState<PlotOptions>({ x: cut ? 'time' : 'steps', log: false, smoothing: 0, best: false, focus: false });
  const set = (change: Partial<PlotOptions>): void => setOptions({ ...options, ...change });
  const wanted = useSettled(search.trim().toLowerCase());
  const found = useMemo(() => names.filter(name => name.toLowerCase().includes(wanted)).sort((a, b) => (a < b ? -1 : 1)), [names, wanted]);
  const shown = found.slice(0, most);
  // Newer values say that there is more to draw.
  const round = shown.map(name => `${run.metrics[name]!.step}/${run.metrics[name]!.time}`).join();
  const query = shown.map(name => `name=${encodeURIComponent(name)}`).join('&');
  const { data, error, reload } = useLoaded(
    shown.length ? `${run.id} ${query} ${round}` : null,
    signal => everyItem<RunCurve>(api, `runs/${encodeURIComponent(run.id)}/curves?max_points=${POINTS}&${query}`, 'skip', signal)
  );
  const curves = useMemo(() => new Map((data ?? []).map(one => [one.name, one])), [data]);
  if (!names.length) return <>{empty}</>;
  return (
    <div className="det-metrics-tab">
      <div className="det-controls">
        <input
          className="det-input det-grow" type="search" aria-label="Filter metrics" placeholder={`Filter ${plural(names.length, 'metric')}`}
          value={search} onChange={event => setSearch(event.target.value)}
        />
        <Toggle on={options.x === 'time'} label="Over time" onChange={on => set({ x: on ? 'time' : 'steps' })} />
        <Toggle on={options.log} label="Log scale" onChange={log => set({ log })} />
        <Toggle on={options.smoothing > 0} label="Smooth" tip="Moving average over the raw curve" onChange={on => set({ smoothing: on ? 0.6 : 0 })} />
      </div>
      {error && <ErrorBanner error={error} what="Curves" onRetry={reload} />}
      {!found.length && <EmptyState title="No metric matches the filter." />}
      <div className="det-metric-cards">
        {shown.map(name => <Card key={name} run={run} name={name} title={nameText(name.slice(cut.length), 60)} curve={curves.get(name)} options={options} />)}
      </div>
      {found.length > most && (
        <button type="button" className="det-button" onClick={() => setMost(most + 2 * PAGE)}>Show more ({found.length - most})</button>
      )}
    </div>
  );
}

function Card({ run, name, title, curve, options }: {
  run: RunView; name: string; title: string; curve: RunCurve | undefined; options: PlotOptions;
}): ReactElement {
  const drawn = useMemo(() => (curve ? placed(curve, options.x) : null), [curve, options.x]);
  const last = run.metrics[name]!;
  const first = drawn?.times.find(Number.isFinite) ?? run.started_at;
  const origin = Math.min(run.started_at || first, first);
  const data: ChartData = {
    entries: drawn ? [{ curve: drawn, index: 0, grey: false, best: false }] : [], options, origin, live: goesOn(run), smallerIsBetter: true
  };
  return (
    <section className="det-card" aria-label={title}>
      <h2 className="det-card-head">
        <span className="det-ellipsis" title={nameText(name)}>{title}</span>
        <span className="det-soft det-num" title={`step ${last.step}${curve ? `, ${plural(curve.total, 'value')}` : ''}`}>{formatNumber(last.value)}</span>
      </h2>
      <CurvePlot data={data} metric={title} small nameOf={() => ''} />
    </section>
  );
}

/** A curve whose x ascends: a script may have gone back in its steps. */
function placed(curve: RunCurve, axis: PlotOptions['x']): Curve {
  if (axis === 'steps') return curveOf(0, curve.steps, curve.values, curve.times);
  const order = curve.times.map((_, i) => i).sort((a, b) => curve.times[a]! - curve.times[b]!);
  const by = <T,>(list: readonly T[]): T[] => order.map(i => list[i]!);
  return curveOf(0, by(curve.steps), by(curve.values), by(curve.times));
}

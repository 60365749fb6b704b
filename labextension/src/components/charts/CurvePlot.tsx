/** The learning curves as a component: canvas, hint below it, keys to walk through the trials. */

import { KeyboardEvent, ReactElement, useEffect, useRef, useState } from 'react';

import { formatNumber, plural } from '../common/format';
import { xLabel } from './axes';
import { reportedAt } from './curve';
import { CurveChart, Hover, ChartData } from './curvechart';
import { SaveFigure } from './SaveFigure';
import type { LegendItem } from './svg';

/** With more curves than this a saved figure names no single one. */
const MOST_NAMED = 20;

export interface CurvePlotProps {
  data: ChartData;
  metric: string;
  /** A small one among others: fixed height, no hint when idle. */
  small?: boolean;
  /** Text about a trial beside its value, such as its hyperparameters. */
  describe?: (trial: number) => string;
  /** What a curve is called; by default `trial 3`. */
  nameOf?: (trial: number) => string;
  onPick?: (trial: number) => void;
}

export function CurvePlot({ data, metric, small, describe, nameOf, onPick }: CurvePlotProps): ReactElement {
  const host = useRef<HTMLDivElement>(null);
  const chart = useRef<CurveChart | null>(null);
  const pick = useRef(onPick);
  pick.current = onPick;
  const [hover, setHover] = useState<Hover | null>(null);
  const [zoomed, setZoomed] = useState(false);
  const [outliers, setOutliers] = useState(0);

  useEffect(() => {
    const made = new CurveChart(host.current!, setHover, trial => pick.current?.(trial));
    chart.current = made;
    const sized = new ResizeObserver(() => made.resize());
    sized.observe(host.current!);
    const themed = new MutationObserver(() => made.retheme());
    for (const node of [document.documentElement, document.body]) {
      themed.observe(node, { attributes: true, attributeFilter: ['class', 'data-bs-theme', 'data-jp-theme-name', 'data-theme'] });
    }
    return () => {
      sized.disconnect();
      themed.disconnect();
      made.destroy();
      chart.current = null;
    };
  }, []);

  // After every render: the curves in `data` grow in place. Setting what is set already ends it.
  // eslint-disable-next-line react-hooks/exhaustive-deps -- see above
  useEffect(() => {
    chart.current?.update(data);
    setZoomed(Boolean(chart.current?.zoomed));
    setOutliers(chart.current?.outliers ?? 0);
  });

  const walk = (event: KeyboardEvent): void => {
    const ids = data.entries.map(entry => entry.curve.trial);
    const at = hover ? ids.indexOf(hover.trial) : -1;
    const step = event.key === 'ArrowDown' || event.key === 'ArrowRight' ? 1 : event.key === 'ArrowUp' || event.key === 'ArrowLeft' ? -1 : 0;
    if (event.key === 'Enter' && hover) onPick?.(hover.trial);
    else if (event.key === 'Escape') show(null);
    else if (step && ids.length) show(ids[(at + step + ids.length + (at < 0 && step < 0 ? 1 : 0)) % ids.length]!);
    else return;
    event.preventDefault();
  };

  const show = (trial: number | null): void => {
    const curve = data.entries.find(entry => entry.curve.trial === trial)?.curve;
    chart.current?.highlight(curve ? curve.trial : null);
    const last = curve ? curve.steps.length - 1 : 0;
    const x = curve && (data.options.x === 'steps' ? curve.steps[last]! : curve.times[last]! - data.origin);
    setHover(curve ? { trial: curve.trial, x: x!, y: reportedAt(curve, last) } : null);
  };

  const described = (): string => {
    const { trial, x, y } = hover!;
    const parts = [nameOf?.(trial) ?? `trial ${trial}`, xLabel(x, data.options.x), `${metric} ${formatNumber(y)}`];
    return [...parts, describe?.(trial)].filter(Boolean).join(' · ');
  };
  const legend = (): LegendItem[] => {
    const entries = data.entries.length > MOST_NAMED ? data.entries.filter(entry => entry.best) : [...data.entries].sort((a, b) => a.index - b.index);
    return entries.map(entry => ({ colour: chart.current!.colourOf(entry.curve.trial), text: `${nameOf?.(entry.curve.trial) ?? `trial ${entry.curve.trial}`}${entry.best && !small ? ', best' : ''}` }));
  };
  const help = small ? '' : `Point at a curve to see its trial${onPick ? ', click to open it' : ''}; drag to zoom.`;
  const left = outliers ? ` ${plural(outliers, 'outlier')} not shown.` : '';
  const idle = zoomed ? 'Double-click to reset the zoom.' : `${help}${left}`.trim();
  const known = hover && data.entries.some(entry => entry.curve.trial === hover.trial);
  return (
    <div className="det-curves">
      <div
        ref={host}
        className={`det-curve-host${small ? ' det-small' : ''}`}
        role="group"
        tabIndex={0}
        aria-label={`Curves of ${metric}: ${data.entries.length}. Arrow keys walk through them${onPick ? ', Enter opens the trial' : ''}.`}
        onKeyDown={walk}
        onBlur={() => show(null)}
      />
      <div className="det-curve-foot">
        <p className="det-curve-hint" role="status">{known ? described() : idle}</p>
        <SaveFigure name={metric} picture={() => chart.current?.picture(metric, legend()) ?? null} />
      </div>
    </div>
  );
}

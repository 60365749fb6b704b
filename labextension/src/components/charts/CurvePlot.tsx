/** The learning curves as a component: canvas, hint below it, keys to walk through the trials. */

import { KeyboardEvent, ReactElement, useEffect, useRef, useState } from 'react';

import { formatNumber } from '../common/format';
import { xLabel } from './axes';
import { CurveChart, Hover, Scene } from './curvechart';

export interface CurvePlotProps {
  scene: Scene;
  metric: string;
  /** A small one among others: fixed height, no hint when idle. */
  small?: boolean;
  /** Words about a trial beside its value, such as its hyperparameters. */
  describe?: (trial: number) => string;
  /** What a curve is called; by default `trial 3`. */
  nameOf?: (trial: number) => string;
  onPick?: (trial: number) => void;
}

export function CurvePlot({ scene, metric, small, describe, nameOf, onPick }: CurvePlotProps): ReactElement {
  const host = useRef<HTMLDivElement>(null);
  const chart = useRef<CurveChart | null>(null);
  const pick = useRef(onPick);
  pick.current = onPick;
  const [hover, setHover] = useState<Hover | null>(null);
  const [zoomed, setZoomed] = useState(false);

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

  useEffect(() => {
    chart.current?.update(scene);
    setZoomed(Boolean(chart.current?.zoomed));
  });

  const walk = (event: KeyboardEvent): void => {
    const ids = scene.entries.map(entry => entry.curve.trial);
    const at = hover ? ids.indexOf(hover.trial) : -1;
    const step = event.key === 'ArrowDown' || event.key === 'ArrowRight' ? 1 : event.key === 'ArrowUp' || event.key === 'ArrowLeft' ? -1 : 0;
    if (event.key === 'Enter' && hover) onPick?.(hover.trial);
    else if (event.key === 'Escape') show(null);
    else if (step && ids.length) show(ids[(at + step + ids.length + (at < 0 && step < 0 ? 1 : 0)) % ids.length]!);
    else return;
    event.preventDefault();
  };

  const show = (trial: number | null): void => {
    const curve = scene.entries.find(entry => entry.curve.trial === trial)?.curve;
    chart.current?.highlight(curve ? curve.trial : null);
    const last = curve ? curve.steps.length - 1 : 0;
    const x = curve && (scene.options.x === 'steps' ? curve.steps[last]! : curve.times[last]! - scene.origin);
    setHover(curve ? { trial: curve.trial, x: x!, y: curve.values[last]! } : null);
  };

  const told = (index: number): string => {
    const value = Number.isNaN(hover!.y) ? 'NaN' : formatNumber(hover!.y);
    const parts = [nameOf?.(hover!.trial) ?? `trial ${index}`, xLabel(hover!.x, scene.options.x), `${metric} ${value}`];
    return [...parts, describe?.(hover!.trial)].filter(Boolean).join(' · ');
  };
  const whole = small ? '' : 'Point at a curve to see its trial; click it to open the trial; drag to zoom.';
  const idle = zoomed ? 'Double-click to see everything again.' : whole;
  const entry = hover && scene.entries.find(e => e.curve.trial === hover.trial);
  return (
    <div className="det-curves">
      <div
        ref={host}
        className={`det-curve-host${small ? ' det-small' : ''}`}
        role="group"
        tabIndex={0}
        aria-label={`Curves of ${metric}: ${scene.entries.length}. Arrow keys walk through them${onPick ? ', Enter opens the trial' : ''}.`}
        onKeyDown={walk}
        onBlur={() => show(null)}
      />
      <p className="det-curve-hint" role="status">{entry ? told(entry.index) : idle}</p>
    </div>
  );
}

/** Slot-hours by day as stacked bars. One SVG: its shapes are attributes, so that no style is needed inline. */

import { useLayoutEffect, useRef, useState, type ReactElement } from 'react';

import { nameText } from '../../common/text';
import { axis, formatHours, OTHERS, type Stack } from './slothours';

const HEIGHT = 260;
const LEFT = 48;
const TOP = 12;
const BOTTOM = 28;

export function UsageChart({ stack }: { stack: Stack }): ReactElement {
  const figure = useRef<HTMLElement>(null);
  const width = useWidth(figure);
  const [hovered, setHovered] = useState<number | null>(null);
  const { top, marks } = axis(Math.max(0, ...stack.totals));
  const inner = HEIGHT - TOP - BOTTOM;
  const y = (hours: number): number => TOP + inner * (1 - hours / top);
  const step = (width - LEFT) / Math.max(stack.days.length, 1);
  const every = Math.ceil(56 / step);
  return (
    <figure ref={figure} className="det-adm-chart">
      <svg width={width} height={HEIGHT} viewBox={`0 0 ${width} ${HEIGHT}`} role="img" aria-label={describe(stack)} onMouseLeave={() => setHovered(null)}>
        {marks.map(mark => (
          <g key={mark}>
            <line className="det-adm-gridline" x1={LEFT} x2={width} y1={y(mark)} y2={y(mark)} />
            <text x={LEFT - 8} y={y(mark) + 4} textAnchor="end">{mark}</text>
          </g>
        ))}
        {stack.days.map((day, i) => {
          let floor = 0;
          const x = LEFT + i * step;
          return (
            <g key={day} onMouseEnter={() => setHovered(i)} data-hovered={hovered === i ? '' : undefined}>
              <rect className="det-adm-catch" x={x} y={TOP} width={step} height={inner} />
              {stack.bands.map((band, b) => {
                const hours = stack.hours[b]![i]!;
                floor += hours;
                if (!hours) return null;
                return (
                  <rect
                    key={b} data-colour={band === OTHERS ? 'others' : b} x={x + step * 0.12} width={step * 0.76}
                    y={y(floor)} height={Math.max(0, y(floor - hours) - y(floor))}
                  />
                );
              })}
              {i % every === 0 && (
                <text x={x + step / 2} y={HEIGHT - 8} textAnchor="middle">{day.slice(5)}</text>
              )}
            </g>
          );
        })}
      </svg>
      <figcaption>
        <ul className="det-adm-legend">
          {stack.bands.map((band, b) => (
            <li key={b}>
              <i data-colour={band === OTHERS ? 'others' : b} aria-hidden="true" />
              {nameText(band, 60)}
              {hovered !== null && <b className="det-num"> {formatHours(stack.hours[b]![hovered]!)}</b>}
            </li>
          ))}
        </ul>
        <p className="det-soft" aria-hidden="true">
          {hovered === null
            ? 'Slot-hours by day (UTC)'
            : `${stack.days[hovered]}: ${formatHours(stack.totals[hovered]!)} slot-hours`}
        </p>
      </figcaption>
    </figure>
  );
}

/** The width that there is, in pixels: text keeps its size on a narrow page. */
function useWidth(of: { current: HTMLElement | null }): number {
  const [width, setWidth] = useState(900);
  useLayoutEffect(() => {
    const el = of.current!;
    const measure = (): void => setWidth(Math.max(el.clientWidth || 900, 200));
    measure();
    const sized = new ResizeObserver(measure);
    sized.observe(el);
    return () => sized.disconnect();
  }, [of]);
  return width;
}

function describe(stack: Stack): string {
  const all = stack.totals.reduce((sum, n) => sum + n, 0);
  const most = stack.totals.indexOf(Math.max(...stack.totals));
  const day = all ? `, most on ${stack.days[most]}` : '';
  return `Slot-hours by day and user: ${formatHours(all)} in ${stack.days.length} days${day}. The table below has the numbers.`;
}

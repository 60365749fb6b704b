/** A figure of the master, drawn by plotly.js in the page's colours. */

import { ReactElement, useEffect, useMemo, useRef, useState } from 'react';

import { asApiError, type ApiError } from '../../state/api';
import { useApp, type Plotly } from '../../state/context';
import { EmptyState, ErrorBanner, Loading } from '../common';
import { SaveFigure } from './SaveFigure';
import { FONT, PAPER, type Picture } from './svg';

export interface Figure {
  data: Record<string, unknown>[];
  layout: Record<string, unknown>;
}

const HEIGHT = 420;
/** Panels beside each other are at least so wide, and scroll. */
const PANEL_WIDTH = 230;
const CONFIG = { displaylogo: false, displayModeBar: false, responsive: false, scrollZoom: false };

export function PlotlyFigure({ figure }: { figure: Figure }): ReactElement {
  const { plotly } = useApp();
  const place = useRef<HTMLDivElement>(null);
  const [library, setLibrary] = useState<Plotly | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const [attempt, setAttempt] = useState(0);
  const { title, subtitle } = useMemo(() => titleOf(figure), [figure]);
  const bare = figure.data.length === 0;

  useEffect(() => {
    if (bare || library || !plotly) return;
    let over = false;
    plotly().then(
      found => { if (!over) setLibrary(() => found); },
      (problem: unknown) => { if (!over) setError(asApiError(problem)); }
    );
    return () => { over = true; };
  }, [bare, library, plotly, attempt]);

  useEffect(() => {
    const element = place.current;
    if (!library || !element) return;
    const draw = (): void => void library.react(element, figure.data, dressed(figure, coloursOf(element)), CONFIG);
    draw();
    const themed = new MutationObserver(draw);
    for (const root of [document.documentElement, document.body]) {
      themed.observe(root, { attributes: true, attributeFilter: ['data-jp-theme-light', 'data-bs-theme', 'data-jp-theme-name'] });
    }
    const sized = typeof ResizeObserver === 'undefined' ? null : new ResizeObserver(() => {
      if (element.clientWidth) library.Plots.resize(element);
    });
    sized?.observe(element);
    return () => {
      themed.disconnect();
      sized?.disconnect();
    };
  }, [library, figure]);

  useEffect(() => {
    const element = place.current;
    if (!library || !element) return;
    return () => library.purge(element);
  }, [library]);

  const picture = async (): Promise<Picture> => {
    const element = place.current!;
    const [width, height] = [Math.max(element.clientWidth, 640), heightOf(figure) + 60];
    const layout = { ...dressed(figure, { ink: PAPER.ink, rule: PAPER.rule, family: FONT, narrow: false }), paper_bgcolor: PAPER.ground, title: { text: figure.layout.title ? (figure.layout.title as { text?: string }).text : undefined, font: { size: 14 } }, margin: { l: 56, r: 20, t: 48, b: 48, pad: 2 } };
    const image = await library!.toImage({ data: figure.data, layout }, { format: 'svg', width, height, imageDataOnly: true });
    return { svg: image, width, height };
  };
  if (bare) return <EmptyState title={reasonOf(figure)} />;
  if (!plotly) return <EmptyState title="Figures cannot be drawn here: plotly.js was not built." />;
  if (error) return <ErrorBanner error={error} what="The figure" onRetry={() => { setError(null); setAttempt(n => n + 1); }} />;
  return (
    <figure className="det-plotly">
      <figcaption>
        <span className="det-plotly-title">{title}</span>
        {subtitle && <span className="det-soft">{subtitle}</span>}
        {library && <SaveFigure name={title || 'figure'} picture={picture} />}
      </figcaption>
      {!library && <Loading what="Loading plotly" />}
      <div className="det-x-scroll" tabIndex={0} role="group" aria-label={title}>
        <div ref={place} className="det-plotly-place" style={{ height: heightOf(figure), minWidth: columnsOf(figure) > 1 ? columnsOf(figure) * PANEL_WIDTH : 0 }} />
      </div>
    </figure>
  );
}

function heightOf(figure: Figure): number {
  const height = figure.layout.height;
  return typeof height === 'number' ? Math.max(240, height - 60) : HEIGHT;
}

/** Panels in a row: as many as there are places at which x axes begin. */
function columnsOf(figure: Figure): number {
  const axes = Object.entries(figure.layout).filter(([key]) => /^xaxis\d*$/.test(key));
  return new Set(axes.map(([, axis]) => (axis as { domain?: number[] }).domain?.[0] ?? 0)).size;
}

/** The texts of a figure are escaped for plotly; here they are text again. */
function plain(html: unknown): string {
  return typeof html === 'string' ? new DOMParser().parseFromString(html, 'text/html').documentElement.textContent ?? '' : '';
}

function titleOf(figure: Figure): { title: string; subtitle: string } {
  const title = figure.layout.title as { text?: string; subtitle?: { text?: string } } | undefined;
  return { title: plain(title?.text), subtitle: plain(title?.subtitle?.text) };
}

function reasonOf(figure: Figure): string {
  const notes = figure.layout.annotations as { text?: string }[] | undefined;
  return plain(notes?.[0]?.text) || 'There is nothing to draw.';
}

interface Colours {
  ink: string;
  rule: string;
  family: string;
  narrow: boolean;
}

function coloursOf(element: HTMLElement): Colours {
  const style = getComputedStyle(element);
  return { ink: style.color, rule: style.borderTopColor, family: style.fontFamily, narrow: element.clientWidth < 480 };
}

/** The layout without its title, which stands above, and in the colours of the page. */
function dressed(figure: Figure, { ink, rule, family, narrow }: Colours): object {
  const axis = { automargin: true, exponentformat: 'power', color: ink, gridcolor: rule, linecolor: rule, zerolinecolor: rule, title: { standoff: 8 } };
  const { title: _title, height: _height, margin: _margin, ...layout } = figure.layout;
  return {
    ...layout,
    autosize: true,
    margin: { l: narrow ? 44 : 56, r: narrow ? 12 : 20, t: 16, b: 48, pad: 2 },
    paper_bgcolor: 'rgba(0,0,0,0)',
    plot_bgcolor: 'rgba(0,0,0,0)',
    font: { color: ink, family, size: narrow ? 11 : 12 },
    hoverlabel: { align: 'left' },
    template: { layout: { xaxis: axis, yaxis: axis, coloraxis: { colorbar: { outlinewidth: 0 } }, legend: { bgcolor: 'rgba(0,0,0,0)' } } },
    ...(narrow && { legend: { orientation: 'h', yref: 'container', y: 0, yanchor: 'bottom' } })
  };
}

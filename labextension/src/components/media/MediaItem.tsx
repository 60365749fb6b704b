/** One object of a trial: shown as what it is, and saved by a link. */

import { ReactElement, useState } from 'react';

import { useApp } from '../../state/context';
import type { MediaView } from '../../state/wire';
import { ErrorBanner, formatBytes, formatNumber, Loading, plural, useLoaded } from '../common';
import { nameText, visible } from '../common/text';
import { PlotlyFigure, type Figure } from '../charts/PlotlyFigure';
import { Points3D } from './Points3D';
import { Cell, confusionOf, ConfusionData, curvesFigure, histogramFigure, plotlyFigure, pointsOf, TableData, tableOf } from './shapes';

/** Characters of a text, and rows of a table, that are shown at first. */
const FIRST_CHARS = 4_000;
const FIRST_ROWS = 25;

export function MediaItem({ item }: { item: MediaView }): ReactElement {
  const { api } = useApp();
  const path = `${item.run_id ? `runs/${encodeURIComponent(item.run_id)}` : `trials/${item.trial_id}`}/media/${item.id}`;
  const name = labelOf(item);
  return (
    <figure className="det-media-item" data-kind={item.kind}>
      <Shown item={item} path={path} name={name} />
      <figcaption>
        {item.caption && <span className="det-media-caption">{visible(item.caption)}</span>}
        <span className="det-soft">
          {item.width > 0 && `${item.width} × ${item.height}, `}{formatBytes(item.size)}{' '}
          <a className="det-link" href={api.href(`${path}/file`)} download aria-label={`Save ${name}`}>Save</a>
        </span>
      </figcaption>
    </figure>
  );
}

/** What a screen reader says of it. */
export function labelOf(item: MediaView): string {
  const place = item.place ? `, ${item.place + 1}` : '';
  return `${nameText(item.key, 80)}${place} at step ${item.step}${item.caption ? `: ${nameText(item.caption, 120)}` : ''}`;
}

function Shown({ item, path, name }: { item: MediaView; path: string; name: string }): ReactElement {
  const { api } = useApp();
  const source = api.href(`${path}/file`);
  if (item.kind === 'image' || item.media_type === 'image/gif') return <Picture source={source} name={name} item={item} />;
  if (item.kind === 'audio') return <audio controls preload="none" src={source} aria-label={name} />;
  if (item.kind === 'video') return <video controls preload="metadata" src={source} aria-label={name} />;
  if (item.kind === 'html') return <Document path={path} name={name} />;
  return <Read item={item} path={path} name={name} />;
}

function Picture({ source, name, item }: { source: string; name: string; item: MediaView }): ReactElement {
  const [large, setLarge] = useState(false);
  const [broken, setBroken] = useState(false);
  if (broken) return <p className="det-soft" role="status">This image cannot be shown: its file is damaged, or your browser does not know it. Save it to look.</p>;
  return (
    <button
      type="button" className="det-media-picture" aria-pressed={large} aria-label={`${name}. ${large ? 'Show smaller' : 'Show larger'}`}
      onClick={() => setLarge(!large)}
    >
      <img src={source} alt="" loading="lazy" decoding="async" data-large={large || undefined} width={item.width || undefined} height={item.height || undefined} onError={() => setBroken(true)} />
    </button>
  );
}

/**
 * HTML of a training, in a frame of an origin of its own: it reaches nothing of this page, and loads nothing. Its
 * scripts run only for who asks for them.
 */
function Document({ path, name }: { path: string; name: string }): ReactElement {
  const { api } = useApp();
  const [scripts, setScripts] = useState(false);
  const source = api.href(`${path}/document${scripts ? '?scripts=true' : ''}`);
  return (
    <div className="det-media-document">
      <iframe key={source} title={name} src={source} sandbox={scripts ? 'allow-scripts' : ''} loading="lazy" />
      {!scripts && (
        <button type="button" className="det-button" onClick={() => setScripts(true)} title="They run in a frame of their own, which reaches neither this page nor the network.">
          Run its scripts
        </button>
      )}
    </div>
  );
}

function Read({ item, path, name }: { item: MediaView; path: string; name: string }): ReactElement {
  const { api } = useApp();
  const { data, error, reload } = useLoaded(`${path}/file`, () => api.text(`${path}/file`));
  if (error && data === null) return <ErrorBanner error={error} what={name} onRetry={reload} />;
  if (data === null) return <Loading what={`Loading ${name}`} />;
  return item.kind === 'text' ? <Words text={data} /> : <Parsed kind={item.kind} text={data} name={name} />;
}

function Words({ text }: { text: string }): ReactElement {
  const [all, setAll] = useState(false);
  const cut = !all && text.length > FIRST_CHARS;
  return (
    <div className="det-media-text">
      <pre tabIndex={0}>{lines(cut ? text.slice(0, FIRST_CHARS) : text)}</pre>
      {cut && <button type="button" className="det-button" onClick={() => setAll(true)}>Show all {text.length.toLocaleString('en')} characters</button>}
    </div>
  );
}

/** Text with its lines; what would hide or reorder it is made visible. */
function lines(text: string): string {
  return text.split('\n').map(line => visible(line)).join('\n');
}

const FIGURES: Record<string, (value: unknown) => Figure | null> = { histogram: histogramFigure, curves: curvesFigure, plotly: plotlyFigure };

function Parsed({ kind, text, name }: { kind: string; text: string; name: string }): ReactElement {
  const value = parsed(text);
  const figure = FIGURES[kind]?.(value);
  if (figure) return <PlotlyFigure figure={figure} />;
  const table = kind === 'table' ? tableOf(value) : null;
  if (table) return <Rows table={table} name={name} />;
  const points = kind === 'points' ? pointsOf(value) : null;
  if (points) return <Points3D data={points} name={name} />;
  const confusion = kind === 'confusion' ? confusionOf(value) : null;
  if (confusion) return <Confusion data={confusion} name={name} />;
  return <p className="det-soft" role="status">This {kind} cannot be shown here. Save it to look.</p>;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function cellText(cell: Cell): string {
  if (cell === null) return '';
  return typeof cell === 'number' ? formatNumber(cell) : nameText(String(cell), 400);
}

function Rows({ table, name }: { table: TableData; name: string }): ReactElement {
  const [most, setMost] = useState(FIRST_ROWS);
  const left = table.rows.length - most;
  return (
    <div className="det-media-table">
      <div className="det-x-scroll" tabIndex={0} role="group" aria-label={name}>
        <table>
          <thead><tr>{table.columns.map((column, i) => <th key={i} scope="col">{nameText(column, 80)}</th>)}</tr></thead>
          <tbody>
            {table.rows.slice(0, most).map((row, i) => (
              <tr key={i}>{row.map((cell, at) => <td key={at} className={typeof cell === 'number' ? 'det-num' : undefined} title={typeof cell === 'number' ? String(cell) : undefined}>{cellText(cell)}</td>)}</tr>
            ))}
          </tbody>
        </table>
      </div>
      {left > 0 && <button type="button" className="det-button" onClick={() => setMost(10 * most)}>Show more ({plural(left, 'row')})</button>}
      {table.leftOut > 0 && <p className="det-soft">{plural(table.leftOut, 'row')} more {table.leftOut === 1 ? 'was' : 'were'} not logged.</p>}
    </div>
  );
}

function Confusion({ data, name }: { data: ConfusionData; name: string }): ReactElement {
  const total = data.counts.map(row => row.reduce((sum, one) => sum + one, 0));
  return (
    <div className="det-x-scroll" tabIndex={0} role="group" aria-label={name}>
      <table className="det-media-confusion">
        <caption className="det-soft">Rows: true class; columns: predicted.</caption>
        <thead><tr><td />{data.labels.map((label, i) => <th key={i} scope="col">{nameText(label, 30)}</th>)}</tr></thead>
        <tbody>
          {data.counts.map((row, i) => (
            <tr key={i}>
              <th scope="row">{nameText(data.labels[i]!, 30)}</th>
              {row.map((count, at) => {
                const part = total[i]! > 0 ? Math.max(0, Math.min(1, count / total[i]!)) : 0;
                return <td key={at} className="det-num" style={{ '--det-part': `${Math.round(100 * part)}%` } as object} data-right={i === at || undefined} title={`${Math.round(100 * part)}% of the row`}>{formatNumber(count)}</td>;
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** The media of trials and runs, side by side by key, at one step: of one trial on its page, of several in a comparison. */

import { ReactElement, useMemo, useState } from 'react';

import { everyItem, type Api } from '../../state/api';
import { useApp } from '../../state/context';
import type { MediaKeyView, MediaPage, MediaView } from '../../state/wire';
import { EmptyState, ErrorBanner, Loading, plural, useLoaded } from '../common';
import { nameText } from '../common/text';
import { useSettled } from '../common/loading/useThrottled';
import { MediaItem } from './MediaItem';

export interface MediaColumn {
  /** What has logged them: `trials/5`, `runs/ID`. */
  base: string;
  name: string;
}

/** What there is of all trials: keys by name, and steps. */
interface Contents {
  keys: { key: string; kinds: string[]; count: number }[];
  steps: number[];
}

/** Objects of a trial that are shown of one step; a step with more says so. */
const MOST_SHOWN = 200;
const MOST_KEYS = 40;

export function MediaPane({ columns, round = 0, over }: {
  columns: readonly MediaColumn[];
  /** Grows when there may be more. */
  round?: number;
  /** Whether no more will come. */
  over: boolean;
}): ReactElement {
  const { api } = useApp();
  const ids = columns.map(column => column.base).join(',');
  const { data, error, reload } = useLoaded(`${ids} ${round}`, signal => loadContents(api, columns, signal));
  if (error && !data) return <ErrorBanner error={error} what="Media" onRetry={reload} />;
  if (!data) return <Loading what="Loading media" />;
  if (!data.keys.length) return <Teach over={over} what={columns.length > 1 ? 'These trials have' : columns[0]?.base.startsWith('runs/') ? 'This run has' : 'This trial has'} reload={reload} />;
  return <Browser columns={columns} contents={data} round={round} reload={over ? undefined : reload} />;
}

async function loadContents(api: Api, columns: readonly MediaColumn[], signal: AbortSignal): Promise<Contents> {
  const found = await Promise.all(columns.map(async ({ base }) => [
    await everyItem<MediaKeyView>(api, `${base}/media/keys`, 'skip', signal),
    await everyItem<number>(api, `${base}/media/steps`, 'after', signal)
  ] as const));
  const keys = new Map<string, Contents['keys'][number]>();
  for (const one of found.flatMap(([list]) => list)) {
    const known = keys.get(one.key) ?? { key: one.key, kinds: [], count: 0 };
    keys.set(one.key, { key: one.key, kinds: [...new Set([...known.kinds, one.kind])], count: known.count + one.count });
  }
  const steps = [...new Set(found.flatMap(([, list]) => list))].sort((a, b) => a - b);
  return { keys: [...keys.values()].sort((a, b) => (a.key < b.key ? -1 : 1)), steps };
}

const EXAMPLE = `core_context.train.report_media(step, {
    "samples": [det.Image(image) for image in batch],
    "predictions": det.Table(frame),
})`;

const EXAMPLE_OF_RUN = `det.log({
    "samples": [det.Image(image) for image in batch],
    "predictions": det.Table(frame),
})`;

function Teach({ over, what, reload }: { over: boolean; what: string; reload: () => void }): ReactElement {
  return (
    <EmptyState title={over ? `${what} logged no media.` : 'No media yet.'}>
      <p>A training can log images, sound, video, text, HTML, tables and plots of any step; they are shown here, beside each other over the steps:</p>
      <pre className="det-media-example">{what === 'This run has' ? EXAMPLE_OF_RUN : EXAMPLE}</pre>
      {!over && <button type="button" className="det-button" onClick={reload}>Look again</button>}
      <p>Figures of matplotlib and plotly, data frames and texts are taken as they are. A bad object is one warning, never a failed training.</p>
    </EmptyState>
  );
}

function Browser({ columns, contents, round, reload }: {
  columns: readonly MediaColumn[]; contents: Contents; round: number;
  /** Look for more; absent where no more will come. */
  reload?: () => void;
}): ReactElement {
  const [chosen, setChosen] = useState<number | null>(null);
  const [search, setSearch] = useState('');
  const [most, setMost] = useState(MOST_KEYS);
  const { steps } = contents;
  // Nothing chosen: the newest, which follows a trial that runs.
  const at = chosen === null ? steps.length - 1 : Math.max(0, steps.filter(step => step <= chosen).length - 1);
  const step = steps[at] ?? 0;
  const wanted = search.trim().toLowerCase();
  const keys = useMemo(() => contents.keys.filter(({ key }) => key.toLowerCase().includes(wanted)), [contents, wanted]);
  const go = (to: number): void => setChosen(to >= steps.length - 1 ? null : steps[Math.max(0, to)]!);
  const settled = Number(useSettled(String(step), 120));
  return (
    <div className="det-media">
      <div className="det-controls det-media-controls">
        <input
          className="det-input det-grow" type="search" aria-label="Filter media" placeholder={`Filter ${plural(contents.keys.length, 'key')}`}
          value={search} onChange={event => setSearch(event.target.value)}
        />
        <span className="det-labelled det-media-steps">
          <label htmlFor="det-media-step">Step {step.toLocaleString('en')}</label>
          <button type="button" className="det-button" aria-label="Step before" disabled={at <= 0} onClick={() => go(at - 1)}>‹</button>
          <input
            id="det-media-step" type="range" min={0} max={Math.max(0, steps.length - 1)} step={1} value={at} disabled={steps.length < 2}
            aria-valuetext={`step ${step}, ${at + 1} of ${steps.length}`} onChange={event => go(Number(event.target.value))}
          />
          <button type="button" className="det-button" aria-label="Step after" disabled={at >= steps.length - 1} onClick={() => go(at + 1)}>›</button>
        </span>
        {reload && <button type="button" className="det-button" onClick={reload}>Look again</button>}
      </div>
      {!keys.length && <EmptyState title="No key matches the filter." />}
      <Step columns={columns} keys={keys.slice(0, most).map(one => one.key)} step={settled} round={round} />
      {keys.length > most && (
        <button type="button" className="det-button" onClick={() => setMost(most + MOST_KEYS)}>Show more keys ({keys.length - most})</button>
      )}
    </div>
  );
}

function Step({ columns, keys, step, round }: { columns: readonly MediaColumn[]; keys: readonly string[]; step: number; round: number }): ReactElement | null {
  const { api } = useApp();
  const ids = columns.map(column => column.base).join(',');
  const { data, error, loading, reload } = useLoaded(`${ids} ${step} ${round}`, async signal => {
    const pages = await Promise.all(columns.map(({ base }) => api.get<MediaPage>(`${base}/media?at=${step}&limit=${MOST_SHOWN}`, signal)));
    return pages.map(page => ({ items: page.items, more: page.next !== null }));
  });
  if (error && !data) return <ErrorBanner error={error} what={`Media of step ${step}`} onRetry={reload} />;
  if (!data) return <Loading what={`Loading step ${step}`} />;
  const named = columns.length > 1;
  return (
    <div aria-busy={loading || undefined}>
      {data.some(part => part.more) && <p className="det-soft">Of each trial {MOST_SHOWN} objects of a step are shown; <code>det trial media download</code> has all.</p>}
      {keys.map(key => (
        <section key={key} className="det-media-key" aria-label={nameText(key, 80)}>
          <h2 className="det-card-head"><span className="det-ellipsis" title={nameText(key)}>{nameText(key, 80)}</span></h2>
          <div className={named ? 'det-media-columns' : undefined}>
            {columns.map((column, i) => (
              <Column key={column.base} name={named ? column.name : ''} items={data[i]!.items.filter(item => item.key === key)} step={step} />
            ))}
          </div>
        </section>
      ))}
    </div>
  );
}

function Column({ name, items, step }: { name: string; items: readonly MediaView[]; step: number }): ReactElement {
  const of = items[0]?.step;
  return (
    <div className="det-media-column">
      {(name || (of !== undefined && of !== step)) && (
        <p className="det-soft">{name}{name && of !== undefined && of !== step && ', '}{of !== undefined && of !== step && `of step ${of.toLocaleString('en')}`}</p>
      )}
      {items.length ? <div className="det-media-items">{items.map(item => <MediaItem key={item.id} item={item} />)}</div> : <p className="det-soft">Nothing up to this step.</p>}
    </div>
  );
}

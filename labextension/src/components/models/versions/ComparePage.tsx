/** Versions of a model side by side: what is the same and what is not. */

import { FormEvent, ReactElement, ReactNode, useState } from 'react';

import { useApp } from '../../../state/context';
import type { Comparison, Difference, VersionView } from '../../../state/wire';
import { Go, View } from '../../admin/parts';
import { ActionButton, EmptyState, ErrorBanner, formatBytes, formatNumber, formatTime, Loading, plural, significant, Toggle, toNumber, useLoaded } from '../../common';
import { useRechecked } from '../../common/loading/rights';
import { nameText } from '../../common/text';
import { OwnLabels } from '../Chips';
import { CodeDiff } from './CodeDiff';
import { bestOf, direction, modelOf, untwinned, versionsOf } from '../model';
import { modelPath } from '../paths';
import { valueText } from '../../view/Values';

export function ComparePage({ model, versions }: { model: string; versions: readonly string[] }): ReactElement {
  const { api, navigate } = useApp();
  const path = `${modelPath(model)}/compare?versions=${versions.map(encodeURIComponent).join(',')}`;
  const { data, error, reload } = useLoaded(versions.length ? path : null, signal => api.get<Comparison>(path, signal));
  useRechecked(versions.length ? reload : null);
  const lost = error !== null && (error.status === 404 || error.status === 403);
  const go = (to: readonly string[]): void => navigate({ kind: 'compare', model, versions: [...to] });
  return (
    <View
      title={`Compare versions of ${nameText(model, 80)}`}
      summary={<><Go to={{ kind: 'models' }}>Models</Go> / <Go to={{ kind: 'model', name: model }}><bdi>{nameText(model, 80)}</bdi></Go></>}
      tools={<AddVersion onAdd={more => go([...versions, ...more.filter(one => !versions.includes(one))])} />}
    >
      {error && <ErrorBanner error={error} what="Comparison" onRetry={reload} />}
      {!versions.length && <EmptyState title="No versions are chosen.">Add two or more, or choose them in the table of versions.</EmptyState>}
      {versions.length > 0 && !data && !error && <Loading what="Comparing" />}
      {data && !lost && versions.length > 0 && <Shown data={data} versions={versions} go={go} />}
    </View>
  );
}

function AddVersion({ onAdd }: { onAdd: (versions: string[]) => void }): ReactElement {
  const [text, setText] = useState('');
  const add = (event?: FormEvent): void => {
    event?.preventDefault();
    const found = versionsOf(text);
    setText('');
    if (found.length) onAdd(found);
  };
  return (
    <form className="det-labelled" aria-label="Add a version" onSubmit={add}>
      <input className="det-input" aria-label="Version" placeholder="Number or label" size={14} value={text} onChange={event => setText(event.target.value)} />
      <ActionButton label="Add" why={text.trim() ? null : 'Enter the number or a label of a version.'} onRun={() => add()} />
      <button type="submit" hidden />
    </form>
  );
}

function Shown({ data, versions, go }: { data: Comparison; versions: readonly string[]; go: (to: readonly string[]) => void }): ReactElement {
  const [all, setAll] = useState(false);
  const sides = data.versions;
  const metrics = new Set(untwinned(data.metrics.map(row => row.name)));
  const drop = (at: number): void => go(versions.filter((_, i) => i !== at));
  const kept = (rows: readonly Difference[]): readonly Difference[] => (all ? rows : rows.filter(row => !row.same));
  const parts: [string, readonly Difference[], boolean][] = [
    ['Metrics', data.metrics.filter(row => metrics.has(row.name)), true], ['Hyperparameters', data.hyperparameters, false], ['Config', data.config, false], ['Environment', data.environment, false]
  ];
  return (
    <div className="det-compare">
      <div className="det-controls">
        <Toggle on={!all} label="Only differences" tip="Hide rows whose values are the same in all versions" onChange={on => setAll(!on)} />
      </div>
      <div className="det-adm-scroll" tabIndex={0} role="region" aria-label="Comparison">
        <table className="det-adm-sheet det-compare-table">
          <thead><tr><th scope="col"><span className="det-hidden">Name</span></th>{sides.map((side, i) => <Head key={i} side={side} onDrop={sides.length > 1 ? () => drop(i) : undefined} />)}</tr></thead>
          <tbody>
            <Row name="Registered">{sides.map(side => formatTime(side.created_at))}</Row>
            <Row name="Trial">{sides.map(side => (side.lineage.trial_id === null ? '–' : <Go key={side.version} to={{ kind: 'trial', id: side.lineage.trial_id }}>{side.lineage.trial_id}</Go>))}</Row>
            <Row name="Step">{sides.map(side => side.lineage.steps_completed ?? '–')}</Row>
            <Row name="Size">{sides.map(side => formatBytes(side.size))}</Row>
          </tbody>
          {parts.map(([title, rows, measured]) => <Part key={title} title={title} rows={kept(rows)} all={rows.length} sides={sides} measured={measured} />)}
        </table>
      </div>
      <Code data={data} />
    </div>
  );
}

function Head({ side, onDrop }: { side: VersionView; onDrop?: () => void }): ReactElement {
  return (
    <th scope="col">
      <span className="det-compare-head">
        <Go to={{ kind: 'version', model: modelOf(side), version: side.version }}>version {side.version}</Go>
        {onDrop && <button type="button" className="det-button det-compact" aria-label={`Leave out version ${side.version}`} title="Leave out" onClick={onDrop}>✕</button>}
      </span>
      {side.semver && <span className="det-soft">{nameText(side.semver, 40)} </span>}
      <OwnLabels labels={side.labels} />
    </th>
  );
}

function Row({ name, children }: { name: string; children: ReactNode[] }): ReactElement {
  return <tr><th scope="row">{name}</th>{children.map((value, i) => <td key={i} className="det-num">{value}</td>)}</tr>;
}

/** Rows of one part that are drawn. */
const MOST_ROWS = 500;

function Part({ title, rows, all, sides, measured }: {
  title: string; rows: readonly Difference[]; all: number; sides: readonly VersionView[]; measured: boolean;
}): ReactElement {
  const same = all - rows.length;
  return (
    <tbody>
      <tr className="det-compare-part">
        <th scope="rowgroup" colSpan={sides.length + 1}>
          <span>{title} <span className="det-soft">{!all ? 'no differences' : !rows.length ? `all ${all} the same` : same ? `${plural(same, 'other')} the same` : ''}</span></span>
        </th>
      </tr>
      {rows.slice(0, MOST_ROWS).map(row => (
        <tr key={row.name} data-same={row.same || undefined}>
          <th scope="row"><bdi>{nameText(row.name, 120)}</bdi></th>
          {measured ? <Measured row={row} sides={sides} /> : row.values.map((value, i) => <td key={i} className="det-num det-compare-value">{valueText(value, 200)}</td>)}
        </tr>
      ))}
      {rows.length > MOST_ROWS && <tr><td colSpan={sides.length + 1} className="det-soft">and {rows.length - MOST_ROWS} more</td></tr>}
    </tbody>
  );
}

/** Values of a metric, the best one marked, and how far each is from the first. */
function Measured({ row, sides }: { row: Difference; sides: readonly VersionView[] }): ReactElement {
  const better = direction(row.name, sides);
  const best = bestOf(row, better);
  const first = toNumber(row.values[0] as number | null);
  return (
    <>
      {row.values.map((raw, i) => {
        const value = toNumber(raw as number | null);
        const far = i > 0 && value !== null && first !== null ? value - first : null;
        return (
          <td key={i} className={`det-num${best.has(i) ? ' det-compare-best' : ''}`}>
            {formatNumber(raw as number | null)}{best.has(i) && <span className="det-compare-word"> best</span>}
            {far !== null && Number.isFinite(far) && far !== 0 && <span className="det-soft"> ({far > 0 ? '+' : '−'}{significant(Math.abs(far), false, 3)})</span>}
          </td>
        );
      })}
    </>
  );
}

function Code({ data }: { data: Comparison }): ReactElement {
  return (
    <section className="det-compare-code" aria-label="Code">
      <h2>Code</h2>
      {!data.code.length && <p className="det-soft">{data.versions.some(side => side.lineage.bundle_digest) ? 'The code is the same.' : 'No code was recorded.'}</p>}
      {data.code.map(file => <CodeDiff key={file.path} file={file} versions={data.versions} />)}
    </section>
  );
}

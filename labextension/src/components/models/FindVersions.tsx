/** Versions of all models by a condition: best first by a metric, or newest first; as `det model best` and `search`. */

import { ReactElement, useState } from 'react';

import { useApp } from '../../state/context';
import type { VersionList, VersionView } from '../../state/wire';
import { Ago, Go, Sheet } from '../admin/parts';
import { ActionButton, EmptyState, ErrorBanner, formatNumber, Loading, useLoaded } from '../common';
import { CopyButton } from '../common/CopyButton';
import { nameText } from '../common/text';
import { OwnLabels } from './Chips';
import { modelOf, versionName } from './model';
import { findCommand, findPath, type Sought } from './paths';

/** Versions that are shown. */
const MOST = 20;
const NOTHING: Sought = { metric: '', smaller: false, where: '' };

export function FindVersions({ onClose }: { onClose: () => void }): ReactElement {
  const [typed, setTyped] = useState<Sought>(NOTHING);
  const [sought, setSought] = useState<Sought | null>(null);
  const ready = { metric: typed.metric.trim(), smaller: typed.smaller, where: typed.where.trim() };
  const why = ready.metric || ready.where ? null : 'Enter a metric or a condition.';
  const find = (): void => { if (!why) setSought(ready); };
  return (
    <section className="det-find" aria-label="Find versions">
      <form className="det-find-form" onSubmit={event => { event.preventDefault(); find(); }}>
        <label>
          Best by metric
          <input className="det-input" name="metric" value={typed.metric} placeholder="accuracy" autoComplete="off" autoFocus onChange={event => setTyped({ ...typed, metric: event.target.value })} />
        </label>
        <label>
          Better is
          <select className="det-input" value={typed.smaller ? 'smaller' : 'greater'} onChange={event => setTyped({ ...typed, smaller: event.target.value === 'smaller' })}>
            <option value="greater">greater</option>
            <option value="smaller">smaller</option>
          </select>
        </label>
        <label className="det-find-where">
          Among
          <input
            className="det-input det-mono" name="where" value={typed.where} placeholder="label = vision and dataset = v3 and hp.lr < 0.1" autoComplete="off" spellCheck={false}
            title="label, name, owner, version, version.label, semver, format, experiment, hp.NAME, metrics and metadata; = != < <= > >= in; and, or, not"
            onChange={event => setTyped({ ...typed, where: event.target.value })}
          />
        </label>
        <span className="det-find-acts">
          <ActionButton label="Find" primary why={why} onRun={find} />
          <ActionButton label="Close" onRun={onClose} />
        </span>
        <button type="submit" hidden />
      </form>
      {sought && <Found key={JSON.stringify(sought)} sought={sought} />}
    </section>
  );
}

function Found({ sought }: { sought: Sought }): ReactElement {
  const { api } = useApp();
  const path = findPath(sought, MOST);
  const { data, error, reload } = useLoaded(path, signal => api.get<VersionList>(path, signal));
  if (error) return <ErrorBanner error={error} what="Versions" onRetry={reload} />;
  if (!data) return <Loading what="Looking for versions" />;
  if (!data.items.length) {
    return <EmptyState title={sought.metric ? `No version that matches has the metric ${nameText(sought.metric, 80)}.` : 'No version matches.'} />;
  }
  return (
    <>
      <Versions items={data.items} metric={sought.metric} />
      <p className="det-find-note det-soft">
        {data.after !== null && <>The first {data.items.length}. </>}
        <CopyButton text={findCommand(sought)} label="Copy command" what="the command that finds the same" />
      </p>
    </>
  );
}

function Versions({ items, metric }: { items: readonly VersionView[]; metric: string }): ReactElement {
  const head = (
    <>
      <th>Version</th>
      {metric && <th className="det-right">{nameText(metric, 40)}</th>}
      <th>Labels</th>
      <th>SemVer</th>
      <th className="det-right">Experiment</th>
      <th className="det-right">Step</th>
      <th>Registered</th>
      <th>By</th>
    </>
  );
  return (
    <Sheet label="Versions found" head={head}>
      {items.map(one => (
        <tr key={`${one.model_id} ${one.version}`}>
          <td><Go to={{ kind: 'version', model: modelOf(one), version: one.version }}><span className="det-adm-name"><bdi>{versionName(one)}</bdi></span></Go></td>
          {metric && <td className="det-right det-num">{formatNumber(one.lineage.metrics[metric])}</td>}
          <td className="det-models-labels">{one.labels.length ? <OwnLabels labels={one.labels} /> : '–'}</td>
          <td>{nameText(one.semver ?? '–', 40)}</td>
          <td className="det-right det-num">{one.lineage.experiment_id === null ? '–' : <Go to={{ kind: 'experiment', id: one.lineage.experiment_id }}>{one.lineage.experiment_id}</Go>}</td>
          <td className="det-right det-num">{one.lineage.steps_completed}</td>
          <td><Ago time={one.created_at} /></td>
          <td><span className="det-adm-name">{nameText(one.owner, 60) || '–'}</span></td>
        </tr>
      ))}
    </Sheet>
  );
}

/** The versions of a model as a table: its metrics as columns, rows to be chosen for a comparison. */

import { ReactElement, useCallback, useMemo, useState } from 'react';

import { useApp } from '../../../state/context';
import type { ModelView, VersionList, VersionView } from '../../../state/wire';
import { Go } from '../../admin/parts';
import { ActionButton, Column, EmptyState, ErrorBanner, formatAgo, formatBytes, formatNumber, Loading, plural, Table, toNumber, useLoaded } from '../../common';
import { nameText } from '../../common/text';
import { ColumnPicker } from '../../view/ColumnPicker';
import { direction, metricNames, modelOf, referenceTo, versionName } from '../model';
import { modelPath } from '../paths';

const PAGE = 500;
/** Metrics that are shown unless others are chosen. */
const USUAL = 3;
/** Versions that fit side by side. */
const MOST_COMPARED = 10;

interface VersionColumn extends Column<VersionView> {
  usual: boolean;
}

export function Versions({ model, why, onMove }: { model: ModelView; why: string | null; onMove: (version: number) => void }): ReactElement {
  const { api, navigate } = useApp();
  const path = `${modelPath(referenceTo(model))}/versions?limit=${PAGE}`;
  const { data, error, reload } = useLoaded(`${path} ${model.updated_at} ${model.versions} ${JSON.stringify(model.moving)}`, signal => api.get<VersionList>(path, signal));
  const [choice, setChoice] = useState<ReadonlyMap<string, boolean>>(new Map());
  const [chosen, setChosen] = useState<readonly number[]>([]);
  const choose = useCallback((version: number, on: boolean): void => {
    setChosen(old => (on ? [...old, version] : old.filter(one => one !== version)));
  }, []);
  const rows = data?.items ?? NONE;
  const columns = useMemo(() => columnsOf(rows, chosen, choose), [rows, chosen, choose]);
  const isShown = (column: VersionColumn): boolean => choice.get(column.key) ?? column.usual;
  const shown = columns.filter(isShown);
  if (error && !data) return <ErrorBanner error={error} what="Versions" onRetry={reload} />;
  if (!data) return <Loading what="Loading the versions" />;
  if (!data.items.length) return <NoVersions model={model} />;
  const sorted = [...chosen].sort((a, b) => a - b);
  return (
    <div className="det-versions">
      <div className="det-controls">
        <ActionButton
          label={chosen.length ? `Compare (${chosen.length})` : 'Compare'} onRun={() => navigate({ kind: 'compare', model: referenceTo(model), versions: sorted.map(String) })}
          why={chosen.length < 2 ? 'Choose two versions or more.' : chosen.length > MOST_COMPARED ? `At most ${MOST_COMPARED} fit side by side.` : null}
        />
        <ActionButton label="Move a label here …" why={why ?? (chosen.length === 1 ? null : 'Choose one version.')} onRun={() => onMove(chosen[0]!)} />
        <ColumnPicker
          columns={columns.filter(column => column.key !== 'choose')} always="version" isShown={isShown}
          onChange={(key, on) => setChoice(new Map(choice).set(key, on))} onReset={() => setChoice(new Map())}
        />
        <span className="det-soft det-num" role="status">
          {plural(data.items.length, 'version')}{data.after !== null && `, the newest of ${model.versions}`}
        </span>
      </div>
      <Table
        label={`Versions of ${nameText(model.name, 80)}`} rows={rows} columns={shown} rowKey={keyOf} rowHeight={30} maxHeight="var(--det-table-height)"
        onOpen={row => navigate({ kind: 'version', model: modelOf(row), version: row.version })} initialSort={NEWEST}
      />
    </div>
  );
}

const NONE: readonly VersionView[] = [];
const NEWEST = { key: 'version', descending: true };
const keyOf = (row: VersionView): string => String(row.version);

function columnsOf(
  rows: readonly VersionView[], chosen: readonly number[], choose: (version: number, on: boolean) => void
): VersionColumn[] {
  const metrics = metricNames(rows).map((name, i): VersionColumn => ({
    key: `metric ${name}`, title: nameText(name, 40), about: nameText(name, 200), width: 110, align: 'right', usual: i < USUAL, descending: direction(name, rows) === 'more',
    value: row => toNumber(row.lineage.metrics[name]), render: row => formatNumber(row.lineage.metrics[name])
  }));
  return [
    {
      key: 'choose', title: '✓', about: 'Chosen, to be compared', width: 34, fixed: true, usual: true, value: () => null,
      render: row => (
        <input
          type="checkbox" aria-label={`Choose version ${row.version}`} checked={chosen.includes(row.version)} onChange={event => choose(row.version, event.target.checked)}
        />
      )
    },
    { key: 'version', title: 'Version', width: 84, descending: true, usual: true, value: row => row.version, render: row => <VersionLink row={row} /> },
    { key: 'labels', title: 'Labels', width: labelsWidth(rows), grow: 1, usual: true, value: row => row.labels.join(' '), render: row => <Labels labels={row.labels} /> },
    { key: 'semver', title: 'SemVer', about: 'Semantic version', width: 90, usual: rows.some(row => row.semver), value: row => row.semver, render: row => nameText(row.semver ?? '–', 40) },
    { key: 'name', title: 'Name', width: 130, grow: 1, usual: rows.some(row => row.name), value: row => row.name, render: row => nameText(row.name, 80) || '–' },
    ...metrics,
    { key: 'step', title: 'Step', width: 80, align: 'right', usual: true, value: row => row.lineage.steps_completed },
    { key: 'size', title: 'Size', width: 90, align: 'right', descending: true, usual: true, value: row => row.size, render: row => formatBytes(row.size) },
    { key: 'format', title: 'Format', width: 100, usual: false, value: row => row.format },
    { key: 'experiment', title: 'Experiment', width: 100, align: 'right', usual: false, value: row => row.lineage.experiment_id },
    { key: 'trial', title: 'Trial', width: 80, align: 'right', usual: false, value: row => row.lineage.trial_id },
    { key: 'created', title: 'Created', width: 100, descending: true, usual: true, value: row => row.created_at, render: row => formatAgo(row.created_at) },
    { key: 'owner', title: 'By', width: 110, grow: 0.5, usual: true, value: row => row.owner, render: row => nameText(row.owner, 60) || '–' },
    { key: 'comment', title: 'Comment', width: 160, grow: 1, usual: false, value: row => row.comment, render: row => nameText(row.comment, 120) || '–' }
  ];
}

/** Pixels that the labels of a version need, within bounds: what does not fit is cut. */
function labelsWidth(rows: readonly VersionView[]): number {
  const needed = rows.map(({ labels }) => labels.reduce((sum, label) => sum + 7 * label.length + 24, 16));
  return Math.min(Math.max(150, ...needed), 320);
}

function VersionLink({ row }: { row: VersionView }): ReactElement {
  const gone = row.checkpoint_state !== 'COMPLETED';
  return (
    <>
      <Go to={{ kind: 'version', model: modelOf(row), version: row.version }} title={versionName(row)}>{row.version}</Go>
      {gone && <span className="det-warn" title="Files of its checkpoint were deleted"> files gone</span>}
    </>
  );
}

function Labels({ labels }: { labels: readonly string[] }): ReactElement | string {
  if (!labels.length) return '–';
  return <span className="det-chips-line" title={labels.map(label => nameText(label, 64)).join(', ')}>{labels.map(label => <span key={label} className="det-chip" data-moving>{nameText(label, 64)}</span>)}</span>;
}

function NoVersions({ model }: { model: ModelView }): ReactElement {
  return (
    <EmptyState title="No versions yet.">
      <p>Register a checkpoint from an experiment's <b>Checkpoints</b> tab, or: <code>det model register-version {nameText(model.name, 80)} CHECKPOINT_UUID</code></p>
    </EmptyState>
  );
}

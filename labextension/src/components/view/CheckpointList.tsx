/** Checkpoints, best first: their numbers, their uuid to copy, and all files or each to be downloaded. */

import { ReactElement, ReactNode, useMemo, useState } from 'react';

import { useApp } from '../../state/context';
import type { CheckpointView } from '../../state/wire';
import { EmptyState, formatBytes, formatNumber, formatTime, plural, toNumber } from '../common';
import { CopyButton } from '../common/CopyButton';
import { nameText } from '../common/text';

/** Shown at once; more on request. */
const PAGE = 50;

/** Best validation first; those without one by steps, deleted ones last. */
export function bestFirst(items: readonly CheckpointView[], smallerIsBetter: boolean): CheckpointView[] {
  const sign = smallerIsBetter ? 1 : -1;
  const rank = (item: CheckpointView): [number, number, number] => {
    const value = toNumber(item.validation);
    const known = value !== null && Number.isFinite(value); // an infinity is no best value, in either direction
    return [item.state === 'DELETED' ? 1 : 0, known ? 0 : 1, known ? sign * value : -item.steps_completed];
  };
  const keyed = items.map(item => ({ item, by: rank(item) }));
  keyed.sort((a, b) => a.by[0] - b.by[0] || a.by[1] - b.by[1] || a.by[2] - b.by[2] || b.item.created_at - a.item.created_at);
  return keyed.map(k => k.item);
}

/** Whether the files of a deleted one can still be restored. */
export function inTrash(item: CheckpointView): boolean {
  return item.state === 'DELETED' && item.trash_until !== null && item.trash_until !== undefined && item.trash_until * 1000 > Date.now();
}

export function CheckpointList({ items, over, metric, smallerIsBetter, ofTrials = false, tools, more, note }: {
  items: readonly CheckpointView[];
  /** Whether none will follow. */
  over: boolean;
  metric: string;
  smallerIsBetter: boolean;
  /** They are of several trials: name the trial of each. */
  ofTrials?: boolean;
  /** Buttons above the list. */
  tools?: ReactNode;
  /** More buttons of one. */
  more?: (item: CheckpointView) => ReactNode;
  /** A line below one. */
  note?: (item: CheckpointView) => ReactNode;
}): ReactElement {
  const [most, setMost] = useState(PAGE);
  const ordered = useMemo(() => bestFirst(items, smallerIsBetter), [items, smallerIsBetter]);
  if (!items.length && over) return <EmptyState title="No checkpoints were saved." />;
  if (!items.length) {
    return <EmptyState title="No checkpoints yet.">A trial saves one at its end, when it is paused, and whenever its code or config asks for it.</EmptyState>;
  }
  return (
    <div className="det-checkpoints">
      <div className="det-checkpoints-head">
        <p className="det-soft">{plural(items.length, 'checkpoint')}, best {nameText(metric, 60) || 'validation'} first.</p>
        {tools}
      </div>
      <ul className="det-checkpoint-list">
        {ordered.slice(0, most).map((item, i) => (
          <Checkpoint
            key={item.uuid} item={item} metric={metric} best={i === 0 && item.validation !== null} ofTrials={ofTrials} more={more} note={note}
          />
        ))}
      </ul>
      {ordered.length > most && (
        <button type="button" className="det-button" onClick={() => setMost(most + 4 * PAGE)}>Show more ({ordered.length - most})</button>
      )}
    </div>
  );
}

function Checkpoint({ item, metric, best, ofTrials, more, note }: {
  item: CheckpointView; metric: string; best: boolean; ofTrials: boolean;
  more?: (item: CheckpointView) => ReactNode; note?: (item: CheckpointView) => ReactNode;
}): ReactElement {
  const { api, navigate } = useApp();
  const deleted = item.state === 'DELETED';
  const files = Object.entries(item.files);
  const name = nameText(metric, 40) || 'validation';
  return (
    <li className={`det-checkpoint${best ? ' det-best-row' : ''}`}>
      <div className="det-checkpoint-line">
        <span className="det-num det-checkpoint-value">{item.validation === null ? `no ${name}` : `${name} ${formatNumber(item.validation)}`}{best ? ' · best' : ''}</span>
        {ofTrials && (
          <button type="button" className="det-link" onClick={() => navigate({ kind: 'trial', id: item.trial_id, experiment: item.experiment_id, tab: 'checkpoints' })}>
            trial {item.trial_id}
          </button>
        )}
        <span className="det-num">step {item.steps_completed}</span>
        <span className="det-num">{formatBytes(item.size)}</span>
        <span className="det-soft det-num">{formatTime(item.created_at)}</span>
        {deleted && !inTrash(item) && <span className="det-soft">files deleted</span>}
        {item.state === 'PARTIALLY_DELETED' && <span className="det-soft">some files deleted</span>}
        <span className="det-mono det-checkpoint-uuid det-ellipsis" title={item.uuid}>{nameText(item.uuid, 60)}</span>
        <span className="det-checkpoint-acts">
          <CopyButton text={item.uuid} label="Copy uuid" what="the checkpoint's uuid" />
          {!deleted && files.length > 0 && (
            <a
              className="det-button" download={`checkpoint-${item.uuid}.tar`} href={api.href(`checkpoints/${encodeURIComponent(item.uuid)}/archive`)}
              title={`All files as one .tar, ${formatBytes(item.size)}`} aria-label={`Download all files of the checkpoint at step ${item.steps_completed}`}
            >
              Download all
            </a>
          )}
          {more?.(item)}
        </span>
      </div>
      {note?.(item)}
      {!deleted && files.length > 0 && <Files uuid={item.uuid} files={files} />}
      {!deleted && item.shortened.includes('files') && <p className="det-soft">It has more files than this list shows: download all.</p>}
    </li>
  );
}

function Files({ uuid, files }: { uuid: string; files: [string, { size: number; digest: string }][] }): ReactElement {
  const { api } = useApp();
  return (
    <details className="det-files">
      <summary>{plural(files.length, 'file')}</summary>
      <ul>
        {files.map(([path, file]) => (
          <li key={path}>
            <a
              className="det-mono" download={path.split('/').pop()}
              href={api.href(`checkpoints/${encodeURIComponent(uuid)}/files/${encodeURIComponent(file.digest)}`)}
            >
              {nameText(path)}
            </a>
            <span className="det-soft det-num"> {formatBytes(file.size)}</span>
          </li>
        ))}
      </ul>
    </details>
  );
}

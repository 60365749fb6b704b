/** Who stores how many bytes: by user, group, project or experiment, with the quotas that apply. */

import { ReactElement, useState } from 'react';

import type { StorageUsage, StorageUse } from '../../state/wire';
import { Go, Sheet, View } from '../admin/parts';
import { EmptyState, ErrorBanner, formatBytes, Loading, Notice, plural, useLoaded } from '../common';
import { useApp } from '../../state/context';
import { nameText } from '../common/text';
import { heldOf, limitWords, nearLimit } from './use';

type By = StorageUsage['by'];

const NAMES: readonly [By, string, string][] = [['user', 'User', 'users'], ['group', 'Group', 'groups'], ['project', 'Project', 'projects'], ['experiment', 'Experiment', 'experiments']];

export function StoragePage(): ReactElement {
  const { api } = useApp();
  const [by, setBy] = useState<By>('user');
  const path = `storage/usage?by=${by}`;
  const { data, error, loading, reload } = useLoaded(path, signal => api.get<StorageUsage>(path, signal));
  const total = data && `${formatBytes(heldOf(data.total))} in ${plural(data.total.checkpoints, 'checkpoint')}, code, outputs and the trash`;
  return (
    <View title="Storage" summary={total ?? undefined}>
      {data?.warnings.map((warning, i) => <Notice key={i} tone="paused">{nameText(warning, 400)}</Notice>)}
      <div className="det-adm-filters" role="group" aria-label="Sum by">
        {NAMES.map(([key, name]) => <button key={key} type="button" className="det-button" aria-pressed={by === key} onClick={() => setBy(key)}>{name}</button>)}
        <Legend />
      </div>
      {error && <ErrorBanner error={error} onRetry={reload} what="Storage" />}
      {!data && !error && <Loading what="Adding up what is stored" />}
      {data && !data.items.length && (
        <EmptyState title={by === 'group' ? 'You are in no group that stores anything.' : 'Nothing is stored yet.'}>
          Checkpoints, code and outputs of experiments count here. What old checkpoints may go: <b>What would be deleted?</b> in an experiment's Checkpoints tab.
        </EmptyState>
      )}
      {data && data.items.length > 0 && <div aria-busy={loading || undefined}><Uses usage={data} /></div>}
    </View>
  );
}

function Legend(): ReactElement {
  return (
    <ul className="det-use-legend" aria-label="Parts of the bars">
      <li><i data-use="checkpoints" /> checkpoints</li>
      <li><i data-use="other" /> code and outputs</li>
      <li><i data-use="trash" /> trash</li>
    </ul>
  );
}

function Uses({ usage }: { usage: StorageUsage }): ReactElement {
  const [, name] = NAMES.find(([key]) => key === usage.by)!;
  const limits = usage.items.some(one => one.limit !== null);
  const widest = Math.max(1, ...usage.items.map(one => heldOf(one)));
  const head = (
    <>
      <th>{name}</th>
      <th className="det-right">Held</th>
      <th className="det-use-column"><span className="det-hidden">Share</span></th>
      {limits && <th>Quota</th>}
      <th className="det-right">Checkpoints</th>
      <th className="det-right" title="Deleted, and can still be restored">Trash</th>
      <th className="det-right" title="Removed so far, and seen to be gone">Freed</th>
    </>
  );
  return (
    <>
      <Sheet label={`Storage by ${name.toLowerCase()}`} head={head}>
        {usage.items.map((one, i) => (
          <tr key={`${one.experiment_id ?? ''} ${one.name} ${i}`}>
            <td>
              <span className="det-adm-name">
                {one.experiment_id !== null
                  ? <Go to={{ kind: 'experiment', id: one.experiment_id }}>{one.experiment_id} · <bdi>{nameText(one.name, 120)}</bdi></Go>
                  : <bdi>{nameText(one.name, 200) || '–'}</bdi>}
              </span>
              {one.owner && <span className="det-soft"> {nameText(one.owner, 60)}</span>}
            </td>
            <td className="det-right det-num">{formatBytes(heldOf(one))}</td>
            <td className="det-use-column"><Bar use={one} widest={widest} /></td>
            {limits && <td className={nearLimit(one) ? 'det-warn det-use-limit' : 'det-use-limit'}>{limitWords(one)}</td>}
            <td className="det-right det-num">{one.checkpoints}</td>
            <td className="det-right det-num">{one.trash_bytes ? formatBytes(one.trash_bytes) : '–'}</td>
            <td className="det-right det-num">{one.freed_bytes ? formatBytes(one.freed_bytes) : '–'}</td>
          </tr>
        ))}
      </Sheet>
      {usage.more > 0 && <p className="det-soft">{usage.more} more with less are not listed.</p>}
    </>
  );
}

/** The parts of what one holds, all bars to one scale; a line where the quota is. */
function Bar({ use, widest }: { use: StorageUse; widest: number }): ReactElement {
  const share = (bytes: number): string => `${(100 * bytes) / widest}%`;
  const words = `${formatBytes(use.checkpoint_bytes)} of checkpoints, ${formatBytes(use.other_bytes)} of code and outputs, ${formatBytes(use.trash_bytes)} in the trash`;
  return (
    <div className="det-use-bar" role="img" aria-label={words} title={words}>
      <span data-use="checkpoints" style={{ width: share(use.checkpoint_bytes) }} />
      <span data-use="other" style={{ width: share(use.other_bytes) }} />
      <span data-use="trash" style={{ width: share(use.trash_bytes) }} />
      {use.limit !== null && use.limit <= widest && <i className="det-use-mark" style={{ left: `min(${share(use.limit)}, calc(100% - 2px))` }} />}
    </div>
  );
}

/** What a retention policy would delete of an experiment's checkpoints, before it is applied. */

import { ReactElement, useState } from 'react';

import { useApp } from '../../state/context';
import { isOver } from '../../state/states';
import type { ExperimentView, GcItem, GcPolicy, GcPreview } from '../../state/wire';
import { Dialog } from '../admin/Dialog';
import { Sheet } from '../admin/parts';
import { ActionButton, EmptyState, ErrorBanner, formatBytes, formatNumber, formatTime, Loading, Notice, plural, useLoaded } from '../common';
import { useAct } from '../common/loading/load';
import { nameText } from '../common/text';
import { useSettled } from '../common/loading/useThrottled';
import { pinText } from './pins';

const NUMBERS: readonly [keyof GcPolicy, string, string][] = [
  ['save_experiment_best', 'Best of the experiment', 'This many of the best of all trials stay.'],
  ['save_trial_best', 'Best of each trial', 'This many of the best of each trial stay.'],
  ['save_trial_latest', 'Latest of each trial', 'This many of the newest of each trial stay.']
];
/** Checkpoints that are listed. */
const MOST = 500;

export function Retention({ experiment: e, why, onClose, onApplied }: {
  experiment: ExperimentView; /** Why nothing may be changed, or null. */ why: string | null; onClose: () => void; onApplied: () => void;
}): ReactElement {
  const { api } = useApp();
  const own = useLoaded(`${e.id}`, signal => api.get<GcPreview>(`experiments/${e.id}/gc`, signal));
  return (
    <Dialog title="What would be deleted?" onClose={onClose}>
      {own.error && <ErrorBanner error={own.error} what="Preview" onRetry={own.reload} />}
      {!own.data && !own.error && <Loading what="Looking at the checkpoints" />}
      {own.data && <Policy experiment={e} first={own.data} why={why} onClose={onClose} onApplied={onApplied} />}
    </Dialog>
  );
}

function Policy({ experiment: e, first, why, onClose, onApplied }: {
  experiment: ExperimentView; first: GcPreview; why: string | null; onClose: () => void; onApplied: () => void;
}): ReactElement {
  const { api, confirm, notify } = useApp();
  const act = useAct();
  const [texts, setTexts] = useState(() => Object.fromEntries(NUMBERS.map(([key]) => [key, String(first.policy[key])])) as Record<keyof GcPolicy, string>);
  const wrong = NUMBERS.find(([key]) => !/^\d{1,9}$/.test(texts[key].trim()));
  const query = useSettled(NUMBERS.map(([key]) => `${key}=${texts[key].trim()}`).join('&'));
  const asked = NUMBERS.every(([key]) => new RegExp(`(^|&)${key}=\\d{1,9}(&|$)`).test(query));
  const found = useLoaded(asked ? query : null, signal => api.get<GcPreview>(`experiments/${e.id}/gc?${query}`, signal));
  const preview = found.data ?? first;
  const fresh = !found.loading && asked && found.data !== null && NUMBERS.every(([key]) => preview.policy[key] === Number(texts[key]));
  const changed = NUMBERS.some(([key]) => preview.policy[key] !== first.policy[key]);
  const over = isOver(e.state);
  const apply = async (): Promise<void> => {
    const until = preview.trash_until === null ? 'They cannot be restored.' : `They can be restored until ${formatTime(preview.trash_until)}.`;
    const question = over
      ? { title: `Delete ${plural(preview.going, 'checkpoint')}?`, body: `${formatBytes(preview.freed)} will be freed. ${until}`, yes: 'Delete', danger: true }
      : { title: 'Change the policy?', body: 'The experiment has not ended: the new policy is applied when it does.', yes: 'Change' };
    if (!(await confirm(question))) return;
    let done: GcPreview | null = null;
    if (!(await act(async () => { done = await api.post<GcPreview>(`experiments/${e.id}/gc`, { policy: preview.policy }); }))) return;
    notify((done as GcPreview | null)?.applied ? `${plural(preview.going, 'checkpoint')} of experiment ${e.id} went to the trash.` : `The policy of experiment ${e.id} was changed.`, 'good');
    onApplied();
    onClose();
  };
  const cannot = why ?? (wrong ? 'Whole numbers of 0 or more are needed.' : !fresh ? 'The preview is being made.'
    : over && !preview.going ? 'Nothing would be deleted.' : !over && !changed ? 'It is the policy already.' : null);
  return (
    <div className="det-retention">
      <div className="det-retention-numbers">
        {NUMBERS.map(([key, label, about]) => (
          <label key={key} title={about}>
            {label}
            <input
              className="det-input det-num" inputMode="numeric" name={key} value={texts[key]} aria-invalid={!/^\d{1,9}$/.test(texts[key].trim()) || undefined}
              onChange={event => setTexts({ ...texts, [key]: event.target.value })}
            />
          </label>
        ))}
      </div>
      {!over && <Notice>The experiment has not ended: a new policy is applied when it does, and the numbers below may change until then.</Notice>}
      {found.error && <ErrorBanner error={found.error} what="Preview" onRetry={found.reload} />}
      <p role="status" aria-busy={!fresh || undefined}>
        <b>{preview.going ? `${plural(preview.going, 'checkpoint')} would go` : 'Nothing would go'}</b>
        {preview.going > 0 && <>, {formatBytes(preview.freed)} freed</>}; {preview.staying} would stay ({formatBytes(preview.kept)}).
      </p>
      {preview.items.length ? <Items preview={preview} /> : <EmptyState title="There are no checkpoints." />}
      <div className="det-dialog-buttons det-edits-buttons">
        <button type="button" className="det-button" onClick={onClose}>Close</button>
        <ActionButton label={over ? 'Apply …' : 'Change the policy …'} primary danger={over} why={cannot} onRun={apply} />
      </div>
    </div>
  );
}

function Items({ preview }: { preview: GcPreview }): ReactElement {
  const items = preview.items.slice(0, MOST);
  const more = preview.items.length + preview.left_out - items.length;
  const head = <><th>Trial</th><th className="det-right">Step</th><th className="det-right">Metric</th><th className="det-right">Size</th><th>What</th><th>Why</th></>;
  return (
    <div className="det-retention-items">
      <Sheet label="Checkpoints" head={head}>
        {items.map(item => (
          <tr key={item.uuid} data-goes={!item.keep || undefined}>
            <td className="det-num" title={nameText(item.uuid, 60)}>{item.trial_id}</td>
            <td className="det-right det-num">{item.steps_completed}</td>
            <td className="det-right det-num">{formatNumber(item.metric)}</td>
            <td className="det-right det-num">{formatBytes(item.size)}</td>
            <td>{item.keep ? 'stays' : <b className="det-goes">goes</b>}</td>
            <td className="det-adm-wide">{reasonsOf(item)}</td>
          </tr>
        ))}
      </Sheet>
      {more > 0 && <p className="det-soft">and {more} more</p>}
    </div>
  );
}

function reasonsOf(item: GcItem): string {
  return nameText([...item.why, ...item.pins.map(pinText)].join('; '), 400) || '–';
}

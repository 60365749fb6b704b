/** Let an experiment that has ended go on: the same trials, from their checkpoints. */

import { ReactElement, useId, useState } from 'react';

import { ApiError, asApiError } from '../../state/api';
import { useApp } from '../../state/context';
import { useSubmitKey } from '../../state/submitkey';
import type { ContinueExperiment, ExperimentView } from '../../state/wire';
import { Dialog } from '../admin/Dialog';
import { ErrorBanner } from '../common';
import { nameText } from '../common/text';

/** How long its trials train: the key that says so, its unit where it has one of its own, and the number. */
export interface Length {
  key: 'max_length' | 'max_time';
  unit: string | null;
  value: number;
}

export function lengthOf(e: ExperimentView): Length | null {
  const searcher = (e.config?.searcher ?? {}) as Record<string, unknown>;
  for (const key of ['max_length', 'max_time'] as const) {
    const given = searcher[key];
    if (typeof given === 'number') return { key, unit: null, value: given };
    const [unit, value] = Object.entries((given ?? {}) as Record<string, unknown>)[0] ?? [];
    if (unit !== undefined && typeof value === 'number') return { key, unit, value };
  }
  return null;
}

/** The keys that let it train to a new length. */
export function changed(length: Length, value: number): Record<string, unknown> {
  return { searcher: { [length.key]: length.unit === null ? value : { [length.unit]: value } } };
}

export function Continue({ experiment: e, onClose, onContinued }: {
  experiment: ExperimentView; onClose: () => void; onContinued: (view: ExperimentView) => void;
}): ReactElement {
  const { api, notify } = useApp();
  const id = useId();
  const key = useSubmitKey();
  const length = lengthOf(e);
  const [value, setValue] = useState('');
  const [restarts, setRestarts] = useState('');
  const [earlier, setEarlier] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const [busy, setBusy] = useState(false);
  const unit = length?.unit ?? e.time_metric;
  const wanted = Number(value);
  const short = value !== '' && length !== null && !(wanted > length.value) ? `More than ${length.value}, to which it has trained.` : null;
  const go = async (): Promise<void> => {
    if (busy || short) return;
    setBusy(true);
    setError(null);
    const config = { ...(length && value !== '' ? changed(length, wanted) : {}), ...(restarts !== '' ? { max_restarts: Number(restarts) } : {}) };
    // A request that is changed after a refusal is another one.
    const asked: ContinueExperiment = { config, from_earlier: earlier, idempotency_key: `${key} ${value} ${restarts} ${earlier}` };
    try {
      const view = await api.post<ExperimentView>(`experiments/${e.id}/continue`, asked);
      notify(`Experiment ${e.id} goes on.`, 'good');
      onContinued(view);
    } catch (caught) {
      setError(asApiError(caught));
      setBusy(false);
    }
  };
  const gone = error?.status === 409 && /checkpoint/.test(error.message);
  return (
    <Dialog title={`Continue experiment ${e.id}`} onClose={onClose}>
      <form className="det-edits" aria-label={`Continue experiment ${e.id}`} onSubmit={event => { event.preventDefault(); void go(); }}>
        <p>The same trials go on from their newest checkpoints. What failed, was canceled or ran out of time goes on in any case.</p>
        {length && (
          <div className="det-edits-one">
            <label htmlFor={`${id}-l`}>Train to {unit ? `(${nameText(unit, 60)})` : ''}</label>
            <input
              id={`${id}-l`} className="det-input" type="number" min={length.value} step="any" placeholder={String(length.value)} value={value}
              aria-describedby={`${id}-s`} aria-invalid={short ? true : undefined} onChange={event => { setValue(event.target.value); setError(null); }}
            />
            <small id={`${id}-s`} className="det-soft">{short ?? `It trained to ${length.value}. With a greater length, trials that have trained to their end go on as well.`}</small>
          </div>
        )}
        <div className="det-edits-one">
          <label htmlFor={`${id}-r`}>Restarts of a trial after failures</label>
          <input id={`${id}-r`} className="det-input" type="number" min={0} step={1} placeholder={String(e.config?.max_restarts ?? '')} value={restarts} onChange={event => { setRestarts(event.target.value); setError(null); }} />
        </div>
        {error && <ErrorBanner error={error} />}
        {(gone || earlier) && (
          <label className="det-adm-check"><input type="checkbox" checked={earlier} onChange={event => setEarlier(event.target.checked)} /> Go on from an earlier checkpoint where the newest is gone</label>
        )}
        <div className="det-dialog-buttons det-edits-buttons">
          <button type="button" className="det-button" onClick={onClose}>Cancel</button>
          <button type="submit" className="det-button det-primary" aria-disabled={busy || short ? true : undefined} aria-busy={busy || undefined}>Continue</button>
        </div>
      </form>
    </Dialog>
  );
}

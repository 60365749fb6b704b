/** What can be done with the selected rows. */

import { ReactElement, useEffect, useRef, useState } from 'react';

import { useApp, useStore } from '../../state/context';
import { compareLink } from '../compare/link';
import { ActionButton, plural } from '../common';
import { nameText } from '../common/text';
import { Go } from '../admin/parts';
import { readOnly } from '../view/actions';
import { useAct } from '../common/loading/load';
import { ACTIONS, labelAction, runBatch, undoBatch, type BatchAction, type BatchEnd } from './batch';
import { Popover } from './Popover';
import type { RunTable } from './request';

/** As the page that compares takes them. */
export const MOST_COMPARED = 50;

export function BatchBar({ table, ids, onClear, onDone }: {
  table: RunTable; ids: readonly number[]; onClear(): void; onDone(): void;
}): ReactElement | null {
  const { api, confirm, notify } = useApp();
  const act = useAct();
  const me = useStore(s => s.me);
  const [running, setRunning] = useState<{ action: BatchAction; count: number; of: number } | null>(null);
  const [end, setEnd] = useState<{ action: BatchAction; end: BatchEnd } | null>(null);
  const control = useRef<AbortController | null>(null);
  useEffect(() => () => control.current?.abort(), []);
  const noun = table === 'trials' ? 'trial' : 'experiment';
  const why = readOnly(me) ?? (running ? `${running.action.label} is under way.` : null);

  const run = async (action: BatchAction): Promise<void> => {
    const asked = { title: `${action.label} ${plural(ids.length, noun)}?`, body: action.question ?? '', yes: action.label, danger: true };
    if (action.question && !(await confirm(asked))) return;
    control.current = new AbortController();
    setEnd(null);
    setRunning({ action, count: 0, of: ids.length });
    const found = await runBatch(api, table, action, ids, count => setRunning({ action, count, of: ids.length }), control.current.signal);
    setRunning(null);
    setEnd({ action, end: found });
    // What is not listed any more is not selected any more: nobody sees that the next action would reach it.
    if (action.leaves) onClear();
    onDone();
  };
  const undo = async (): Promise<void> => {
    const taken = end!.end.undo;
    setEnd(null);
    if (await act(() => undoBatch(api, taken))) notify('Undone');
    onDone();
  };
  if (!ids.length && !running && !end) return null;
  const compared = ids.slice(0, MOST_COMPARED);
  return (
    <div className="det-run-batch" role="region" aria-label="Selected rows">
      {ids.length > 0 && (
        <>
          <strong className="det-num" role="status">{plural(ids.length, noun)} selected</strong>
          {ids.length >= 2 && ids.length <= MOST_COMPARED
            ? <Go to={compareLink({ [table]: compared })}>Compare</Go>
            : <ActionButton label="Compare" why={ids.length < 2 ? `Select two ${noun}s or more.` : `At most ${MOST_COMPARED} are compared.`} onRun={() => undefined} />}
          {ACTIONS[table].map(action => <ActionButton key={action.key} label={action.label} danger={action.danger} why={why} onRun={() => run(action)} />)}
          {table === 'experiments' && <Popover label="Label …" about="Labels of the selected experiments">{close => <LabelForm why={why} onRun={action => { close(); void run(action); }} />}</Popover>}
          <button type="button" className="det-link" onClick={onClear}>Select none</button>
        </>
      )}
      {running && (
        <span role="status" className="det-num">
          {running.action.label}: {running.count} of {running.of} <button type="button" className="det-link" onClick={() => control.current?.abort()}>Stop</button>
        </span>
      )}
      {end && <Ended noun={noun} action={end.action} end={end.end} onUndo={undo} onClose={() => setEnd(null)} />}
    </div>
  );
}

const SHOWN = 10;

function Ended({ noun, action, end, onUndo, onClose }: { noun: string; action: BatchAction; end: BatchEnd; onUndo(): Promise<void>; onClose(): void }): ReactElement {
  const parts = [`${plural(end.done, noun)} ${action.done}`, end.unchanged ? `${end.unchanged} as before` : '', end.refused.length ? `${end.refused.length} refused` : '', end.left ? `${end.left} not begun` : ''];
  return (
    <div className="det-banner det-run-ended" data-tone={end.refused.length || end.problem ? 'paused' : 'good'} role="status">
      <div>
        {parts.filter(Boolean).join(', ')}. {end.problem && nameText(end.problem, 300)}
        {end.undo.length > 0 && <ActionButton label="Undo" onRun={onUndo} />}
        {end.refused.length > 0 && (
          <ul>
            {end.refused.slice(0, SHOWN).map(one => <li key={one.id}>{one.id}: {nameText(one.message, 300)}</li>)}
            {end.refused.length > SHOWN && <li>and {end.refused.length - SHOWN} more</li>}
          </ul>
        )}
      </div>
      <button type="button" className="det-button det-compact" aria-label="Close" onClick={onClose}>✕</button>
    </div>
  );
}

function LabelForm({ why, onRun }: { why: string | null; onRun(action: BatchAction): void }): ReactElement {
  const [label, setLabel] = useState('');
  const none = why ?? (label.trim() ? null : 'Enter a label.');
  return (
    <form className="det-run-save" onSubmit={event => { event.preventDefault(); if (!none) onRun(labelAction(label.trim(), true)); }}>
      <input className="det-input" aria-label="Label" placeholder="Label" maxLength={200} value={label} onChange={event => setLabel(event.target.value)} />
      <ActionButton label="Add" primary why={none} onRun={() => onRun(labelAction(label.trim(), true))} />
      <ActionButton label="Remove" why={none} onRun={() => onRun(labelAction(label.trim(), false))} />
    </form>
  );
}

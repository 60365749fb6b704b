/** Give a label to a version. If somebody moved it meanwhile, nothing changes, and the form says who and why. */

import { ReactElement, useMemo, useState } from 'react';

import { asApiError } from '../../../state/api';
import { useApp } from '../../../state/context';
import type { LabelMove, LabelMoves, ModelView, MoveLabel as Move } from '../../../state/wire';
import { Dialog } from '../../admin/Dialog';
import { formatAgo, Notice } from '../../common';
import { nameText } from '../../common/text';
import { FieldsForm, type FormField } from '../../admin/fields';
import { labelProblem, movingOf, referenceTo } from '../model';
import { labelPath, modelPath } from '../paths';

const CONFLICT = 409;
const USUAL = ['production', 'staging'];

/** `label` and `version` are what the form begins with. */
export function MoveLabel({ model, label = '', version, onClose, onMoved }: {
  model: ModelView; label?: string; version?: number; onClose: () => void; onMoved: () => void;
}): ReactElement {
  const { api, notify } = useApp();
  const [known, setKnown] = useState(model);
  const [moved, setMoved] = useState<{ label: string; move: LabelMove | null } | null>(null);
  const fields = useMemo<FormField[]>(() => [
    { key: 'label', label: 'Label', most: 64, required: true, check: text => labelProblem(text.trim()), offers: [...new Set([...Object.keys(known.moving), ...USUAL])] },
    { key: 'version', label: 'Version', required: true, most: 100, about: 'A number, a semantic version or another label.', check: text => (text.trim() ? null : 'A version is needed.') },
    { key: 'reason', label: 'Reason', rows: 2, most: 2000, about: 'Kept in the history of the label, and sent with its event.' }
  ], [known]);
  const move = async (values: Record<string, string>): Promise<void> => {
    const name = values.label!.trim();
    const asked = values.version!.trim();
    const body: Move = { version: /^\d+$/.test(asked) ? Number(asked) : asked, reason: values.reason ?? '', expected: known.moving[name] ?? 0 };
    try {
      await api.post(labelPath(referenceTo(model), name), body);
    } catch (error) {
      const problem = asApiError(error);
      if (problem.status !== CONFLICT) throw problem;
      const [now, history] = await Promise.all([
        api.get<ModelView>(modelPath(referenceTo(model))), api.get<LabelMoves>(`${modelPath(referenceTo(model))}/labels`)
      ]);
      if ((now.moving[name] ?? 0) === (known.moving[name] ?? 0)) throw problem; // a conflict of another kind
      setKnown(now);
      setMoved({ label: name, move: history.items.find(one => one.label === name) ?? null });
      return;
    }
    notify(`Moved ${nameText(name, 64)} of ${nameText(model.name, 80)} to version ${nameText(asked, 64)}.`, 'good');
    onMoved();
  };
  return (
    <Dialog title={`Move a label of ${nameText(model.name, 80)}`} onClose={onClose}>
      <FieldsForm
        label="Move a label" fields={fields} start={{ label, version: version === undefined ? '' : String(version), reason: '' }} yes={moved ? 'Move anyway' : 'Move'} dialog
        onSubmit={move} onCancel={onClose}
      >
        {values => {
          const name = (values.label ?? '').trim();
          const now = known.moving[name];
          return (
            <>
              {moved && moved.label === name && <Notice tone="paused"><Meanwhile moved={moved} now={now ?? null} /></Notice>}
              {!moved && name && (
                <p className="det-soft det-edits-now">{now === undefined ? `No version has “${nameText(name, 64)}” now.` : `“${nameText(name, 64)}” is at version ${now} now.`}</p>
              )}
              {!name && movingOf(known).length > 0 && (
                <p className="det-soft det-edits-now">Now: {movingOf(known).map(([one, at]) => `${nameText(one, 64)} → ${at}`).join(', ')}</p>
              )}
            </>
          );
        }}
      </FieldsForm>
    </Dialog>
  );
}

function Meanwhile({ moved, now }: { moved: { label: string; move: LabelMove | null }; now: number | null }): ReactElement {
  const { label, move } = moved;
  return (
    <span>
      Somebody moved it: “{nameText(label, 64)}” is {now === null ? 'at no version' : `at version ${now}`} now
      {move && ` (${nameText(move.by, 60)}, ${formatAgo(move.at)}${move.reason ? `: ${nameText(move.reason, 300)}` : ''})`}.
      Nothing was changed.
    </span>
  );
}

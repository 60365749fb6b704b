/** Where labels stand, and who moved them, when and why. */

import type { ReactElement } from 'react';

import { useApp } from '../../state/context';
import type { LabelMoves, ModelView } from '../../state/wire';
import { Ago, Go, Sheet } from '../admin/parts';
import { ActionButton, EmptyState, ErrorBanner, Loading, useLoaded } from '../common';
import { useAct } from '../common/loading/load';
import { nameText } from '../common/text';
import { movingOf, referenceTo } from './model';
import { labelPath, modelPath } from './paths';

export function LabelHistory({ model, why, onMove, onChanged }: {
  model: ModelView; why: string | null; onMove: (label: string, version: number) => void; onChanged: () => void;
}): ReactElement {
  const { api } = useApp();
  const path = `${modelPath(referenceTo(model))}/labels`;
  // Again with every move, which changes the model.
  const { data, error, reload } = useLoaded(`${path} ${model.updated_at} ${JSON.stringify(model.moving)}`, signal => api.get<LabelMoves>(path, signal));
  if (error && !data) return <ErrorBanner error={error} what="Label history" onRetry={reload} />;
  if (!data) return <Loading what="Loading the history" />;
  if (!data.items.length) {
    return <EmptyState title="No label was moved yet.">Give one, such as production, to the version that should be loaded under it: Move a label …</EmptyState>;
  }
  return (
    <div className="det-labels">
      <ul className="det-labels-now" aria-label="Labels now">
        {movingOf(model).map(([label, version]) => <Now key={label} model={model} label={label} version={version} why={why} onMove={onMove} onChanged={onChanged} />)}
      </ul>
      <History model={model} moves={data} />
    </div>
  );
}

function Now({ model, label, version, why, onMove, onChanged }: {
  model: ModelView; label: string; version: number; why: string | null; onMove: (label: string, version: number) => void; onChanged: () => void;
}): ReactElement {
  const { api, confirm } = useApp();
  const act = useAct();
  const remove = async (): Promise<void> => {
    const question = { title: `Remove the label ${nameText(label, 64)}?`, body: `Whoever loads ${nameText(model.name, 80)}@${nameText(label, 64)} will find nothing.`, yes: 'Remove', danger: true };
    if (!(await confirm(question))) return;
    if (await act(() => api.post(`${labelPath(referenceTo(model), label)}/remove`, { expected: version }))) onChanged();
  };
  return (
    <li>
      <span className="det-chip" data-moving>{nameText(label, 64)}</span>
      <Go to={{ kind: 'version', model: referenceTo(model), version }}>version {version}</Go>
      <ActionButton label={`Move ${nameText(label, 64)}`} why={why} onRun={() => onMove(label, version)}>Move …<span className="det-hidden"> {nameText(label, 64)}</span></ActionButton>
      <ActionButton label={`Remove ${nameText(label, 64)}`} why={why} onRun={remove}>Remove …<span className="det-hidden"> {nameText(label, 64)}</span></ActionButton>
    </li>
  );
}

function History({ model, moves }: { model: ModelView; moves: LabelMoves }): ReactElement {
  const head = <><th>Label</th><th>Moved</th><th>By</th><th>When</th><th>Why</th></>;
  const at = (version: number | null): ReactElement => (version === null ? <span className="det-soft">none</span> : <Go to={{ kind: 'version', model: referenceTo(model), version }}>{version}</Go>);
  return (
    <Sheet label="Label history" head={head}>
      {moves.items.map(move => (
        <tr key={move.id}>
          <td>{nameText(move.label, 64)}</td>
          <td className="det-num">{at(move.from_version)} <span aria-label="to">→</span> {at(move.to_version)}</td>
          <td><span className="det-adm-name">{nameText(move.by, 60)}</span></td>
          <td><Ago time={move.at} /></td>
          <td className="det-adm-wide">{nameText(move.reason, 500) || '–'}</td>
        </tr>
      ))}
    </Sheet>
  );
}

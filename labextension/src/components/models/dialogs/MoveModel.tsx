/** Move a model to another workspace, and so to other readers. */

import { ReactElement } from 'react';

import { useApp } from '../../../state/context';
import type { ModelView, MoveModel as Wanted } from '../../../state/wire';
import { nameText } from '../../common/text';
import { Move } from '../../workspaces/MoveExperiment';
import { referenceTo } from '../model';
import { modelPath } from '../paths';

export function MoveModel({ model, onClose, onMoved }: {
  model: ModelView; onClose: () => void; onMoved: (view: ModelView) => void;
}): ReactElement {
  const { api, notify } = useApp();
  const name = nameText(model.name, 80);
  const move = async ({ workspace }: Wanted): Promise<void> => {
    const moved = await api.post<ModelView>(`${modelPath(referenceTo(model))}/move`, { workspace } satisfies Wanted);
    notify(`Model ${name} lies in ${nameText(moved.workspace || 'your personal workspace', 120)}.`, 'good');
    onMoved(moved);
  };
  return <Move what={`model ${name}`} of={model} about="Its members see the model and the checkpoints of its versions from then on." onClose={onClose} onMove={move} />;
}

/** Make a model without a version. */

import type { ReactElement } from 'react';

import { useApp } from '../../../state/context';
import type { CreateModel, ModelView } from '../../../state/wire';
import { Dialog } from '../../admin/Dialog';
import { FieldsForm, type FormField } from '../../admin/fields';
import { nameProblem } from '../model';

const FIELDS: readonly FormField[] = [
  { key: 'name', label: 'Name', most: 256, required: true, check: text => nameProblem(text.trim()), about: 'By it the model is loaded: det.load_model("name@production").' },
  { key: 'description', label: 'Description', most: 10_000 },
  { key: 'labels', label: 'Labels, separated by commas', about: 'Words by which it is found, such as vision.' }
];

export function NewModel({ onClose, onMade }: { onClose: () => void; onMade: (model: ModelView) => void }): ReactElement {
  const { api } = useApp();
  const make = async (values: Record<string, string>): Promise<void> => {
    const body: CreateModel = { name: values.name!.trim(), description: values.description, labels: words(values.labels ?? '') };
    onMade(await api.post<ModelView>('models', body));
  };
  return (
    <Dialog title="New model" onClose={onClose}>
      <FieldsForm label="New model" fields={FIELDS} start={{}} yes="Create" dialog conflictAt="name" onSubmit={make} onCancel={onClose} />
    </Dialog>
  );
}

/** Words separated by commas. */
export function words(text: string): string[] {
  return [...new Set(text.split(',').map(word => word.trim()).filter(Boolean))];
}

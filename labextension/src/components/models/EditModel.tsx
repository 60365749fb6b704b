/** Forms that change what people wrote about a model or a version; only what was changed is sent. */

import type { ReactElement } from 'react';

import { useApp } from '../../state/context';
import type { EditModel as ModelEdit, EditVersion as VersionEdit, ModelView, VersionView } from '../../state/wire';
import { nameText } from '../common/text';
import { words } from './dialogs/NewModel';
import { FieldsForm, metadataChange, metadataOf, metadataText, type FormField } from '../admin/fields';
import { modelOf, nameProblem, referenceTo } from './model';
import { modelPath, versionPath } from './paths';

const METADATA: FormField = {
  key: 'metadata', label: 'Metadata', rows: 4, mono: true, about: 'Names and values as YAML.', check: text => metadataOf(text).problem
};
const NOTES: FormField = { key: 'notes', label: 'Notes', rows: 8, most: 100_000, about: 'Markdown.' };

const OF_MODEL: readonly FormField[] = [
  { key: 'name', label: 'Name', most: 256, required: true, check: text => nameProblem(text.trim()) },
  { key: 'description', label: 'Description', most: 10_000 },
  { key: 'labels', label: 'Labels, separated by commas' },
  NOTES, METADATA
];

export function EditModel({ model, onSaved, onCancel }: {
  model: ModelView; onSaved: (model: ModelView) => void; onCancel: () => void;
}): ReactElement {
  const { api } = useApp();
  const before = { name: model.name, description: model.description, labels: model.labels.join(', '), notes: model.notes, metadata: metadataText(model.metadata) };
  const save = async (now: Record<string, string>): Promise<void> => {
    const changes: ModelEdit = {
      ...(now.name!.trim() !== before.name && { name: now.name!.trim() }),
      ...(now.description !== before.description && { description: now.description }),
      ...(now.labels !== before.labels && { labels: words(now.labels!) }),
      ...(now.notes !== before.notes && { notes: now.notes, notes_before: before.notes }),
      ...(now.metadata !== before.metadata && metadataChange(model.metadata, metadataOf(now.metadata!).value))
    };
    onSaved(Object.keys(changes).length ? await api.post<ModelView>(`${modelPath(referenceTo(model))}/edit`, changes) : model);
  };
  return <FieldsForm label={`Edit model ${nameText(model.name, 80)}`} fields={OF_MODEL} start={before} yes="Save" onSubmit={save} onCancel={onCancel} />;
}

const OF_VERSION: readonly FormField[] = [
  { key: 'name', label: 'Name', most: 1000 },
  { key: 'semver', label: 'Semantic version', most: 100, about: 'MAJOR.MINOR.PATCH.' },
  { key: 'comment', label: 'Comment', most: 10_000 },
  NOTES, METADATA
];

export function EditVersion({ version, onSaved, onCancel }: {
  version: VersionView; onSaved: (version: VersionView) => void; onCancel: () => void;
}): ReactElement {
  const { api } = useApp();
  const before = {
    name: version.name, semver: version.semver ?? '', comment: version.comment, notes: version.notes, metadata: metadataText(version.metadata)
  };
  const save = async (now: Record<string, string>): Promise<void> => {
    const changes: VersionEdit = {
      ...(now.name !== before.name && { name: now.name }),
      ...(now.semver!.trim() !== before.semver && { semver: now.semver!.trim() }),
      ...(now.comment !== before.comment && { comment: now.comment }),
      ...(now.notes !== before.notes && { notes: now.notes, notes_before: before.notes }),
      ...(now.metadata !== before.metadata && metadataChange(version.metadata, metadataOf(now.metadata!).value))
    };
    onSaved(Object.keys(changes).length ? await api.post<VersionView>(`${versionPath(modelOf(version), version.version)}/edit`, changes) : version);
  };
  return <FieldsForm label={`Edit version ${version.version}`} fields={OF_VERSION} start={before} yes="Save" onSubmit={save} onCancel={onCancel} />;
}

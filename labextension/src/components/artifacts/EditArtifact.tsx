/** Forms that change what people wrote about an artifact or a version; only what was changed is sent. */

import type { ReactElement } from 'react';

import { useApp } from '../../state/context';
import type { ArtifactVersionView, ArtifactView, EditArtifact as ArtifactEdit, EditArtifactVersion as VersionEdit } from '../../state/wire';
import { FieldsForm, metadataChange, metadataOf, metadataText, type FormField } from '../admin/fields';
import { nameText } from '../common/text';
import { artifactOf, artifactPath, artifactVersionPath, referenceOf, versionText } from './paths';

const DESCRIPTION: FormField = { key: 'description', label: 'Description', most: 10_000 };
const OF_OWNER: readonly FormField[] = [
  { key: 'name', label: 'Name', most: 256, required: true },
  DESCRIPTION,
  { key: 'workspace', label: 'Workspace', most: 512, about: 'OWNER/NAME: its members see it. Empty: your personal one.' }
];

export function EditArtifact({ artifact, own, onSaved, onCancel }: {
  artifact: ArtifactView; /** Name and workspace are its owner's. */ own: boolean; onSaved: (artifact: ArtifactView) => void; onCancel: () => void;
}): ReactElement {
  const { api } = useApp();
  const before = { name: artifact.name, description: artifact.description, workspace: artifact.workspace };
  const save = async (now: Record<string, string>): Promise<void> => {
    const changes: ArtifactEdit = {
      ...(now.name!.trim() !== before.name && { name: now.name!.trim() }),
      ...(now.description !== before.description && { description: now.description }),
      ...(now.workspace!.trim() !== before.workspace && { workspace: now.workspace!.trim() })
    };
    onSaved(Object.keys(changes).length ? await api.post<ArtifactView>(`${artifactPath(referenceOf(artifact))}/edit`, changes) : artifact);
  };
  return <FieldsForm label={`Edit artifact ${nameText(artifact.name, 80)}`} fields={own ? OF_OWNER : [DESCRIPTION]} start={before} yes="Save" onSubmit={save} onCancel={onCancel} conflictAt="name" />;
}

const OF_VERSION: readonly FormField[] = [
  { key: 'comment', label: 'Comment', most: 10_000 },
  { key: 'aliases', label: 'Aliases, separated by commas', about: 'Each is taken from the version that has it now.' },
  { key: 'metadata', label: 'Metadata', rows: 4, mono: true, about: 'Names and values as YAML.', check: text => metadataOf(text).problem }
];

export function EditArtifactVersion({ version, onSaved, onCancel }: {
  version: ArtifactVersionView; onSaved: () => void; onCancel: () => void;
}): ReactElement {
  const { api } = useApp();
  const held = version.aliases.filter(alias => alias !== 'latest');
  const before = { comment: version.comment, aliases: held.join(', '), metadata: metadataText(version.metadata) };
  const save = async (now: Record<string, string>): Promise<void> => {
    const wanted = now.aliases!.split(',').map(alias => alias.trim()).filter(Boolean);
    const [added, removed] = [wanted.filter(alias => !held.includes(alias)), held.filter(alias => !wanted.includes(alias))];
    const changes: VersionEdit = {
      ...(now.comment !== before.comment && { comment: now.comment }),
      ...(added.length > 0 && { add_aliases: added }),
      ...(removed.length > 0 && { remove_aliases: removed }),
      ...(now.metadata !== before.metadata && metadataChange(version.metadata, metadataOf(now.metadata!).value))
    };
    if (Object.keys(changes).length) await api.post(`${artifactVersionPath(artifactOf(version), version.version)}/edit`, changes);
    onSaved();
  };
  return <FieldsForm label={`Edit ${versionText(version)}`} fields={OF_VERSION} start={before} yes="Save" onSubmit={save} onCancel={onCancel} />;
}

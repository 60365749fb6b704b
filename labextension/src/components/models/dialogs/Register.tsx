/** Register a checkpoint as a version of a model, which is made if there is none of that name. */

import { ReactElement, useMemo, useState } from 'react';

import { useApp } from '../../../state/context';
import type { CheckpointView, CreateVersion, ModelList, ModelView, VersionView } from '../../../state/wire';
import { Dialog } from '../../admin/Dialog';
import { formatNumber, useLoaded } from '../../common';
import { nameText } from '../../common/text';
import { FieldsForm, type FormField } from '../../admin/fields';
import { labelProblem, modelOf, nameProblem, referenceTo } from '../model';
import { modelPath, modelsPath } from '../paths';
import { words } from './NewModel';

/** Models that are offered as one types. */
const OFFERED = 200;

export function Register({ checkpoint, metric, onClose }: {
  checkpoint: CheckpointView; metric: string; onClose: () => void;
}): ReactElement {
  const { api, navigate, notify } = useApp();
  const path = modelsPath({ limit: OFFERED });
  const { data } = useLoaded(path, signal => api.get<ModelList>(path, signal));
  const [made, setMade] = useState<ReadonlySet<string>>(new Set());
  const known = useMemo(() => new Map((data?.items ?? []).map(model => [referenceTo(model), model])), [data]);
  const fields = useMemo<FormField[]>(() => [
    { key: 'model', label: 'Model', required: true, most: 256, check: text => (known.has(text.trim()) ? null : nameProblem(text.trim())), offers: [...known.values()].filter(one => one.right !== 'read').map(referenceTo) },
    { key: 'labels', label: 'Labels of the version, separated by commas', about: 'Such as staging; they are taken from the versions that have them now.', check: text => words(text).map(labelProblem).find(Boolean) ?? null },
    { key: 'semver', label: 'Semantic version', most: 100, about: 'MAJOR.MINOR.PATCH, above those before it; empty: none.' },
    { key: 'comment', label: 'Comment', rows: 2, most: 10_000 }
  ], [known]);
  const register = async (values: Record<string, string>): Promise<void> => {
    const name = values.model!.trim();
    const body: CreateVersion = {
      checkpoint: checkpoint.uuid, comment: values.comment ?? '', labels: words(values.labels ?? ''), semver: values.semver?.trim() || null
    };
    if (!known.has(name) && !made.has(name) && !(await exists(name))) {
      await api.post<ModelView>('models', { name });
      setMade(new Set([...made, name]));
    }
    const version = await api.post<VersionView>(`${modelPath(name)}/versions`, body);
    notify(`Registered as version ${version.version} of ${nameText(name, 80)}.`, 'good');
    onClose();
    navigate({ kind: 'version', model: modelOf(version), version: version.version });
  };
  /** Beyond the models that are offered there may be more. */
  const exists = async (name: string): Promise<boolean> => {
    try {
      await api.get<ModelView>(modelPath(name));
      return true;
    } catch (error) {
      if ((error as { status?: number }).status === 404) return false;
      throw error;
    }
  };
  const value = checkpoint.validation === null ? '' : `, ${nameText(metric, 40) || 'validation'} ${formatNumber(checkpoint.validation)}`;
  return (
    <Dialog title="Register a checkpoint" onClose={onClose}>
      <p className="det-soft det-dialog-about">Trial {checkpoint.trial_id}, step {checkpoint.steps_completed}{value}. As long as the version exists, its files are kept.</p>
      <FieldsForm label="Register a checkpoint" fields={fields} start={{}} yes="Register" dialog onSubmit={register} onCancel={onClose}>
        {values => <Next name={(values.model ?? '').trim()} known={known} listed={data !== null && data.after === null} />}
      </FieldsForm>
    </Dialog>
  );
}

/** What registering will do. */
function Next({ name, known, listed }: { name: string; known: ReadonlyMap<string, ModelView>; listed: boolean }): ReactElement | null {
  const model = known.get(name);
  if (!name || (!model && nameProblem(name))) return null;
  const text = model ? `Version ${(model.latest ?? 0) + 1} of ${nameText(name, 80)} will be made.`
    : listed ? `There is no model ${nameText(name, 80)} yet: it will be made, with this as its version 1.` : null;
  return text ? <p className="det-soft det-edits-now" role="status">{text}</p> : null;
}

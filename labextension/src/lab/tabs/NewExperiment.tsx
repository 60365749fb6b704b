/** The tab for a new experiment or notebook run. */

import type { Contents } from '@jupyterlab/services';
import { PathExt } from '@jupyterlab/coreutils';
import { lazy, ReactElement, Suspense, useState } from 'react';

import { ErrorBanner, Loading, useLoaded } from '../../components/common';
import type { Schema } from '../../form';
import type { AppContext } from '../../state/context';
import { useStore } from '../../state/context';
import { useSubmitKey } from '../../state/submitkey';
import type { CreateExperimentReply, ExperimentView, ProblemView } from '../../state/wire';
import type { LabApi } from '../api';
import type { Chosen, Submission } from './FormTab';
import type { Picker } from '../pick';

// The form brings a YAML parser: it is loaded when it is first wanted.
const Form = lazy(async () => ({ default: (await import('./FormTab')).FormTab }));

export interface Submitted {
  experiment_id: number | null;
  task_id: string | null;
  created: boolean;
  warnings: ProblemView[];
}

export function NewExperiment({ app, api, contents, pick, path: first, from, folder, onDone }: {
  app: AppContext; api: LabApi; contents: Contents.IManager; pick: Picker | null; path?: string;
  /** The experiment to fork. */
  from?: number;
  folder: string; onDone(): void;
}): ReactElement {
  const [path, setPath] = useState(first);
  const key = useSubmitKey();
  const ready = useStore(s => s.ready);
  const problem = useStore(s => s.problem);
  const local = path === undefined ? null : contents.localPath(path);
  const kind = path?.endsWith('.ipynb') ? 'notebook_run' : 'experiment';
  const loaded = useLoaded(`chosen:${path ?? ''}`, async (): Promise<Chosen> => ({
    kind,
    path: local,
    folder: local === null ? contents.localPath(folder) : PathExt.dirname(local),
    schema: await api.own<Schema>(`schema?kind=${kind}`),
    forked: from !== undefined && path === undefined ? await api.get<ExperimentView>(`experiments/${from}`) : null,
    text: path && /\.ya?ml$/.test(path) ? String((await contents.get(path, { type: 'file', format: 'text', content: true })).content) : null
  }));
  const submit = async (submission: Submission): Promise<void> => {
    const made = submission.code === 'server'
      ? await api.own<Submitted>('submit', { ...submission.body, idempotency_key: key })
      : submitted(await api.post<CreateExperimentReply>(
        'experiments', { ...submission.body, idempotency_key: key, source: { from: 'jupyterlab' } }
      ));
    const warning = made.warnings[0];
    if (warning) app.notify(`${warning.path ? `${warning.path}: ` : ''}${warning.message}`);
    if (made.experiment_id !== null) app.navigate({ kind: 'experiment', id: made.experiment_id });
    else if (made.task_id !== null) app.navigate({ kind: 'task', id: made.task_id });
    onDone();
  };
  if (loaded.error) return <ErrorBanner error={loaded.error} onRetry={loaded.reload} what="The form" />;
  if (!ready && problem) return <ErrorBanner error={problem} onRetry={app.store.retry} what="No connection" />;
  if (!loaded.data || loaded.loading) return <Loading what="Loading the form" />;
  return (
    <Suspense fallback={<Loading what="Loading the form" />}>
      <Form key={path ?? ''} chosen={loaded.data} api={api} pick={pick} onFile={setPath} submit={submit} />
    </Suspense>
  );
}

/** The master's own reply as the server extension would pass it on. */
function submitted(reply: CreateExperimentReply): Submitted {
  return { experiment_id: reply.experiment?.id ?? null, task_id: null, created: reply.created, warnings: reply.warnings };
}

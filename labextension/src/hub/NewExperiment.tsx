/** A new experiment by the form. A page has no files: the code is an earlier experiment's, or none. */

import { useMemo, useState, type ReactElement } from 'react';

import { View } from '../components/admin';
import { ErrorBanner, Loading, useLoaded } from '../components/common';
import { EXPERIMENT_SECTIONS, ExperimentForm, experimentText, type Schema } from '../form';
import type { Judged } from '../form/useDryRun';
import { asApiError, read } from '../state/api';
import { useApp, useStore } from '../state/context';
import type { CreateExperimentReply, ExperimentView } from '../state/wire';
import type { PageInfo } from './page';

const MOST = 50;

export function NewExperiment({ page }: { page: PageInfo }): ReactElement {
  const { api, store, navigate } = useApp();
  const [source, setSource] = useState<ExperimentView | null>(null);
  const [paused, setPaused] = useState(false);
  const key = useMemo(() => crypto.randomUUID?.() ?? String(Math.random()), []);
  const schema = useLoaded<Schema>(page.schema, signal => load(page.schema, signal));
  const bundle = source?.bundle ?? null;
  const judge = async (text: string): Promise<Judged> => {
    const body = { config_yaml: text, bundle, dry_run: true };
    const reply = await api.post<CreateExperimentReply>('experiments', body);
    return { problems: reply.warnings, config: reply.config };
  };
  const submit = async (text: string): Promise<void> => {
    const body = { config_yaml: text, bundle, activate: !paused, idempotency_key: key };
    const reply = await api.post<CreateExperimentReply>('experiments', body);
    if (!reply.experiment) return;
    store.learn({ experiment: reply.experiment });
    navigate({ kind: 'experiment', id: reply.experiment.id });
  };
  if (!schema.data) {
    return (
      <View title="New experiment">
        {schema.error ? <ErrorBanner error={schema.error} onRetry={schema.reload} /> : <Loading what="Asking for the form" />}
      </View>
    );
  }
  return (
    <ExperimentForm
      title="New experiment" schema={schema.data} sections={EXPERIMENT_SECTIONS} initial={experimentText(null)}
      judgedWith={bundle} submitLabel={paused ? 'Submit, paused' : 'Submit'} judge={judge} submit={submit}
      extra={
        <>
          <CodeOf chosen={source} choose={setSource} />
          <label className="det-check">
            <input type="checkbox" checked={paused} onChange={event => setPaused(event.target.checked)} /> start it paused
          </label>
        </>
      }
    />
  );
}

function CodeOf({ chosen, choose }: {
  chosen: ExperimentView | null; choose: (one: ExperimentView | null) => void;
}): ReactElement {
  const experiments = useStore(snapshot => snapshot.experiments);
  const withCode = experiments.filter(one => one.bundle !== null).slice(0, MOST);
  return (
    <div className="det-field">
      <label htmlFor="det-code-of">Code that travels</label>
      <select
        id="det-code-of" className="det-input" value={chosen?.id ?? ''}
        onChange={event => choose(withCode.find(one => String(one.id) === event.target.value) ?? null)}
      >
        <option value="">none</option>
        {withCode.map(one => <option key={one.id} value={one.id}>that of experiment {one.id}, {one.name}</option>)}
      </select>
      <div className="det-about">
        New files travel from JupyterLab (“Run as experiment”) or by <code>det experiment create CONFIG DIR</code>.
      </div>
    </div>
  );
}

async function load(address: string, signal: AbortSignal): Promise<Schema> {
  try {
    return await read<Schema>(await fetch(address, { signal, redirect: 'error' }));
  } catch (error) {
    throw asApiError(error);
  }
}

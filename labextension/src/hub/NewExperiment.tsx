/** The form for a new experiment: code from this computer or of an earlier experiment, and a config. */

import { useEffect, useMemo, useRef, useState, type ReactElement } from 'react';

import { View } from '../components/admin';
import { ErrorBanner, Loading, useLoaded } from '../components/common';
import { nameText } from '../components/common/text';
import { EXPERIMENT_SECTIONS, ExperimentForm, experimentText, forkText, type Schema } from '../form';
import type { Validation } from '../form/useDryRun';
import { asApiError, read } from '../state/api';
import { useApp, useStore } from '../state/context';
import { useSubmitKey } from '../state/submitkey';
import type { CreateExperimentReply, ExperimentView } from '../state/wire';
import type { HubApi } from './api';
import type { PageInfo } from './page';
import { withRuntimes } from '../form/runtimes';
import { CodeChoice } from './upload/CodeChoice';
import type { Source } from './upload/source';
import { startingPoints, useCode, type Code, type Coded } from './upload/useCode';

/** What the form starts from; another key is another form. */
interface Start {
  key: number;
  /** The file it is from, "" for none. */
  file: string;
  text: string;
}

export function NewExperiment({ page, api, from }: {
  page: PageInfo; api: HubApi;
  /** The experiment to fork. */
  from?: number;
}): ReactElement {
  const forked = useLoaded(from === undefined ? null : `${from}`, signal => api.get<ExperimentView>(`experiments/${from}`, signal));
  if (from === undefined) return <Filled page={page} api={api} forked={null} />;
  if (forked.data) return <Filled page={page} api={api} forked={forked.data} />;
  const what = `Experiment ${from}`;
  return (
    <View title={`Fork experiment ${from}`}>
      {forked.error ? <ErrorBanner error={forked.error} what={what} onRetry={forked.reload} /> : <Loading what={`Loading experiment ${from}`} />}
    </View>
  );
}

function Filled({ page, api, forked }: { page: PageInfo; api: HubApi; forked: ExperimentView | null }): ReactElement {
  const { store, navigate } = useApp();
  const [source, setSource] = useState<ExperimentView | null>(forked?.bundle ? forked : null);
  const [paused, setPaused] = useState(false);
  const [start, setStart] = useState<Start>(() => ({ key: 0, file: '', text: forked ? forkText(forked) : experimentText(null) }));
  const typed = useRef(start.text);
  const coded = useCode(api, page.bundleLimit);
  const title = forked ? `Fork experiment ${forked.id}` : 'New experiment';
  const key = useSubmitKey();
  const lineage = forked && { forked_from: forked.id };
  const schema = useLoaded<Schema>(page.schema, signal => load(page.schema, signal));
  const agents = useStore(snapshot => snapshot.agents);
  const ready = useStore(snapshot => snapshot.ready);
  const offered = useMemo(
    () => schema.data && withRuntimes(schema.data, ready ? agents : null, page.user), [schema.data, agents, ready, page.user]
  );
  const busy = coded.state.kind === 'busy';
  const bundle = coded.state.kind === 'ready' ? coded.state.code.bundle : (source?.bundle ?? null);
  const begin = (file: string, text: string): void => {
    typed.current = text;
    setStart(old => ({ key: old.key + 1, file, text }));
  };
  useStartingPoint(coded, begin, () => !forked && typed.current === start.text);
  const validate = async (text: string): Promise<Validation> => {
    typed.current = text;
    if (busy) return new Promise(() => undefined); // validated together with the code, once it is uploaded
    const reply = await api.post<CreateExperimentReply>('experiments', { config_yaml: text, bundle, dry_run: true, ...lineage });
    return { problems: reply.warnings, config: reply.config };
  };
  const submit = async (text: string): Promise<void> => {
    const body = { config_yaml: text, bundle, activate: !paused, idempotency_key: key, source: { from: 'hub page' }, ...lineage };
    const reply = await api.post<CreateExperimentReply>('experiments', body);
    if (!reply.experiment) return;
    store.learn({ experiment: reply.experiment });
    navigate({ kind: 'experiment', id: reply.experiment.id });
  };
  if (!offered) {
    return (
      <View title={title}>
        {schema.error ? <ErrorBanner error={schema.error} onRetry={schema.reload} /> : <Loading what="Loading the form" />}
      </View>
    );
  }
  return (
    <ExperimentForm
      key={start.key} title={title} schema={offered} sections={EXPERIMENT_SECTIONS} initial={start.text} template={start.file === '' && !forked}
      dependsOn={busy ? 'busy' : bundle} submitLabel={paused ? 'Submit paused' : 'Submit'} validate={validate} submit={submit}
      extra={
        <>
          <CodeChoice coded={coded} mostBytes={page.bundleLimit} source={source} onSource={setSource} />
          <StartingPoint coded={coded} start={start} begin={begin} />
          <label className="det-check">
            <input type="checkbox" checked={paused} onChange={event => setPaused(event.target.checked)} /> Start paused
          </label>
        </>
      }
    />
  );
}

/** While nothing was typed, the only config of the code that was chosen is taken, or a form for its only script. */
function useStartingPoint(coded: Coded, begin: (file: string, text: string) => void, untouched: () => boolean): void {
  const code = coded.state.kind === 'ready' ? coded.state.code : null;
  const seen = useRef<Code | null>(null);
  useEffect(() => {
    if (code === seen.current) return; // once for each code, whatever else was drawn anew
    seen.current = code;
    if (!code || !untouched()) return;
    const { configs, scripts } = startingPoints(code.selection.files);
    const only = configs.length === 1 ? configs[0] : configs.length === 0 && scripts.length === 1 ? scripts[0] : undefined;
    if (only) void textFor(only).then(text => untouched() && begin(only.path, text));
  }, [code, begin, untouched]);
}

function StartingPoint({ coded, start, begin }: {
  coded: Coded; start: Start; begin: (file: string, text: string) => void;
}): ReactElement | null {
  const select = useRef<HTMLSelectElement>(null);
  const chosen = useRef(false);
  useEffect(() => {
    // choosing made another form: the focus stays where it was
    if (document.activeElement === document.body && start.key > 0) select.current?.focus({ preventScroll: true });
  }, [start.key]);
  if (coded.state.kind !== 'ready') return null;
  const { configs, scripts } = startingPoints(coded.state.code.selection.files);
  const files = [...configs, ...scripts];
  if (!files.length) return null;
  const choose = async (path: string): Promise<void> => {
    const file = files.find(one => one.path === path);
    if (!file || chosen.current) return;
    chosen.current = true;
    begin(file.path, await textFor(file));
  };
  return (
    <div className="det-field">
      <label htmlFor="det-config-of">Start from</label>
      <select ref={select} id="det-config-of" className="det-input" value={start.file} onChange={event => void choose(event.target.value)}>
        <option value="">the current YAML</option>
        {configs.map(file => <option key={file.path} value={file.path}>{nameText(file.path)}</option>)}
        {scripts.map(file => <option key={file.path} value={file.path}>a config for {nameText(file.path)}</option>)}
      </select>
      <div className="det-about">Replaces the YAML with that of the file; you can edit it.</div>
    </div>
  );
}

async function textFor(file: Source): Promise<string> {
  return /\.py$/.test(file.path) ? experimentText(file.path) : new TextDecoder().decode(await file.bytes());
}

async function load(address: string, signal: AbortSignal): Promise<Schema> {
  try {
    return await read<Schema>(await fetch(address, { signal, redirect: 'error' }));
  } catch (error) {
    throw asApiError(error);
  }
}

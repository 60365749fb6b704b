/** The form with the choice of the code to upload. */

import { ReactElement, useId, useMemo, useRef, useState } from 'react';

import { ActionButton, ErrorBanner, formatBytes, plural, useLoaded } from '../../components/common';
import { nameText } from '../../components/common/text';
import { EarlierCode } from '../../form/EarlierCode';
import { ExperimentForm, EXPERIMENT_SECTIONS, experimentText, forkText, RUN_SECTIONS, RUN_TEXT } from '../../form';
import { Problems } from '../../form/Field';
import { withRuntimes } from '../../form/runtimes';
import type { Schema } from '../../form';
import type { Validation } from '../../form/useDryRun';
import { useStore } from '../../state/context';
import type { ExperimentView } from '../../state/wire';
import type { LabApi } from '../api';
import { Parameters, parametersOf } from '../parameters';
import type { Picker } from '../pick';

const MOST_KNOWN = 30;

export type Context = 'file' | 'folder' | 'none';

export interface Chosen {
  kind: 'experiment' | 'notebook_run';
  path: string | null;
  folder: string;
  schema: Schema;
  /** The YAML that was chosen, or null. */
  text: string | null;
  /** The experiment whose config and code the form begins with. */
  forked?: ExperimentView | null;
}

/** A parameter of the notebook, as its cell tagged `parameters` sets it. */
interface Parameter { name: string; type: string | null; default: string }

type Judged = Validation & { parameters?: Parameter[] | null };

interface Code { bundle: string | null; files: string[]; size: number }

/** The code in words. */
function codeText({ files, size }: Code): string {
  if (!files.length) return 'no files';
  const names = files.slice(0, 3).join(', ') + (files.length > 3 ? ', …' : '');
  return `${plural(files.length, 'file')}, ${formatBytes(size)}: ${names}`;
}

/** What is submitted: a file or folder of the Jupyter server, or the code of an earlier experiment. */
export type Submission =
  | { code: 'server'; body: Record<string, unknown> }
  | { code: 'earlier'; body: { config_yaml: string; bundle: string; activate: boolean; forked_from?: number } };

export function FormTab({ chosen, api, pick, onFile, submit }: {
  chosen: Chosen; api: LabApi;
  /** JupyterLab's file dialog; null where there is no file browser. */
  pick: Picker | null;
  /** Another file was chosen to be run. */
  onFile(path: string): void;
  submit(made: Submission): Promise<void>;
}): ReactElement {
  const { kind, path, forked = null } = chosen;
  const agents = useStore(s => s.agents);
  const me = useStore(s => s.me?.name ?? '');
  const ready = useStore(s => s.ready);
  const schema = useMemo(
    () => withRuntimes(chosen.schema, ready ? agents : null, me), [chosen.schema, agents, me, ready]
  );
  const run = kind === 'notebook_run';
  const script = path !== null && !/\.ya?ml$/.test(path);
  const [context, setContext] = useState<Context>(path === null ? 'none' : script ? 'file' : 'folder');
  const [folder, setFolder] = useState(chosen.folder);
  const [earlier, setEarlier] = useState<ExperimentView | null>(forked?.bundle ? forked : null);
  const [paused, setPaused] = useState(false);
  const [typed, setTyped] = useState('');
  const [known, setKnown] = useState<Parameter[] | null>();
  const [wrong, setWrong] = useState<Parameters['problems']>([]);
  const id = useId();
  const lineage = forked && { forked_from: forked.id };
  const parameters = useMemo(() => parametersOf(typed), [typed]);
  const source = { path: script ? path : null, folder, context };
  const code = useLoaded(`${context} ${folder}`, () => api.own<Code>('code', source));
  const bundle = earlier ? earlier.bundle : code.loading ? null : code.data?.bundle ?? null;
  const asked = useRef(0);
  const validate = (text: string): Promise<Validation> => {
    const mine = ++asked.current;
    return api.own<Judged>('judge', {
      config: text, kind, bundle, notebook: run ? base(path!) : '', path: run ? path : null, parameters: run ? parameters.values : {}, ...lineage
    }).then(judged => {
      if (mine === asked.current) {
        setKnown(judged.parameters);
        setWrong(judged.problems.filter(p => p.path === 'parameters'));
      }
      return judged;
    });
  };
  const file = path && base(path);
  const choose = (to: Context): void => {
    setContext(to);
    setEarlier(null);
  };
  const chooseFile = async (): Promise<void> => {
    const found = await pick?.file();
    if (found != null) onFile(found);
  };
  const chooseFolder = async (): Promise<void> => {
    const found = await pick?.folder();
    if (found == null) return;
    setFolder(found);
    choose('folder');
  };
  const made = (text: string): Submission =>
    earlier
      ? { code: 'earlier', body: { config_yaml: text, bundle: earlier.bundle!, activate: !paused, ...lineage } }
      : { code: 'server', body: { config: text, kind, ...source, activate: !paused, parameters: run ? parameters.values : {}, ...lineage } };
  const now = earlier ? null : context;
  return (
    <ExperimentForm
      title={run ? `Run ${file} on the cluster` : file ? `Run ${file} as an experiment` : forked ? `Fork experiment ${forked.id}` : 'New experiment'}
      schema={schema} sections={run ? RUN_SECTIONS : EXPERIMENT_SECTIONS}
      dependsOn={run ? `${bundle ?? ''} ${JSON.stringify(parameters.values)}` : bundle} initial={chosen.text ?? (run ? RUN_TEXT : forked ? forkText(forked) : experimentText(path))} template={path === null && !forked}
      submitLabel={run ? 'Run' : paused ? 'Submit paused' : 'Submit'} validate={validate}
      submit={text => submit(made(text))}
      ownProblems={run ? parameters.problems : []}
      extra={(
        <>
          <fieldset className="det-code-choice">
            <legend>Code to upload</legend>
            {script && (
              <Radio group={id} value="file" now={now} onChoose={choose}>
                {run ? `${file} alone` : `${file} and what it imports`}
              </Radio>
            )}
            {!script && <Radio group={id} value="none" now={now} onChoose={choose}>no code</Radio>}
            <Radio group={id} value="folder" now={now} onChoose={choose}>
              {folder ? `the whole folder ${nameText(folder, 200)}` : 'the whole top folder'}
            </Radio>
            {pick && (
              <div className="det-code-pick">
                <ActionButton label="Choose a file …" onRun={chooseFile} />
                {!script && <ActionButton label="Choose a folder …" onRun={chooseFolder} />}
                <span className="det-about">A script, a notebook or a config to run: it replaces the YAML.</span>
              </div>
            )}
            {!run && <EarlierCode chosen={earlier} onChoose={setEarlier} />}
            {earlier === null && (code.error
              ? <ErrorBanner error={code.error} onRetry={code.reload} />
              : <div className="det-about" role="status">{code.loading ? 'packing …' : codeText(code.data!)}</div>)}
          </fieldset>
          {run
            ? <ParametersField text={typed} known={known} problems={[...parameters.problems, ...wrong]} onChange={setTyped} />
            : (
              <label className="det-check">
                <input type="checkbox" checked={paused} onChange={e => setPaused(e.target.checked)} /> Start paused
              </label>
            )}
        </>
      )}
    />
  );
}

function ParametersField({ text, known, problems, onChange }: {
  text: string;
  /** Those of the notebook; null: it takes none; undefined: not known yet. */
  known: Parameter[] | null | undefined;
  problems: Parameters['problems']; onChange(text: string): void;
}): ReactElement {
  const id = useId();
  return (
    <div className="det-field">
      <label htmlFor={id}>Notebook parameters, one per line: name = value</label>
      <textarea
        id={id} className="det-input det-mono" rows={3} value={text} spellCheck={false} data-path="parameters"
        aria-invalid={problems.length > 0 || undefined} aria-describedby={[known !== undefined && `${id}-k`, problems.length && `${id}-p`].filter(Boolean).join(' ') || undefined}
        onChange={e => onChange(e.target.value)}
      />
      {known !== undefined && <div id={`${id}-k`} className="det-about"><Known parameters={known} /></div>}
      <Problems id={`${id}-p`} problems={problems} base="parameters" />
    </div>
  );
}

/** What can be set, with the defaults; most notebooks have few. */
function Known({ parameters }: { parameters: Parameter[] | null }): ReactElement {
  if (parameters === null) return <>The notebook takes none: no cell is tagged <code>parameters</code>.</>;
  if (!parameters.length) return <>The cell tagged <code>parameters</code> sets no variables.</>;
  return (
    <>
      Defaults: {parameters.slice(0, MOST_KNOWN).map((p, i) => (
        <span key={p.name}>{i > 0 && ', '}<code title={p.type ? `of type ${nameText(p.type)}` : undefined}>{nameText(p.name, 80)} = {nameText(p.default, 80)}</code></span>
      ))}
      {parameters.length > MOST_KNOWN && `, and ${parameters.length - MOST_KNOWN} more`}
    </>
  );
}

/** `group` tells its choice from that of another tab's form. */
function Radio({ group, value, now, onChoose, children }: {
  group: string; value: Context; now: Context | null; onChoose(value: Context): void; children: React.ReactNode;
}): ReactElement {
  return (
    <label>
      <input type="radio" name={group} checked={value === now} onChange={() => onChoose(value)} />
      <span>{children}</span>
    </label>
  );
}

function base(path: string): string {
  return path.split('/').pop()!;
}

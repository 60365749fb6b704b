/** Start a notebook, shell, TensorBoard or command, wait for it, and open it. */

import { useState, type FormEvent, type ReactElement, type ReactNode } from 'react';

import { Dialog } from '../../components/admin';
import { ErrorBanner } from '../../components/common';
import { nameText } from '../../components/common/text';
import { useShared } from '../../components/workspaces';
import { workspaceName } from '../../components/workspaces/model';
import { asApiError, type ApiError } from '../../state/api';
import { useApp, useStore } from '../../state/context';
import { useSubmitKey } from '../../state/submitkey';
import type { CreateTaskReply, ProblemView } from '../../state/wire';
import { closedRuntimes, runtimeNames } from '../../form/runtimes';
import { Started } from './Started';
import { blank, byField, missing, problemsOf, requestOf, type Answers, type StartKind } from './task';

export const TITLES: Record<StartKind, string> = {
  notebook: 'New notebook', shell: 'New shell', tensorboard: 'New TensorBoard', command: 'New command'
};

const SUMMARIES: Record<StartKind, string> = {
  notebook: 'JupyterLab on a node. It needs no slots: cells can borrow them, and experiments are queued.',
  shell: 'A terminal on a node, in the browser.',
  tensorboard: 'Compare the curves of experiments.',
  command: 'Run a command on a node; its output and exit code are kept.'
};

export function StartDialog({ kind, onClose }: { kind: StartKind; onClose: () => void }): ReactElement {
  const { api, store } = useApp();
  const [answers, setAnswers] = useState<Answers>(() => blank(kind));
  const [error, setError] = useState<ApiError | null>(null);
  const [busy, setBusy] = useState(false);
  const [started, setStarted] = useState<string | null>(null);
  const key = useSubmitKey();
  const set = (change: Partial<Answers>): void => setAnswers(old => ({ ...old, ...change }));
  const start = async (event: FormEvent): Promise<void> => {
    event.preventDefault();
    if (busy) return;
    const lack = missing(kind, answers);
    setError(lack);
    if (lack) return;
    setBusy(true);
    try {
      const reply = await api.post<CreateTaskReply>('tasks', requestOf(kind, answers, key));
      if (reply.task) {
        store.learn({ task: reply.task });
        setStarted(reply.task.id);
      }
    } catch (problem) {
      setError(asApiError(problem));
    } finally {
      setBusy(false);
    }
  };
  if (started !== null) {
    return (
      <Dialog title={TITLES[kind]} onClose={onClose}>
        <Started id={started} kind={kind} onClose={onClose} />
      </Dialog>
    );
  }
  const problems = error ? problemsOf(error) : [];
  const { fields, others } = byField(problems);
  const general = error && (others.length > 0 || !problems.length);
  return (
    <Dialog title={TITLES[kind]} onClose={onClose}>
      <p>{SUMMARIES[kind]}</p>
      {general && <ErrorBanner error={{ message: error.message, hint: error.hint, problems: others }} />}
      <form noValidate onSubmit={event => void start(event)}>
        <Fields kind={kind} answers={answers} set={set} problems={fields} />
        <div className="det-dialog-buttons">
          <button type="button" className="det-button" onClick={onClose}>Cancel</button>
          <button type="submit" className="det-button det-primary" aria-disabled={busy || undefined}>
            {busy ? 'Starting …' : 'Start'}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

type Problems = Partial<Record<keyof Answers, ProblemView>>;

function Fields({ kind, answers, set, problems }: {
  kind: StartKind; answers: Answers; set: (change: Partial<Answers>) => void; problems: Problems;
}): ReactElement {
  const text = (name: 'name' | 'slots' | 'image' | 'idle' | 'entrypoint', more: object = {}): ReactElement => (
    <input
      className="det-input" value={answers[name]} aria-invalid={problems[name] ? true : undefined}
      aria-describedby={problems[name] ? `start-${name}` : undefined}
      onChange={event => set({ [name]: event.target.value })} {...more}
    />
  );
  return (
    <>
      {kind === 'command' && (
        <Field label="Command line" name="entrypoint" problem={problems.entrypoint}>
          {text('entrypoint', { placeholder: 'python train.py --epochs 3', autoFocus: true, className: 'det-input det-mono' })}
        </Field>
      )}
      {kind === 'tensorboard' && <Experiments answers={answers} set={set} problem={problems.experiments} />}
      <Field label="Name" name="name" problem={problems.name}>
        {text('name', { placeholder: 'generated' })}
      </Field>
      <div className="det-hub-pair">
        <Field label="Slots" name="slots" problem={problems.slots} hint={<FreeSlots />}>
          {text('slots', { inputMode: 'numeric' })}
        </Field>
        <RuntimeField answers={answers} set={set} problem={problems.runtime} />
      </div>
      {answers.runtime !== '' && answers.runtime !== 'process' && (
        <Field label="Image" name="image" problem={problems.image}>
          {text('image', { placeholder: 'cluster default' })}
        </Field>
      )}
      <WorkspaceField answers={answers} set={set} problem={problems.workspace} />
      {kind !== 'command' && (
        <Field
          label="Idle timeout" name="idle" problem={problems.idle}
          hint="Such as 30m or 2h, or “never”. You are warned before it ends."
        >
          {text('idle', { placeholder: 'cluster default' })}
        </Field>
      )}
    </>
  );
}

function Field({ label, name, problem, hint, children }: {
  label: string; name: string; problem?: ProblemView; hint?: ReactNode; children: ReactNode;
}): ReactElement {
  return (
    <label className="det-adm-field">
      {label}
      {children}
      {hint && !problem && <small>{hint}</small>}
      {problem && (
        <small id={`start-${name}`} data-tone="bad" role="alert">
          {problem.message}
          {problem.hint ? `: ${problem.hint}` : ''}
        </small>
      )}
    </label>
  );
}

function FreeSlots(): ReactElement {
  const free = useStore(snapshot => (snapshot.cluster ? snapshot.cluster.slots_total - snapshot.cluster.slots_used : 0));
  return <>{free} free now</>;
}

const CALLED: Readonly<Record<string, string>> = { process: 'process', docker: 'container' };

function RuntimeField({ answers, set, problem }: {
  answers: Answers; set: (change: Partial<Answers>) => void; problem?: ProblemView;
}): ReactElement {
  const agents = useStore(snapshot => snapshot.agents);
  const me = useStore(snapshot => snapshot.me?.name ?? '');
  const closed = closedRuntimes(agents, me);
  const whys = Object.values(closed).filter(why => why !== undefined);
  return (
    <Field label="Runtime" name="runtime" problem={problem} hint={whys.length > 0 && sentence(whys)}>
      <select
        className="det-input" value={answers.runtime}
        onChange={event => set({ runtime: event.target.value })}
      >
        <option value="">cluster default</option>
        {runtimeNames(agents, me).map(runtime => (
          <option key={runtime} value={runtime} disabled={closed[runtime] !== undefined}>{CALLED[runtime] ?? runtime}</option>
        ))}
      </select>
    </Field>
  );
}

const MOST_PLACES = 100;

/** Where it is to lie; nothing for who works alone. */
function WorkspaceField({ answers, set, problem }: {
  answers: Answers; set: (change: Partial<Answers>) => void; problem?: ProblemView;
}): ReactElement | null {
  const me = useStore(snapshot => snapshot.me?.name ?? '');
  const places = useShared(null, MOST_PLACES).filter(one => one.may !== 'read' && !one.archived_at);
  if (!places.length) return null;
  const chosen = places.find(one => String(one.id) === answers.workspace);
  const pool = chosen?.defaults.resource_pool;
  return (
    <Field
      label="Workspace" name="workspace" problem={problem}
      hint={chosen ? `Its members see the state; only you open it.${pool ? ` It gives the pool ${nameText(pool, 60)}.` : ''}` : 'Nobody else sees it.'}
    >
      <select className="det-input" value={answers.workspace} onChange={event => set({ workspace: event.target.value })}>
        <option value="">personal</option>
        {places.map(one => <option key={one.id} value={String(one.id)}>{nameText(workspaceName(one, me), 120)}</option>)}
      </select>
    </Field>
  );
}

/** Distinct reasons as one sentence. */
function sentence(reasons: readonly string[]): string {
  const text = [...new Set(reasons)].join('; ');
  return `${text[0]!.toUpperCase()}${text.slice(1)}.`;
}

function Experiments({ answers, set, problem }: {
  answers: Answers; set: (change: Partial<Answers>) => void; problem?: ProblemView;
}): ReactElement {
  const experiments = useStore(snapshot => snapshot.experiments);
  const toggle = (id: number, on: boolean): void =>
    set({ experiments: on ? [...answers.experiments, id] : answers.experiments.filter(one => one !== id) });
  return (
    <fieldset className="det-hub-choice">
      <legend>Experiments</legend>
      {!experiments.length && <p className="det-soft">No experiments yet.</p>}
      {experiments.slice(0, 50).map(one => (
        <label key={one.id}>
          <input
            type="checkbox" checked={answers.experiments.includes(one.id)}
            onChange={event => toggle(one.id, event.target.checked)}
          />{' '}
          <span className="det-num">{one.id}</span> <span className="det-adm-name">{nameText(one.name)}</span>
        </label>
      ))}
      {problem && <small data-tone="bad" role="alert">{problem.message}</small>}
    </fieldset>
  );
}

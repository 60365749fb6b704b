/** The request of a start dialog. */

import { ApiError } from '../../state/api';
import type { ProblemView, TaskKind } from '../../state/wire';

/** Kinds that can be started from a page: those that need no files. */
export type StartKind = Extract<TaskKind, 'notebook' | 'shell' | 'tensorboard' | 'command'>;

export const START_KINDS: readonly StartKind[] = ['notebook', 'shell', 'tensorboard', 'command'];

export interface Answers {
  name: string;
  slots: string;
  /** Its name; '' leaves it to the cluster. */
  runtime: string;
  image: string;
  idle: string;
  entrypoint: string;
  experiments: number[];
  /** The id of a workspace; '' is the personal one. */
  workspace: string;
}

export function blank(kind: StartKind): Answers {
  return {
    name: '', slots: kind === 'command' ? '1' : '0', runtime: '', image: '', idle: '', entrypoint: '', experiments: [], workspace: ''
  };
}

/** The body of POST tasks. Empty fields are left to the cluster's defaults. */
export function requestOf(kind: StartKind, answers: Answers, key: string): Record<string, unknown> {
  const config: Record<string, unknown> = {};
  const resources: Record<string, unknown> = {};
  if (answers.slots.trim() !== '') resources['slots'] = numberOr(answers.slots);
  if (Object.keys(resources).length) config['resources'] = resources;
  if (answers.runtime) config['runtime'] = answers.runtime;
  if (answers.image.trim() && answers.runtime !== 'process') config['environment'] = { image: answers.image.trim() };
  if (answers.idle.trim()) config['idle_timeout'] = answers.idle.trim();
  if (answers.workspace) config['workspace'] = answers.workspace;
  if (kind === 'command') config['entrypoint'] = answers.entrypoint;
  return {
    kind, config, idempotency_key: key,
    ...(answers.name.trim() ? { name: answers.name.trim() } : {}),
    ...(kind === 'tensorboard' ? { experiment_ids: answers.experiments } : {})
  };
}

/** A number, or the text as it is: the master reports what is wrong with it. */
function numberOr(text: string): number | string {
  const value = Number(text);
  return Number.isFinite(value) ? value : text;
}

const FIELDS: Record<string, keyof Answers> = {
  description: 'name', name: 'name', 'resources.slots': 'slots', runtime: 'runtime', environment: 'image',
  idle_timeout: 'idle', idle: 'idle', slots: 'slots', image: 'image', entrypoint: 'entrypoint', experiment_ids: 'experiments', experiments: 'experiments', workspace: 'workspace'
};

/** What is missing, checked before the request. */
export function missing(kind: StartKind, answers: Answers): ApiError | null {
  if (kind !== 'tensorboard' || answers.experiments.length) return null;
  const problem: ProblemView = { path: 'experiment_ids', message: 'choose at least one experiment', hint: null, level: 'error' };
  return new ApiError(422, { code: 'incomplete', message: problem.message, problems: [problem] });
}

/** The problems of an error. Errors by way of the Hub are text: a line `- path: message` for each. */
export function problemsOf(error: Pick<ApiError, 'message' | 'problems'>): ProblemView[] {
  if (error.problems.length) return error.problems;
  return [...error.message.matchAll(/(?:^|\s)- ([\w.]+): ([^\n]+?)(?=\s- [\w.]+: |$)/gm)].map(([, path, message]) => ({
    path: path!, message: message!, hint: null, level: 'error'
  }));
}

/** Problems by field; those of no field are shown above the form. */
export function byField(problems: readonly ProblemView[]): {
  fields: Partial<Record<keyof Answers, ProblemView>>; others: ProblemView[];
} {
  const fields: Partial<Record<keyof Answers, ProblemView>> = {};
  const others: ProblemView[] = [];
  for (const problem of problems) {
    const field = FIELDS[problem.path] ?? FIELDS[problem.path.split('.')[0]!];
    if (field && !fields[field]) fields[field] = problem;
    else others.push(problem);
  }
  return { fields, others };
}

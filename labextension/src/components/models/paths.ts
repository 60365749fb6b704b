/** Paths of the registry's routes, and names that they have in code. */

import { shell } from '../common/text';

export { shell };

const quoted = encodeURIComponent;

/** Models shown at a time. */
export const PAGE = 50;

export function modelsPath({ search = '', archived = false, after = null, limit = PAGE }: {
  search?: string; archived?: boolean; after?: number | null; limit?: number;
}): string {
  const query = [`limit=${limit}`];
  for (const [key, value] of wordsOf(search)) query.push(`${key}=${quoted(value)}`);
  if (archived) query.push('archived=any');
  if (after !== null) query.push(`after=${after}`);
  return `models?${query.join('&')}`;
}

/** `owner:ada label:vision digits`: who, with which labels, and a part of the name. */
function wordsOf(search: string): [string, string][] {
  const found: [string, string][] = [];
  const rest: string[] = [];
  for (const word of search.trim().split(/\s+/)) {
    const [, key, value] = /^(owner|label):(.+)$/i.exec(word) ?? [];
    if (key !== undefined && value !== undefined) found.push([key.toLowerCase(), value]);
    else if (word) rest.push(word);
  }
  return rest.length ? [...found, ['name', rest.join(' ')]] : found;
}

export function modelPath(model: string): string {
  return `models/${quoted(model)}`;
}

export function versionPath(model: string, version: number | string): string {
  return `${modelPath(model)}/versions/${quoted(String(version))}`;
}

export function labelPath(model: string, label: string): string {
  return `${modelPath(model)}/labels/${quoted(label)}`;
}

/** What `det model best` and `det model search` take. */
export interface Sought {
  /** Empty: newest first. */
  metric: string;
  smaller: boolean;
  where: string;
}

export function findPath({ metric, smaller, where }: Sought, limit: number): string {
  const query = [`limit=${limit}`];
  if (metric) query.push(`best=${quoted(metric)}`);
  if (metric && smaller) query.push('smaller_is_better=true');
  if (where) query.push(`where=${quoted(where)}`);
  return `model-versions?${query.join('&')}`;
}

export function findCommand({ metric, smaller, where }: Sought): string {
  const words = metric ? ['det model best', shell(metric)] : ['det model search'];
  if (metric && smaller) words.push('--smaller');
  if (where) words.push('--where', shell(where));
  return words.join(' ');
}

/** `"digits@3"` as a string of Python: JSON's quotes and escapes are also Python's. */
export function loadCode(model: string, version: number | string): string {
  return `import detlab as det\n\nmodel = det.load_model(${JSON.stringify(`${model}@${version}`)})`;
}

export function downloadCommand(model: string, version: number | string): string {
  return `det model download ${shell(`${model}@${version}`)}`;
}

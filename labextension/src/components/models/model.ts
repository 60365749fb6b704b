/** What views of the registry derive from what the master sends. */

import type { Difference, ModelView, VersionView } from '../../state/wire';
import { toNumber } from '../common';
import { nameText } from '../common/text';

export { closedNamed as closedModel, ownersNamed as ownersModel } from '../view/actions';

/** What this user names a model by: its name, or `OWNER/NAME` where it is somebody else's. */
export function referenceTo(model: Pick<ModelView, 'reference' | 'name'>): string {
  return model.reference || model.name;
}

/** The same, of a version's model. */
export function modelOf(version: Pick<VersionView, 'model_reference' | 'model'>): string {
  return version.model_reference || version.model;
}

/** Labels that move, with their versions: `production → 3`; the newest version first. */
export function movingOf(model: Pick<ModelView, 'moving'>): [string, number][] {
  return Object.entries(model.moving).sort(([a, i], [b, j]) => j - i || (a < b ? -1 : 1));
}

/** Names of metrics of versions: the searched ones first, how far training was last, then those of most versions. */
export function metricNames(versions: readonly VersionView[]): string[] {
  const count = new Map<string, number>();
  const searched = new Set<string>();
  for (const { lineage } of versions) {
    for (const name of Object.keys(lineage.metrics)) count.set(name, (count.get(name) ?? 0) + 1);
    if (lineage.metric) searched.add(lineage.metric);
  }
  return untwinned([...count.keys()]).sort((a, b) => Number(searched.has(b)) - Number(searched.has(a)) || Number(isCount(a)) - Number(isCount(b)) || count.get(b)! - count.get(a)! || (a < b ? -1 : 1));
}

/** A metric of the group `validation` is there twice, with and without its group: leave it out once. */
export function untwinned(names: readonly string[]): string[] {
  const known = new Set(names);
  return names.filter(name => !(name.startsWith(VALIDATION) && known.has(name.slice(VALIDATION.length))));
}

const VALIDATION = 'validation.';

/** Whether a metric only says how far training was. */
function isCount(name: string): boolean {
  return /^(?:\w+\.)?(?:batches|records|epochs?|steps?)$/.test(name);
}

/** Whether less is better of a metric, where the versions' searches say so. */
export function direction(name: string, versions: readonly VersionView[]): 'less' | 'more' | null {
  const of = versions.find(({ lineage }) => lineage.metric !== '' && (lineage.metric === name || `validation.${lineage.metric}` === name));
  return of ? (of.lineage.smaller_is_better ? 'less' : 'more') : null;
}

/** The places of the best values in a row, none where all are alike or the direction is not known. */
export function bestOf(row: Difference, better: 'less' | 'more' | null): Set<number> {
  const values = row.values.map(value => toNumber(value as number | null));
  const finite = values.filter((value): value is number => value !== null && Number.isFinite(value));
  if (!better || finite.length < 2) return new Set();
  const best = better === 'less' ? Math.min(...finite) : Math.max(...finite);
  if (finite.every(value => value === best)) return new Set();
  return new Set(values.flatMap((value, i) => (value === best ? [i] : [])));
}

/** Whether a text fits a version: numbers stand for themselves, words for labels and semantic versions. */
export function versionsOf(text: string): string[] {
  return [...new Set(text.split(/[\s,]+/).filter(Boolean))];
}

/** Lines of a unified diff, each with what it is. */
export function diffLines(diff: string): { text: string; kind: 'add' | 'del' | 'hunk' | 'head' | 'same' }[] {
  let inHunk = false;
  return diff.replace(/\n$/, '').split('\n').map(text => {
    if (text.startsWith('@@')) inHunk = true;
    if (text.startsWith('@@')) return { text, kind: 'hunk' };
    if (!inHunk) return { text, kind: 'head' };
    return { text, kind: text.startsWith('+') ? 'add' : text.startsWith('-') ? 'del' : 'same' };
  });
}

/** The label's and the version's own way to say where a version stands: `digits@3`. */
export function versionName(version: Pick<VersionView, 'model' | 'version'>): string {
  return `${nameText(version.model, 80)}@${version.version}`;
}

/** Letters, digits and marks of any script; the master looks more closely. */
export const MODEL_NAME = /^[\p{L}\p{Nd}](?:[\p{L}\p{M}\p{Nd} ._-]{0,254}[\p{L}\p{M}\p{Nd}])?$/u;
export const VERSION_LABEL = /^\p{L}[\p{L}\p{M}\p{Nd}._-]{0,63}$/u;

/** What is wrong with the name of a new model, or null. */
export function nameProblem(name: string): string | null {
  if (!name) return 'A name is needed.';
  if (/^\p{Nd}+$/u.test(name)) return 'A name of digits only would look like a number.';
  return MODEL_NAME.test(name.normalize()) ? null : 'Use letters, digits, spaces and . _ - ; begin and end with a letter or digit.';
}

/** What is wrong with a label, or null. */
export function labelProblem(label: string): string | null {
  if (!label) return 'A label is needed.';
  if (label === 'latest') return '“latest” always means the newest version: it cannot be moved.';
  return VERSION_LABEL.test(label.normalize()) ? null : 'A label begins with a letter; letters, digits and . _ - may follow.';
}

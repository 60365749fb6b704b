/** Which metrics there are to choose from, and in which order: what is searched for, then what a person reports. */

/** One metric by its group and name. */
export interface Metric {
  group: string;
  name: string;
}

/** Groups that the profiler reports of the machine, beside any that a trial's code names as it likes. */
const SYSTEM = new Set(['cpu', 'memory', 'disk', 'network', 'gpu']);

/** Whether a group tells of the machine, not of the model. */
export function isOfMachine(group: string): boolean {
  return SYSTEM.has(group);
}

/** Validation and training first, other groups by name, what the machine did last. */
function groupRank(group: string): number {
  return group === 'validation' ? 0 : group === 'training' ? 1 : isOfMachine(group) ? 3 : 2;
}

/**
 * The metrics of a trial's summary, and `shown` besides, for a person to choose from.
 *
 * `searched` is the name of the validation metric that the experiment is about: it comes first.
 */
export function metricsOf(summary: Record<string, object>, shown: Metric, searched: string): Metric[] {
  const found = Object.entries(summary).flatMap(([group, names]) => Object.keys(names).map(name => ({ group, name })));
  for (const wanted of [shown, { group: 'validation', name: searched }]) {
    if (wanted.name && !found.some(m => m.group === wanted.group && m.name === wanted.name)) found.push(wanted);
  }
  const isSearched = (m: Metric): boolean => m.group === 'validation' && m.name === searched;
  return found.sort((a, b) =>
    Number(isSearched(b)) - Number(isSearched(a)) || groupRank(a.group) - groupRank(b.group)
    || compare(a.group, b.group) || compare(a.name, b.name));
}

function compare(a: string, b: string): number {
  return a === b ? 0 : a < b ? -1 : 1;
}

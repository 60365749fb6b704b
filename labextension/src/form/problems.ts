/** Which problem belongs to which field. */

import type { ProblemView } from '../state/wire';

/** Problems by the path of the field that shows them: its own, or the nearest above or below. */
export function assign(
  problems: readonly ProblemView[], fields: readonly string[]
): { at: Map<string, ProblemView[]>; rest: ProblemView[] } {
  const at = new Map<string, ProblemView[]>();
  const rest: ProblemView[] = [];
  for (const problem of problems) {
    const owner = fieldFor(problem.path, fields);
    if (owner === null) rest.push(problem);
    else at.set(owner, [...(at.get(owner) ?? []), problem]);
  }
  return { at, rest };
}

function fieldFor(path: string, fields: readonly string[]): string | null {
  if (!path) return null;
  if (fields.includes(path)) return path;
  const above = fields.filter(field => path.startsWith(`${field}.`) || path.startsWith(`${field}[`));
  return above.sort((a, b) => b.length - a.length)[0] ?? null;
}

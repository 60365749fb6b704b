/** A notebook's parameters as they are typed: one a line, `name = value`. */

import type { ProblemView } from '../state/wire';

/** As a notebook's own defaults are written. */
const PYTHON = new Map<string, unknown>([['True', true], ['False', false], ['None', null]]);
const NAME = /^[\p{L}_][\p{L}\p{N}_]*$/u;

export interface Parameters {
  values: Record<string, unknown>;
  /** Invalid lines; their path is `parameters`. */
  problems: ProblemView[];
}

/** Values are numbers, true, false, null, other JSON, or text. A line that is not blank sets a variable or is a mistake. */
export function parametersOf(text: string): Parameters {
  const values = new Map<string, unknown>();
  const problems: ProblemView[] = [];
  text.split('\n').forEach((line, index) => {
    if (!line.trim()) return;
    const at = line.indexOf('=');
    const name = line.slice(0, Math.max(at, 0)).trim();
    const raw = line.slice(at + 1).trim();
    const wrong = problemOf(line, at, name, raw, values);
    if (wrong) {
      const [message, hint] = wrong;
      problems.push({ path: 'parameters', message: `line ${index + 1}: ${message}`, hint, level: 'error' });
    } else values.set(name, valueOf(raw));
  });
  return { values: Object.fromEntries(values), problems };
}

/** The problem of a line and what to write instead, or null. */
function problemOf(
  line: string, at: number, name: string, raw: string, known: ReadonlyMap<string, unknown>
): [message: string, hint: string] | null {
  if (at < 0) {
    const colon = /^\s*([\p{L}_][\p{L}\p{N}_]*)\s*:\s*(.+)$/u.exec(line);
    return ['has no `=`', colon ? `write \`${colon[1]} = ${colon[2]!.trim()}\`` : 'write `name = value`'];
  }
  if (!NAME.test(name)) return [name ? `\`${name}\` is not a valid variable name` : 'has no name before the `=`', 'write `name = value`'];
  if (!raw) return [`\`${name}\` has no value`, `write \`${name} = ""\` for an empty text`];
  if (known.has(name)) return [`\`${name}\` is already set above`, 'keep one of the lines'];
  return null;
}

function valueOf(raw: string): unknown {
  try {
    return JSON.parse(raw);
  } catch {
    return PYTHON.has(raw) ? PYTHON.get(raw) : /^'([^'\\]*)'$/.exec(raw)?.[1] ?? raw;
  }
}

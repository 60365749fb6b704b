/** The trials table without its picture: columns and filter (sorting and drawing are the common table's). */

import type { TrialView } from '../../../state/wire';
import { isOver, shownState, stateWord, tookOf } from '../../../state/states';
import { Value, flatten } from '../../charts/parallel';
import { spaceOf } from '../../charts/scales';
import { formatDuration, formatNumber, formatPercent, formatValue, toNumber } from '../../common/format';
import { nameText } from '../../common/text';
import { endWord, pointWord } from '../../view/progress';
import { spreadText, type TrialRow } from './seeds';

export type { TrialRow } from './seeds';

export interface TrialColumn {
  /** `trial`, `state`, … or `hp:name`. */
  key: string;
  title: string;
  /** What is compared; null and undefined come last in either direction. */
  value: (row: TrialRow) => Value | undefined;
  /** What is shown, and filtered unless `searched` says more. */
  text: (row: TrialRow) => string;
  searched?: (row: TrialRow) => string;
  numeric: boolean;
  /** Shown unless the user says otherwise. */
  usual: boolean;
  /** The first click sorts descending. */
  descending?: boolean;
}

/** Rows of trials; those of a trial that has not changed stay the same objects, so that they are not drawn again. */
export class RowCache {
  private rows = new Map<number, TrialRow>();

  of(trials: Iterable<TrialView>): TrialRow[] {
    const found: TrialRow[] = [];
    for (const trial of trials) {
      const old = this.rows.get(trial.id);
      if (old?.trial === trial) found.push(old);
      else {
        const row = { trial, hparams: flatten(trial.hparams) };
        this.rows.set(trial.id, row);
        found.push(row);
      }
    }
    return found;
  }
}

/** Hyperparameter columns that are shown unless the user says otherwise. */
const USUAL_HPARAMS = 8;

/** The columns for some rows; `now` tells seconds since the epoch, `space` is the config's, which trials may not have drawn from yet. */
export function columnsOf(
  rows: readonly TrialRow[], metric: string, smallerIsBetter: boolean, now: () => number, space?: unknown
): TrialColumn[] {
  const took = ({ trial }: TrialRow): number | null => tookOf(trial, now());
  const number = (key: string, title: string, value: TrialColumn['value'], more: Partial<TrialColumn> = {}): TrialColumn =>
    ({ key, title, value, text: row => formatNumber(value(row) as number | null), numeric: true, usual: true, ...more });
  return [
    number('trial', 'Trial', row => row.trial.id, { text: row => String(row.trial.id) }),
    { key: 'state', title: 'State', value: row => stateText(row.trial), text: row => stateText(row.trial), searched: row => `${stateText(row.trial)} ${row.trial.state}`, numeric: false, usual: true },
    number('best', `Best ${nameText(metric, 40) || 'validation'}`, row => toNumber(row.trial.best_validation), { descending: !smallerIsBetter }),
    ...(rows.some(row => row.point) ? [number('mean', 'Mean ± sd', row => row.point?.mean ?? null, {
      text: row => (row.point ? spreadText(row.point) : '–'), descending: !smallerIsBetter
    })] : []),
    number('latest', 'Latest', row => toNumber(row.trial.latest_validation), { usual: false, descending: !smallerIsBetter }),
    number('steps', 'Steps', row => row.trial.steps_completed, { descending: true }),
    ...hparamColumns(rows, space),
    {
      key: 'why', title: 'Why stopped', value: row => whyStopped(row.trial) || null, text: row => nameText(whyStopped(row.trial), 400) || '–',
      numeric: false, usual: rows.some(row => whyStopped(row.trial))
    },
    number('progress', 'Progress', row => row.trial.progress, { usual: false, text: row => formatPercent(row.trial.progress) }),
    number('took', 'Took', took, { text: row => formatDuration(took(row)) }),
    number('restarts', 'Restarts', row => row.trial.restarts, { descending: true }),
    { key: 'node', title: 'Node', value: row => row.trial.agent_id, text: row => nameText(row.trial.agent_id ?? '–'), numeric: false, usual: false },
    number('index', 'Index', row => row.trial.index, { usual: false })
  ];
}

function hparamColumns(rows: readonly TrialRow[], space: unknown): TrialColumn[] {
  const names = new Map<string, { numeric: boolean; distinct: Set<string> }>();
  for (const row of rows) {
    for (const [name, value] of Object.entries(row.hparams)) {
      let seen = names.get(name);
      if (!seen) names.set(name, (seen = { numeric: true, distinct: new Set() }));
      if (value !== null && typeof value !== 'number') seen.numeric = false;
      if (seen.distinct.size < 2) seen.distinct.add(String(value));
    }
  }
  const due = rows.filter(row => row.trial.point_due).length;
  const asked = spaceOf(due ? space : null);
  for (const [name, { numeric }] of asked) {
    // A choice that is a group has a column for each of its values.
    if (![...names.keys()].some(one => one === name || one.startsWith(`${name}.`))) names.set(name, { numeric, distinct: new Set() });
  }
  // What varies comes first: constants say nothing about the difference between trials.
  const varies = ([name, seen]: [string, { distinct: Set<string> }]): boolean =>
    seen.distinct.size > 1 || (rows.length - due < 2 && !asked.get(name)?.constant);
  const order = [...names].sort((a, b) => Number(varies(b)) - Number(varies(a)) || (a[0] < b[0] ? -1 : 1));
  return order.map(([name, seen], i) => ({
    key: `hp:${name}`,
    title: nameText(name, 80),
    value: row => row.hparams[name],
    // The whole sentence of one that ended is on its page: here it would stand in each column.
    text: row => (row.trial.point_due && isOver(row.trial.state) ? 'none' : pointWord(row.trial) ?? nameText(formatValue(row.hparams[name]))),
    numeric: seen.numeric,
    usual: i < USUAL_HPARAMS && varies([name, seen])
  }));
}

/** Why a trial was stopped, or what policies that only record would have stopped it for; empty: nothing of the kind. */
export function whyStopped(trial: TrialView): string {
  return trial.stop_evidence || trial.would_stop.map(one => `not stopped: ${one}`).join('; ');
}

/** The state for people, with the reason of its end. */
export function stateText(trial: TrialView): string {
  return endWord(trial) ?? stateWord(shownState(trial));
}

type Test = (row: TrialRow) => boolean;

const WORDS = /^[\w\s.#+-]*$/;
const OF_THE_LANGUAGE = /\b(is|in|contains)\b/i;

/** Whether a filter is words to look for in the rows; all else is in the language of filters, which the master reads. */
export function isWords(text: string): boolean {
  return WORDS.test(text) && !OF_THE_LANGUAGE.test(text);
}

/** What words ask for: each must occur somewhere in a row. */
export function filterOf(text: string, columns: readonly TrialColumn[]): Test {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return row => words.every(word => columns.some(column => searchedText(column, row).includes(word)));
}

function searchedText(column: TrialColumn, row: TrialRow): string {
  return (column.searched ?? column.text)(row).toLowerCase();
}

/** Widths in pixels from what stands in the columns (the heads and some rows). */
export function widthOf(column: TrialColumn, rows: readonly TrialRow[]): number {
  const stride = Math.ceil(rows.length / 120) || 1;
  let longest = column.title.length + 2;
  for (let i = 0; i < rows.length; i += stride) longest = Math.max(longest, column.text(rows[i]!).length);
  return Math.min(240, Math.max(58, Math.round(longest * 8) + 24));
}

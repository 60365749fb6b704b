/** What a comparison shows, and how it is written in an address: all options and ids, nothing else. */

import type { Place } from '../../state/context';
import type { XAxis } from '../charts/axes';

export type CompareTab = 'curves' | 'metrics' | 'hyperparameters' | 'config' | 'code' | 'system' | 'plots' | 'media';
export type Statistic = 'best' | 'last' | 'min' | 'max';
export type PlotKind = 'scatter' | 'heatmap' | 'histogram';

export interface CompareOptions {
  tab: CompareTab;
  x: XAxis;
  log: boolean;
  logX: boolean;
  smoothing: number;
  /** `group.name`; empty: those of the searches. */
  metrics: readonly string[];
  /** The hyperparameter by which curves have colours; empty: each run its own. */
  colour: string;
  /** By what runs are taken together as mean and standard deviation: nothing, `experiment`, or `hp.NAME`. */
  group: string;
  statistic: Statistic;
  /** Settings that are the same in all runs are shown, too. */
  all: boolean;
  plot: PlotKind;
  /** Fields of plots: `hp.NAME` or `metric.GROUP.NAME`; empty: the first that fit. */
  px: string;
  py: string;
  pz: string;
  /** Runs that are not drawn: `t12`, `e3`, `rID`. */
  hidden: readonly string[];
  /** The two sides of texts that are compared line by line, by their places. */
  left: number;
  right: number;
}

/** Runs of one comparison: the master compares no more. */
export const MOST_RUNS = 50;
export const SMOOTHINGS = [0, 0.3, 0.6, 0.9, 0.97];
/** Metrics that are drawn at a time. */
export const MOST_CHARTS = 12;

export const DEFAULTS: CompareOptions = {
  tab: 'curves', x: 'steps', log: false, logX: false, smoothing: 0, metrics: [], colour: '', group: '', statistic: 'best',
  all: false, plot: 'scatter', px: '', py: '', pz: '', hidden: [], left: 0, right: 1
};

const TABS: readonly CompareTab[] = ['curves', 'metrics', 'hyperparameters', 'config', 'code', 'system', 'plots', 'media'];
const AXES: readonly XAxis[] = ['steps', 'epochs', 'time', 'wall'];
const STATISTICS: readonly Statistic[] = ['best', 'last', 'min', 'max'];
const PLOTS: readonly PlotKind[] = ['scatter', 'heatmap', 'histogram'];
const TEXTS = ['colour', 'group', 'px', 'py', 'pz'] as const;
const FLAGS = ['log', 'logX', 'all'] as const;
const PLACES = ['left', 'right'] as const;
/** Words of an address that are told because they name nothing. */
const MOST_WRONG = 10;
/** Characters of a name in an address. */
const MOST_CHARS = 1000;

/** What is compared: trials and experiments by their numbers, runs that no cluster started by their ids. */
export interface Subjects {
  trials: readonly number[];
  experiments: readonly number[];
  runs: readonly string[];
}

/** The place that compares some runs, for `navigate` and `address`. */
export function compareLink({ trials = [], experiments = [], runs = [] }: Partial<Subjects>, options: Partial<CompareOptions> = {}): Place & { kind: 'comparison' } {
  const view = written({ ...DEFAULTS, ...options });
  return { kind: 'comparison', trials: unique(trials), experiments: unique(experiments), ...(runs.length > 0 && { runs: unique(runs) }), view };
}

/** The options as a query: only those that are not as they are by default. */
export function written(options: CompareOptions): string {
  const query = new URLSearchParams();
  for (const key of ['tab', 'x', 'statistic', 'plot', ...TEXTS] as const) {
    if (options[key] !== DEFAULTS[key]) query.set(key, options[key]);
  }
  for (const key of FLAGS) if (options[key]) query.set(key, '1');
  if (options.smoothing) query.set('smoothing', String(options.smoothing));
  for (const key of PLACES) if (options[key] !== DEFAULTS[key]) query.set(key, String(options[key]));
  for (const name of options.metrics) query.append('metric', name);
  if (options.hidden.length) query.set('hidden', options.hidden.join(','));
  return query.toString();
}

/** The options that a query says. An address may come from anybody: what no option can be is left out. */
export function read(search: string): CompareOptions {
  const query = new URLSearchParams(search);
  const one = <T extends string>(key: string, known: readonly T[], other: T): T => known.find(word => word === query.get(key)) ?? other;
  const found: CompareOptions = {
    ...DEFAULTS,
    tab: one('tab', TABS, DEFAULTS.tab), x: one('x', AXES, DEFAULTS.x), statistic: one('statistic', STATISTICS, DEFAULTS.statistic),
    plot: one('plot', PLOTS, DEFAULTS.plot),
    smoothing: SMOOTHINGS.find(weight => String(weight) === query.get('smoothing')) ?? 0,
    metrics: unique(query.getAll('metric').filter(fits)).slice(0, MOST_CHARTS),
    hidden: (query.get('hidden') ?? '').split(',').filter(key => /^(?:[te]\d{1,15}|r[\w.-]{1,128})$/.test(key)).slice(0, MOST_RUNS)
  };
  for (const key of FLAGS) found[key] = query.get(key) === '1';
  for (const key of TEXTS) if (fits(query.get(key) ?? '')) found[key] = query.get(key) ?? '';
  for (const key of PLACES) {
    const at = query.get(key) ?? '';
    if (/^\d{1,2}$/.test(at)) found[key] = Number(at);
  }
  return found;
}

/** The place of an address `compare?trials=12,15&experiments=3&runs=ID&…`; what names nothing is told. */
export function placeOfQuery(search: string): Place & { kind: 'comparison' } {
  const query = new URLSearchParams(search);
  const said = (key: string): string => query.get(key) ?? '';
  const [trials, experiments, runs] = [numbersIn(said('trials')), numbersIn(said('experiments')), namesIn(said('runs'))];
  const wrong = unique([...trials.wrong, ...experiments.wrong, ...runs.wrong]).slice(0, MOST_WRONG);
  return {
    kind: 'comparison', trials: trials.found, experiments: experiments.found, ...(runs.found.length > 0 && { runs: runs.found }), ...(wrong.length > 0 && { wrong }),
    view: written(read(search))
  };
}

/** The address of a place, below the service's prefix. */
export function pathOfComparison({ trials, experiments, runs = [], view }: { trials: readonly number[]; experiments: readonly number[]; runs?: readonly string[]; view?: string }): string {
  const lists: [string, readonly (number | string)[]][] = [['trials', trials], ['experiments', experiments], ['runs', runs]];
  const query = [...lists.filter(([, ids]) => ids.length).map(([key, ids]) => `${key}=${ids.map(encodeURIComponent).join(',')}`), ...(view ? [view] : [])];
  return query.length ? `compare?${query.join('&')}` : 'compare';
}

/** What an address or an input names, and the words in it that name nothing. */
export interface Read<T> {
  found: T[];
  wrong: string[];
}

/** Numbers of trials or experiments. */
export function numbersIn(text: string): Read<number> {
  const { found, wrong } = sorted(text, /^\d{1,15}$/);
  return { found: found.map(Number), wrong };
}

/** Ids of runs, or the keys that their scripts gave them. */
export function namesIn(text: string): Read<string> {
  return sorted(text, /^[A-Za-z0-9][\w.-]{0,127}$/);
}

function sorted(text: string, pattern: RegExp): Read<string> {
  const words = unique(text.split(/[\s,;]+/).filter(Boolean)).slice(0, 4 * MOST_RUNS);
  return { found: words.filter(word => pattern.test(word)), wrong: words.filter(word => !pattern.test(word)) };
}

function fits(text: string): boolean {
  return text !== '' && text.length <= MOST_CHARS;
}

function unique<T>(list: readonly T[]): T[] {
  return [...new Set(list)];
}

/** Trials, experiments and runs from anywhere side by side: the same on the page of the Hub and in JupyterLab. */

import { FormEvent, ReactElement, useEffect, useMemo, useState } from 'react';

import { useApp } from '../../state/context';
import type { RunComparison } from '../../state/wire';
import { View } from '../admin/parts';
import { ActionButton, EmptyState, ErrorBanner, Loading, Notice, plural, useNow } from '../common';
import { CopyButton } from '../common/CopyButton';
import { nameText } from '../common/text';
import { isOfMachine } from '../view/metrics';
import { MediaPane } from '../media';
import { Tabs } from '../view/Tabs';
import { CompareCurves } from './CompareCurves';
import { CodePane, ConfigPane } from './CompareFiles';
import { ComparePlots } from './ComparePlots';
import { configRows, HyperparametersTable, MetricsTable } from './CompareTables';
import { CompareOptions, compareLink, CompareTab, MOST_RUNS, namesIn, numbersIn, pathOfComparison, read, type Subjects, written } from './link';
import { useComparison } from './load';
import { hasEnded, Side, sidesOf } from './model';
import type { PaneProps } from './pane';

/** Seconds after which runs that are not over are looked at again. */
const PERIOD = 20;

export function CompareRuns({ trials, experiments, runs = NONE, wrong = NONE, view = '' }: Omit<Subjects, 'runs'> & {
  runs?: readonly string[];
  /** What the address said that names nothing. */
  wrong?: readonly string[];
  view?: string;
}): ReactElement {
  const { navigate } = useApp();
  const chosen: Subjects = { trials, experiments, runs };
  const [options, setOptions] = useOptions(chosen, view);
  const [live, setLive] = useState(false);
  const now = useNow(PERIOD * 1000);
  const [began] = useState(now);
  const round = live ? Math.floor((now - began) / PERIOD) : 0;
  const { data, error, loading, reload } = useComparison(chosen, round);
  useEffect(() => setLive(data?.runs.some(run => !hasEnded(run)) ?? false), [data]);
  const sides = useMemo(() => sidesOf(data?.runs ?? []), [data]);
  const go = (to: Subjects): void => navigate(compareLink(to, options));
  const drop = ({ run }: Side): void => go({
    trials: run.kind === 'trial' ? trials.filter(id => id !== run.id) : trials,
    experiments: run.kind === 'experiment' ? experiments.filter(id => id !== run.id) : experiments,
    runs: run.kind === 'run' ? [...sides.flatMap(side => (side.run.kind === 'run' && side.run !== run ? [side.run.run_id] : [])), ...(data?.absent_runs ?? [])] : runs
  });
  const none = !trials.length && !experiments.length && !runs.length;
  return (
    <View
      title="Compare" summary={data ? summaryOf(data) : undefined}
      tools={<><AddRuns chosen={chosen} onAdd={go} />{!none && <CopyLink chosen={chosen} options={options} />}</>}
    >
      {wrong.length > 0 && <Notice tone="paused">{wrongText(wrong)}</Notice>}
      {none && (
        <EmptyState title="No runs are chosen.">
          Choose trials, experiments or runs in a table and press Compare, or enter their numbers or ids above. In a terminal: <code>det experiment compare 12 15</code>, in a notebook: <code>%det_compare 12 15</code>.
        </EmptyState>
      )}
      {error && <ErrorBanner error={error} what="Comparison" onRetry={reload} />}
      {!none && !data && !error && <Loading what="Comparing" />}
      {data && !none && (
        <div className="det-compare det-compare-runs" aria-busy={loading || undefined}>
          <Absent data={data} />
          {sides.length > 0 && <Panes data={data} sides={sides} options={options} onOptions={setOptions} round={round} onDrop={sides.length > 1 ? drop : undefined} />}
        </div>
      )}
    </View>
  );
}

/** The options: of the address where the host has addresses that can be replaced, else the component's own. */
function useOptions(chosen: Subjects, view: string): [CompareOptions, (change: Partial<CompareOptions>) => void] {
  const { settle } = useApp();
  const [own, setOwn] = useState(() => read(view));
  const said = useMemo(() => read(view), [view]);
  const options = settle ? said : own;
  return [options, change => {
    const next = { ...options, ...change };
    if (settle) settle(compareLink(chosen, next));
    else setOwn(next);
  }];
}

const NONE: readonly string[] = [];

/** What an address has that names nothing, and what would. */
export function wrongText(wrong: readonly string[]): string {
  const words = wrong.map(word => `“${nameText(word, 40)}”`).join(', ');
  return `${words} in the address ${wrong.length === 1 ? 'names' : 'name'} nothing, and ${wrong.length === 1 ? 'is' : 'are'} left out: trials and experiments are named by their numbers (trials=101,102), runs from anywhere by their ids (runs=${'3f'.repeat(4)}…).`;
}

function summaryOf(data: RunComparison): string {
  const kinds = ['trial', 'experiment', 'run'].map(kind => [kind, data.runs.filter(run => run.kind === kind).length] as const);
  return kinds.filter(([, count]) => count).map(([kind, count]) => plural(count, kind)).join(', ');
}

/** What is not shown, by its ids alone. */
function Absent({ data }: { data: RunComparison }): ReactElement | null {
  const say = (ids: readonly (number | string)[], one: string): string => (ids.length ? `${ids.length === 1 ? one : `${one}s`} ${ids.map(id => nameText(String(id), 40)).join(', ')}` : '');
  const missing = [say(data.absent_trials, 'Trial'), say(data.absent_experiments, 'Experiment'), say(data.absent_runs, 'Run')].filter(Boolean);
  if (!missing.length) return null;
  return <Notice tone="paused">{missing.join('; ')}: not there, or not yours to see.</Notice>;
}

function Panes(props: PaneProps): ReactElement {
  const { data, options, onOptions } = props;
  const differing = (rows: readonly { same: boolean }[]): number => rows.filter(row => !row.same).length;
  const machine = data.metrics.some(row => isOfMachine(row.group));
  const tabs: { key: CompareTab; label: string; note?: number }[] = [
    { key: 'curves', label: 'Curves' },
    { key: 'metrics', label: 'Metrics', note: data.metrics.length + data.metrics_left_out },
    { key: 'hyperparameters', label: 'Hyperparameters', note: differing(data.hyperparameters) },
    { key: 'config', label: 'Config', note: differing(configRows(data.config)) },
    { key: 'code', label: 'Code' },
    ...(machine ? [{ key: 'system', label: 'System' } as const] : []),
    { key: 'plots', label: 'Plots' },
    { key: 'media', label: 'Media' }
  ];
  const chosen = tabs.some(tab => tab.key === options.tab) ? options.tab : 'curves';
  return (
    <Tabs label="Comparison" tabs={tabs} chosen={chosen} onChoose={key => onOptions({ tab: key as CompareTab })}>
      {chosen === 'curves' && <CompareCurves {...props} />}
      {chosen === 'metrics' && <MetricsTable {...props} />}
      {chosen === 'hyperparameters' && <HyperparametersTable {...props} />}
      {chosen === 'config' && <ConfigPane {...props} />}
      {chosen === 'code' && <CodePane {...props} />}
      {chosen === 'system' && <CompareCurves {...props} machine />}
      {chosen === 'plots' && <ComparePlots {...props} />}
      {chosen === 'media' && <CompareMedia {...props} />}
    </Tabs>
  );
}

/** Of each run what it, its trial or its best one has logged. */
function CompareMedia({ sides, options, round }: PaneProps): ReactElement {
  const columns = sides.filter(side => !options.hidden.includes(side.key)).flatMap(({ run, name }) => {
    if (run.kind === 'run') return [{ base: `runs/${encodeURIComponent(run.run_id)}`, name }];
    return run.trial_ids.slice(0, 1).map(trial => ({ base: `trials/${trial}`, name: run.kind === 'trial' ? name : `${name}, trial ${trial}` }));
  });
  return <MediaPane columns={columns} round={round} over={sides.every(side => hasEnded(side.run))} />;
}

type Kind = keyof Subjects;

const KINDS: readonly [Kind, string][] = [['trials', 'Trials'], ['experiments', 'Experiments'], ['runs', 'Runs from anywhere']];

function AddRuns({ chosen, onAdd }: { chosen: Subjects; onAdd: (to: Subjects) => void }): ReactElement {
  const [kind, setKind] = useState<Kind>(() => KINDS.reduce((most, [key]) => (chosen[key].length > chosen[most].length ? key : most), 'trials' as Kind));
  const [text, setText] = useState('');
  const { found, wrong } = kind === 'runs' ? namesIn(text) : numbersIn(text);
  const count = chosen.trials.length + chosen.experiments.length + chosen.runs.length;
  const why = wrong.length ? `“${nameText(wrong[0]!, 40)}” is no ${kind === 'runs' ? 'id of a run' : `number of ${kind === 'trials' ? 'a trial' : 'an experiment'}`}.`
    : !found.length ? `Enter the ${kind === 'runs' ? 'id of a run' : 'number of a trial or an experiment'}.` : count + found.length > MOST_RUNS ? `At most ${MOST_RUNS} runs are compared.` : null;
  const add = (event?: FormEvent): void => {
    event?.preventDefault();
    if (why) return;
    setText('');
    onAdd({ ...chosen, [kind]: [...new Set([...chosen[kind], ...found])] });
  };
  return (
    <form className="det-labelled" aria-label="Add runs" onSubmit={add}>
      <select className="det-input" aria-label="Kind" value={kind} onChange={event => setKind(event.target.value as Kind)}>
        {KINDS.map(([key, label]) => <option key={key} value={key}>{label}</option>)}
      </select>
      <input className="det-input" aria-label={kind === 'runs' ? 'Ids' : 'Numbers'} placeholder={kind === 'runs' ? 'id or key' : '12, 15'} size={10} value={text} onChange={event => setText(event.target.value)} />
      <ActionButton label="Add" why={why} onRun={() => add()} />
      <button type="submit" hidden />
    </form>
  );
}

/** Copies an address that shows the same: ids and options, no token. */
function CopyLink({ chosen, options }: { chosen: Subjects; options: CompareOptions }): ReactElement {
  const { address, store } = useApp();
  const place = compareLink(chosen, options);
  const here = address(place);
  const base = store.getSnapshot().cluster?.url ?? '';
  const link = here === null ? `${base}${pathOfComparison({ ...place, view: written(options) })}` : new URL(here, window.location.href).href;
  return <CopyButton text={link} label="Copy link" />;
}

/** Trials and experiments side by side: the same on the page of the Hub and in JupyterLab. */

import { FormEvent, ReactElement, useEffect, useMemo, useState } from 'react';

import { useApp } from '../../state/context';
import { isOver } from '../../state/states';
import type { RunComparison } from '../../state/wire';
import { View } from '../admin/parts';
import { ActionButton, EmptyState, ErrorBanner, Loading, Notice, plural, useNow } from '../common';
import { CopyButton } from '../common/CopyButton';
import { isOfMachine } from '../view/metrics';
import { MediaPane } from '../media';
import { Tabs } from '../view/Tabs';
import { CompareCurves } from './CompareCurves';
import { CodePane, ConfigPane } from './CompareFiles';
import { ComparePlots } from './ComparePlots';
import { configRows, HyperparametersTable, MetricsTable } from './CompareTables';
import { CompareOptions, compareLink, CompareTab, idsOf, MOST_RUNS, pathOfComparison, read, written } from './link';
import { useComparison } from './load';
import { Side, sidesOf } from './model';
import type { PaneProps } from './pane';

/** Seconds after which runs that are not over are looked at again. */
const PERIOD = 20;

interface Chosen {
  trials: readonly number[];
  experiments: readonly number[];
}

export function CompareRuns({ trials, experiments, view = '' }: Chosen & { view?: string }): ReactElement {
  const { navigate } = useApp();
  const [options, setOptions] = useOptions({ trials, experiments }, view);
  const [live, setLive] = useState(false);
  const now = useNow(PERIOD * 1000);
  const [began] = useState(now);
  const round = live ? Math.floor((now - began) / PERIOD) : 0;
  const { data, error, loading, reload } = useComparison(trials, experiments, round);
  useEffect(() => setLive(data?.runs.some(run => !isOver(run.state)) ?? false), [data]);
  const sides = useMemo(() => sidesOf(data?.runs ?? []), [data]);
  const go = (to: Chosen): void => navigate(compareLink(to, options));
  const drop = ({ run }: Side): void => go({
    trials: run.kind === 'trial' ? trials.filter(id => id !== run.id) : trials,
    experiments: run.kind === 'experiment' ? experiments.filter(id => id !== run.id) : experiments
  });
  const none = !trials.length && !experiments.length;
  return (
    <View
      title="Compare" summary={data ? summaryOf(data) : undefined}
      tools={<><AddRuns chosen={{ trials, experiments }} onAdd={go} />{!none && <CopyLink chosen={{ trials, experiments }} options={options} />}</>}
    >
      {none && (
        <EmptyState title="No runs are chosen.">
          Choose trials or experiments in a table and press Compare, or enter their numbers above. In a terminal: <code>det experiment compare 12 15</code>, in a notebook: <code>%det_compare 12 15</code>.
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
function useOptions(chosen: Chosen, view: string): [CompareOptions, (change: Partial<CompareOptions>) => void] {
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

function summaryOf(data: RunComparison): string {
  const count = (kind: string): number => data.runs.filter(run => run.kind === kind).length;
  const parts = [count('trial') ? plural(count('trial'), 'trial') : '', count('experiment') ? plural(count('experiment'), 'experiment') : ''];
  return parts.filter(Boolean).join(', ');
}

/** What is not shown, by its ids alone. */
function Absent({ data }: { data: RunComparison }): ReactElement | null {
  const say = (ids: readonly number[], one: string): string => (ids.length ? `${ids.length === 1 ? one : `${one}s`} ${ids.join(', ')}` : '');
  const missing = [say(data.absent_trials, 'Trial'), say(data.absent_experiments, 'Experiment')].filter(Boolean);
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

/** Of each run what its trial, or its best one, has logged. */
function CompareMedia({ sides, options, round }: PaneProps): ReactElement {
  const columns = sides.filter(side => side.run.trial_ids.length && !options.hidden.includes(side.key))
    .map(side => ({ base: `trials/${side.run.trial_ids[0]!}`, name: side.run.kind === 'trial' ? side.name : `${side.name}, trial ${side.run.trial_ids[0]}` }));
  return <MediaPane columns={columns} round={round} over={sides.every(side => isOver(side.run.state))} />;
}

function AddRuns({ chosen, onAdd }: { chosen: Chosen; onAdd: (to: Chosen) => void }): ReactElement {
  const [kind, setKind] = useState<'trials' | 'experiments'>(chosen.experiments.length > chosen.trials.length ? 'experiments' : 'trials');
  const [text, setText] = useState('');
  const ids = idsOf(text);
  const count = chosen.trials.length + chosen.experiments.length;
  const why = !ids.length ? 'Enter the number of a trial or an experiment.' : count + ids.length > MOST_RUNS ? `At most ${MOST_RUNS} runs are compared.` : null;
  const add = (event?: FormEvent): void => {
    event?.preventDefault();
    if (why) return;
    setText('');
    onAdd({ ...chosen, [kind]: [...new Set([...chosen[kind], ...ids])] });
  };
  return (
    <form className="det-labelled" aria-label="Add runs" onSubmit={add}>
      <select className="det-input" aria-label="Kind" value={kind} onChange={event => setKind(event.target.value as 'trials')}>
        <option value="trials">Trials</option>
        <option value="experiments">Experiments</option>
      </select>
      <input className="det-input" aria-label="Numbers" placeholder="12, 15" size={10} value={text} onChange={event => setText(event.target.value)} />
      <ActionButton label="Add" why={why} onRun={() => add()} />
      <button type="submit" hidden />
    </form>
  );
}

/** Copies an address that shows the same: ids and options, no token. */
function CopyLink({ chosen, options }: { chosen: Chosen; options: CompareOptions }): ReactElement {
  const { address, store } = useApp();
  const place = compareLink(chosen, options);
  const here = address(place);
  const base = store.getSnapshot().cluster?.url ?? '';
  const link = here === null ? `${base}${pathOfComparison({ ...place, view: written(options) })}` : new URL(here, window.location.href).href;
  return <CopyButton text={link} label="Copy link" />;
}

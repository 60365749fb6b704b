/** The search: how to steer it, and its figures, one at a time, drawn by the master and shown by plotly.js. */

import { ReactElement, useId, useMemo, useState } from 'react';

import { useApp } from '../../state/context';
import type { ExperimentView, TrialView } from '../../state/wire';
import { PlotlyFigure, type Figure } from '../charts/PlotlyFigure';
import { ErrorBanner, Loading, useLoaded } from '../common';
import { useThrottled } from '../common/loading/useThrottled';
import { nameText } from '../common/text';
import { Steering } from '../search';
import type { TrialRow } from './trials/trialtable';

const KINDS = {
  best_so_far: 'Best so far',
  importance: 'Importance of hyperparameters',
  slice: 'Metric by hyperparameter',
  contour: 'Metric over two hyperparameters',
  pareto_front: 'Pareto front of metrics',
  timeline: 'Trials on slots',
  lineage: 'Lineage of trials'
} as const;
type Kind = keyof typeof KINDS;

/** While trials run, a figure is drawn again at most so often (ms). */
const REDRAW_MS = 15_000;

interface Chosen {
  kind: Kind;
  against: string;
  method: string;
  /** Two names, or none: the master chooses. */
  params: string[];
  metrics: string[];
}

export function SearchTab({ experiment: e, rows, version, onLearn }: {
  experiment: ExperimentView; rows: readonly TrialRow[]; version: number; onLearn(view: ExperimentView): void;
}): ReactElement {
  const trials = useMemo(() => rows.map(row => row.trial), [rows]);
  const { api } = useApp();
  const [chosen, setChosen] = useState<Chosen>({ kind: 'best_so_far', against: 'trials', method: 'ped_anova', params: [], metrics: [] });
  const now = useThrottled(version, REDRAW_MS);
  const path = `experiments/${e.id}/figures/${chosen.kind}${queryOf(chosen)}`;
  const { data, error, loading, reload } = useLoaded(`${path} ${now}`, async signal => ({ path, figure: await api.get<Figure>(path, signal) }));
  const current = data?.path === path ? data.figure : null;
  return (
    <div className="det-search-tab">
      <Steering experiment={e} trials={trials} version={version} onLearn={onLearn} />
      <Controls experiment={e} rows={rows} chosen={chosen} onChosen={setChosen} />
      {error && !loading ? <ErrorBanner error={error} what="The figure" onRetry={reload} />
        : current ? <PlotlyFigure key={chosen.kind} figure={current} />
          : <Loading what="Drawing the figure" />}
    </div>
  );
}

function queryOf({ kind, against, method, params, metrics }: Chosen): string {
  const query = new URLSearchParams();
  if (kind === 'best_so_far') query.set('against', against);
  if (kind === 'importance') query.set('method', method);
  if (kind === 'contour' && new Set(params).size === 2) for (const name of params) query.append('params', name);
  if (kind === 'pareto_front' && new Set(metrics).size === 2) for (const name of metrics) query.append('metrics', name);
  const text = query.toString();
  return text && `?${text}`;
}

function Controls({ experiment, rows, chosen, onChosen }: {
  experiment: ExperimentView; rows: readonly TrialRow[]; chosen: Chosen; onChosen: (chosen: Chosen) => void;
}): ReactElement {
  const set = (change: Partial<Chosen>): void => onChosen({ ...chosen, ...change });
  return (
    <div className="det-controls" role="group" aria-label="Options of the figure">
      <Choice label="Figure" value={chosen.kind} options={Object.entries(KINDS)} onChoose={kind => set({ kind: kind as Kind })} />
      {chosen.kind === 'best_so_far' && (
        <Choice
          label="against" value={chosen.against} onChoose={against => set({ against })}
          options={[['trials', 'trials'], ['time', 'time'], ['slot_time', 'slot time']]}
        />
      )}
      {chosen.kind === 'importance' && (
        <Choice
          label="by" value={chosen.method} onChoose={method => set({ method })}
          options={[['ped_anova', 'PED-ANOVA'], ['fanova', 'fANOVA']]}
        />
      )}
      {chosen.kind === 'contour' && <Params rows={rows} chosen={chosen.params} onChosen={params => set({ params })} />}
      {chosen.kind === 'pareto_front' && <Metrics experiment={experiment} chosen={chosen.metrics} onChosen={metrics => set({ metrics })} />}
    </div>
  );
}

function Choice({ label, value, options, onChoose }: {
  label: string; value: string; options: readonly (readonly [string, string])[]; onChoose: (value: string) => void;
}): ReactElement {
  const id = useId();
  return (
    <span className="det-labelled">
      <label htmlFor={id}>{label}</label>
      <select id={id} className="det-input" value={value} onChange={event => onChoose(event.target.value)}>
        {options.map(([key, text]) => <option key={key} value={key}>{text}</option>)}
      </select>
    </span>
  );
}

/** Two hyperparameters on which the trials differ; none chosen: the most important. */
function Params({ rows, chosen, onChosen }: {
  rows: readonly TrialRow[]; chosen: string[]; onChosen: (params: string[]) => void;
}): ReactElement {
  const names = useMemo(() => {
    const values = new Map<string, Set<unknown>>();
    for (const row of rows) {
      for (const [name, value] of Object.entries(row.hparams)) values.set(name, (values.get(name) ?? new Set()).add(value));
    }
    return [...values].filter(([, seen]) => seen.size > 1).map(([name]) => name).sort();
  }, [rows]);
  return <Pair labels={['across', 'up']} names={names} none="most important" chosen={chosen} onChosen={onChosen} />;
}

/** Two metrics that the best trial's validations report; none chosen: those of the config. */
function Metrics({ experiment: e, chosen, onChosen }: {
  experiment: ExperimentView; chosen: string[]; onChosen: (metrics: string[]) => void;
}): ReactElement {
  const { api } = useApp();
  const trial = e.best?.trial_id;
  const { data } = useLoaded(trial === undefined ? null : `${trial}`, signal => api.get<TrialView>(`trials/${trial}`, signal));
  const names = Object.keys(data?.summary['validation'] ?? {}).sort();
  return <Pair labels={['of', 'and']} names={names} none="as configured" chosen={chosen} onChosen={onChosen} />;
}

function Pair({ labels, names, none, chosen, onChosen }: {
  labels: readonly [string, string]; names: readonly string[]; none: string; chosen: string[]; onChosen: (names: string[]) => void;
}): ReactElement | null {
  if (names.length < 2) return null;
  const options = names.map(name => [name, nameText(name, 40)] as const);
  const [first = '', second = ''] = chosen;
  const other = (name: string): string => names.find(one => one !== name) ?? '';
  return (
    <>
      <Choice
        label={labels[0]} value={first} options={[['', none], ...options]}
        onChoose={name => onChosen(name === '' ? [] : [name, second && second !== name ? second : other(name)])}
      />
      {first !== '' && (
        <Choice
          label={labels[1]} value={second} options={options.filter(([name]) => name !== first)}
          onChoose={name => onChosen([first, name])}
        />
      )}
    </>
  );
}

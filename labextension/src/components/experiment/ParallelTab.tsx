/** Parallel coordinates of an experiment's trials. */

import { ReactElement, useMemo } from 'react';

import { useApp } from '../../state/context';
import type { ExperimentView } from '../../state/wire';
import { Item } from '../charts/parallel';
import { ParallelCoordinates } from '../charts/ParallelCoordinates';
import { EmptyState, toNumber } from '../common';
import { nameText } from '../logs/text';
import type { TrialRow } from './trialtable';

/** Axes beyond these are too many to be read. */
const MOST_AXES = 24;

export function ParallelTab({ experiment: e, rows }: { experiment: ExperimentView; rows: readonly TrialRow[] }): ReactElement {
  const { navigate } = useApp();
  const metric = nameText(e.metric, 60) || 'validation';
  const { items, names } = useMemo(() => {
    const found: Item[] = rows.map(row => ({ id: row.trial.id, values: { ...row.hparams, [metric]: toNumber(row.trial.best_validation) } }));
    const seen = new Set(rows.flatMap(row => Object.keys(row.hparams)));
    return { items: found, names: [...seen].sort().slice(0, MOST_AXES) };
  }, [rows, metric]);
  const measured = items.filter(item => item.values[metric] !== null).length;
  if (!rows.length) return <EmptyState title="No trials yet." />;
  if (!names.length) return <EmptyState title="This experiment has no hyperparameters." />;
  return (
    <>
      {measured === 0 && <p className="det-curve-hint">No trial has reported {metric} yet: the lines have no colour.</p>}
      <ParallelCoordinates
        items={items} names={names} metric={metric} smallerIsBetter={e.smaller_is_better}
        onPick={trial => navigate({ kind: 'trial', id: trial, experiment: e.id })}
      />
      <p className="det-scale-legend"><span>worst</span><i aria-hidden="true" /><span>best {metric}</span></p>
    </>
  );
}

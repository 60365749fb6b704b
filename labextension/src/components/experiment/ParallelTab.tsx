/** Parallel coordinates of an experiment's trials. */

import { ReactElement, useMemo } from 'react';

import { useApp } from '../../state/context';
import type { ExperimentView } from '../../state/wire';
import { axesOf, Item } from '../charts/parallel';
import { ParallelCoordinates } from '../charts/ParallelCoordinates';
import { scalesOf } from '../charts/scales';
import { EmptyState, toNumber } from '../common';
import { nameText } from '../common/text';
import type { TrialRow } from './trials/trialtable';

/** Axes beyond these are too many to be read. */
const MOST_AXES = 24;

export function ParallelTab({ experiment: e, rows }: { experiment: ExperimentView; rows: readonly TrialRow[] }): ReactElement {
  const { navigate } = useApp();
  const metric = nameText(e.metric, 60) || 'validation';
  const { items, names, scales, more, seeded } = useMemo(() => {
    // A hyperparameter may have the metric's name: it has an axis beside it.
    const axis = (name: string): string => (name === metric ? `${name} (hyperparameter)` : name);
    // With seeds a line is a point, by the mean of its trials.
    const points = [...new Set(rows.flatMap(row => row.point ?? []))];
    const drawn = points.length ? points.map(point => ({ row: point.rows[0]!, value: point.mean })) : rows.map(row => ({ row, value: toNumber(row.trial.best_validation) }));
    const found: Item[] = drawn.map(({ row, value }) => ({
      id: row.trial.id,
      values: {
        ...Object.fromEntries(Object.entries(row.hparams).map(([name, one]) => [axis(name), one])),
        [metric]: value
      }
    }));
    const seen = [...new Set(rows.flatMap(row => Object.keys(row.hparams).map(axis)))].sort();
    const scales = new Map([...scalesOf(e.config?.['hyperparameters'])].map(([name, scale]) => [axis(name), scale]));
    return { items: found, names: seen.slice(0, MOST_AXES), scales, more: seen.length - MOST_AXES, seeded: points.length > 0 };
  }, [rows, metric, e.config]);
  const measured = items.filter(item => item.values[metric] !== null).length;
  if (!rows.length) return <EmptyState title="No trials yet." />;
  const drawn = rows.filter(row => !row.trial.point_due).length;
  if (!drawn) return <EmptyState title="No trial has hyperparameters yet: they are drawn when trials start." />;
  if (!names.length) return <EmptyState title="This experiment has no hyperparameters." />;
  if (!axesOf(items, names).length) {
    return (
      <EmptyState title={drawn === 1 ? 'Only one trial so far: nothing to compare.' : 'All trials have the same hyperparameters.'}>
        Axes appear when hyperparameters differ between trials.
      </EmptyState>
    );
  }
  return (
    <>
      {measured === 0 && <p className="det-curve-hint">No trial has reported {metric} yet, so the lines are not coloured.</p>}
      <ParallelCoordinates
        items={items} names={names} scales={scales} metric={metric} smallerIsBetter={e.smaller_is_better}
        onPick={trial => navigate({ kind: 'trial', id: trial, experiment: e.id })}
      />
      {more > 0 && <p className="det-curve-hint">Showing axes for the first {MOST_AXES} of {MOST_AXES + more} hyperparameters; the table of trials has all.</p>}
      {seeded && <p className="det-curve-hint">One line per point: the mean of its seeds.</p>}
      <p className="det-scale-legend"><span>worst</span><i aria-hidden="true" /><span>best {metric}</span></p>
    </>
  );
}

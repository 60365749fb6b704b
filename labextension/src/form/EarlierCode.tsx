/** The choice of an earlier experiment whose code a new one runs. */

import { ReactElement, useId } from 'react';

import { nameText } from '../components/common/text';
import { useStore } from '../state/context';
import type { ExperimentView } from '../state/wire';

const MOST_EXPERIMENTS = 50;

/** Nothing is shown while no experiment has code. */
export function EarlierCode({ chosen, onChoose }: {
  chosen: ExperimentView | null; onChoose: (one: ExperimentView | null) => void;
}): ReactElement | null {
  const id = useId();
  const experiments = useStore(snapshot => snapshot.experiments);
  const recent = experiments.filter(one => one.bundle !== null).slice(0, MOST_EXPERIMENTS);
  // A fork begins with the code of any experiment, listed here or not.
  const withCode = chosen && !recent.some(one => one.id === chosen.id) ? [chosen, ...recent] : recent;
  if (!withCode.length) return null;
  return (
    <div className="det-field">
      <label htmlFor={id}>Or use the code of an earlier experiment</label>
      <select
        id={id} className="det-input" value={chosen?.id ?? ''}
        onChange={event => onChoose(withCode.find(one => String(one.id) === event.target.value) ?? null)}
      >
        <option value="">none</option>
        {withCode.map(one => <option key={one.id} value={one.id}>experiment {one.id}, {nameText(one.name)}</option>)}
      </select>
    </div>
  );
}

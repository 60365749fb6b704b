/** Scatter, heat map and histogram of runs. */

import { ReactElement, useId, useMemo } from 'react';

import { PlotlyFigure } from '../charts/PlotlyFigure';
import { nameText } from '../common/text';
import type { PlotKind } from './link';
import { Labelled, PaneProps } from './pane';
import { chosenFields, fieldsOf, figureOf, PlotField } from './plots';

const KINDS: [PlotKind, string][] = [['scatter', 'Scatter'], ['heatmap', 'Heat map'], ['histogram', 'Histogram']];

export function ComparePlots({ data, sides, options, onOptions }: PaneProps): ReactElement {
  const id = useId();
  const fields = useMemo(() => fieldsOf(data, sides), [data, sides]);
  const figure = useMemo(() => figureOf(data, sides, options), [data, sides, options]);
  const { x, y, z } = chosenFields(fields, options);
  const select = (key: 'px' | 'py' | 'pz', label: string, chosen: PlotField | undefined, none?: string): ReactElement => (
    <Labelled id={`${id}-${key}`} label={label}>
      <select id={`${id}-${key}`} className="det-input det-compare-metric" value={chosen?.key ?? ''} onChange={event => onOptions({ [key]: event.target.value })}>
        {none !== undefined && <option value="">{none}</option>}
        {fields.map(field => <option key={field.key} value={field.key}>{nameText(field.label, 80)}</option>)}
      </select>
    </Labelled>
  );
  return (
    <>
      <div className="det-controls" role="group" aria-label="Plot options">
        <Labelled id={`${id}-kind`} label="Figure">
          <select id={`${id}-kind`} className="det-input" value={options.plot} onChange={event => onOptions({ plot: event.target.value as PlotKind })}>
            {KINDS.map(([kind, label]) => <option key={kind} value={kind}>{label}</option>)}
          </select>
        </Labelled>
        {select('px', options.plot === 'histogram' ? 'of' : 'x', x)}
        {options.plot !== 'histogram' && select('py', 'y', y)}
        {options.plot === 'scatter' && select('pz', 'Colour', z, 'each run')}
        {options.plot === 'heatmap' && select('pz', 'Value', z)}
      </div>
      <PlotlyFigure figure={figure} />
    </>
  );
}

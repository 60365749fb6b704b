/** Curves of runs over each other: a chart for each metric, one legend for all. */

import { ReactElement, useId, useMemo } from 'react';

import { useApp } from '../../state/context';
import type { RunMetric, SeriesView } from '../../state/wire';
import type { XAxis } from '../charts/axes';
import type { ChartData } from '../charts/curvechart';
import { CurvePlot } from '../charts/CurvePlot';
import { EmptyState, ErrorBanner, formatValue, Loading, Toggle } from '../common';
import { nameText } from '../common/text';
import { isOfMachine } from '../view/metrics';
import { CompareOptions, MOST_CHARTS, SMOOTHINGS } from './link';
import { type Drawn, useCurves, useEpochs } from './load';
import { coloursOf, ComparedLine, groupsOf, hasEnded, hyperparametersOf, keyOfMetric, linesOf, placeOfSide, shownMetrics, Side } from './model';
import { Labelled, PaneProps } from './pane';

const AXES: Record<XAxis, string> = { steps: 'steps', epochs: 'epochs', time: 'time since start', wall: 'wall clock' };

export function CompareCurves({ machine = false, ...props }: PaneProps & { machine?: boolean }): ReactElement {
  const { data, sides, options, round } = props;
  const shown = sides.filter(side => !options.hidden.includes(side.key));
  const drawn = useMemo<Drawn>(() => ({
    trials: [...new Set(sides.flatMap(side => side.run.trial_ids))], runs: sides.flatMap(side => (side.run.kind === 'run' ? [side.run.run_id] : []))
  }), [sides]);
  const epochs = useEpochs(drawn, options.x === 'epochs', round);
  const metrics = shownMetrics(data, options.metrics, machine);
  if (!metrics.length) return <EmptyState title={sides.some(side => !hasEnded(side.run)) ? 'Waiting for the first report …' : 'No metrics were reported.'} />;
  return (
    <div className="det-compare-curves">
      <CurveControls {...props} machine={machine} shown={metrics} />
      <CompareLegend {...props} />
      {options.x === 'epochs' && epochs?.size === 0 && <p className="det-soft">None of these runs reports a metric <code>epochs</code>: choose another axis.</p>}
      <div className="det-metric-cards det-compare-cards">
        {metrics.map(row => <MetricChart key={keyOfMetric(row)} {...props} row={row} shown={shown} drawn={drawn} epochs={epochs} />)}
      </div>
    </div>
  );
}

function CurveControls({ data, options, onOptions, machine, shown }: PaneProps & { machine: boolean; shown: readonly RunMetric[] }): ReactElement {
  const id = useId();
  const hyperparameters = hyperparametersOf(data);
  const others = data.metrics.filter(row => isOfMachine(row.group) === machine && !shown.includes(row));
  const keys = shown.map(keyOfMetric);
  const optionsOf = (prefix = ''): ReactElement[] => hyperparameters.map(({ name }) => <option key={name} value={prefix + name}>{nameText(name, 60)}</option>);
  return (
    <div className="det-controls" role="group" aria-label="Chart options">
      <Labelled id={`${id}-m`} label="Metric">
        <select
          id={`${id}-m`} className="det-input det-compare-metric" value="" disabled={shown.length >= MOST_CHARTS || !others.length}
          onChange={event => onOptions({ metrics: [...keys, event.target.value] })}
        >
          <option value="">{others.length ? `add one of ${others.length} …` : 'all are drawn'}</option>
          {others.slice(0, 1000).map(row => <option key={keyOfMetric(row)} value={keyOfMetric(row)}>{`${nameText(row.group, 40)} / ${nameText(row.name, 60)}`}</option>)}
        </select>
      </Labelled>
      <Labelled id={`${id}-x`} label="over">
        <select id={`${id}-x`} className="det-input" value={options.x} onChange={event => onOptions({ x: event.target.value as XAxis })}>
          {(Object.keys(AXES) as XAxis[]).map(axis => <option key={axis} value={axis}>{AXES[axis]}</option>)}
        </select>
      </Labelled>
      <Labelled id={`${id}-s`} label="Smoothing">
        <select id={`${id}-s`} className="det-input" value={options.smoothing} onChange={event => onOptions({ smoothing: Number(event.target.value) })}>
          {SMOOTHINGS.map(weight => <option key={weight} value={weight}>{weight === 0 ? 'none' : weight}</option>)}
        </select>
      </Labelled>
      <Labelled id={`${id}-c`} label="Colour">
        <select id={`${id}-c`} className="det-input" value={options.colour} onChange={event => onOptions({ colour: event.target.value })}>
          <option value="">each run</option>
          {optionsOf()}
        </select>
      </Labelled>
      <Labelled id={`${id}-g`} label="Mean ± sd by">
        <select id={`${id}-g`} className="det-input" value={options.group} onChange={event => onOptions({ group: event.target.value })}>
          <option value="">run</option>
          <option value="experiment">experiment</option>
          {optionsOf('hp.')}
        </select>
      </Labelled>
      <Toggle on={options.log} label="Log y" tip="Logarithmic metric axes; omits values ≤ 0" onChange={log => onOptions({ log })} />
      <Toggle on={options.logX} label="Log x" tip="Logarithmic x axis; omits values ≤ 0" onChange={logX => onOptions({ logX })} />
    </div>
  );
}

/** All lines with their names; each can be hidden. */
function CompareLegend({ sides, options, onOptions }: PaneProps): ReactElement {
  const colours = useMemo(() => coloursOf(sides, options.colour), [sides, options.colour]);
  const groups = groupsOf(sides, options.group);
  return (
    <ul className="det-legend-list det-compare-legend" aria-label="Legend">
      {groups.map(({ name, members }) => {
        const keys = members.map(side => side.key);
        const off = keys.every(key => options.hidden.includes(key));
        const hidden = off ? options.hidden.filter(key => !keys.includes(key)) : [...options.hidden, ...keys];
        return (
          <li key={keys.join()}>
            <button type="button" className="det-compare-key" aria-pressed={!off} title={off ? 'Show' : 'Hide'} onClick={() => onOptions({ hidden })}>
              <Swatch colour={colours.get(members[0]!.key)!} />
              {legendText(name, members, options)}
            </button>
          </li>
        );
      })}
    </ul>
  );
}

/** A line of a colour: an SVG, as the page's policy allows no style in markup. */
function Swatch({ colour }: { colour: string }): ReactElement {
  return <svg className="det-compare-swatch" width="16" height="4" aria-hidden="true"><rect width="16" height="4" rx="1" fill={colour} /></svg>;
}

function legendText(name: string, members: readonly Side[], { colour, group }: CompareOptions): string {
  const [first] = members;
  if (colour && `hp.${colour}` !== group) return `${name} · ${nameText(colour, 40)} ${nameText(formatValue(first!.hparams[colour] ?? null), 40)}`;
  return members.length > 1 ? `${name} (${members.length} runs)` : group ? name : `${name} · ${nameText(first!.run.name, 40)}`;
}

const NO_EPOCHS: ReadonlyMap<string, SeriesView> = new Map();

function MetricChart({ row, sides, shown, drawn, epochs, options, onOptions, data, round }: PaneProps & {
  row: RunMetric; shown: readonly Side[]; drawn: Drawn; epochs: ReadonlyMap<string, SeriesView> | null;
}): ReactElement {
  const { navigate } = useApp();
  const { data: series, error, reload } = useCurves(drawn, row, round);
  const lines = useMemo(() => {
    // Colours are those of all runs, so that a curve keeps its own when another is hidden.
    const colours = coloursOf(sides, options.colour);
    return linesOf(shown, series ?? [], epochs ?? NO_EPOCHS, options).map(line => ({ ...line, colour: colours.get(line.keys[0]!) ?? line.colour }));
    // eslint-disable-next-line react-hooks/exhaustive-deps -- of the options only those that change a line
  }, [sides, data, series, epochs, options.x, options.colour, options.group, options.hidden.join()]);
  const shownName = nameText(row.name, 60);
  const chosen = options.metrics.filter(key => key !== keyOfMetric(row));
  return (
    <section className="det-card" aria-label={`${nameText(row.group, 40)} ${shownName}`}>
      <h2 className="det-card-head">
        <span className="det-ellipsis" title={nameText(row.name)}>{shownName}</span>
        <span className="det-soft">
          {nameText(row.group, 40)}{' '}
          {chosen.length > 0 && <button type="button" className="det-button det-compact" aria-label={`Leave out ${shownName}`} onClick={() => onOptions({ metrics: chosen })}>✕</button>}
        </span>
      </h2>
      {error && <ErrorBanner error={error} what={shownName} onRetry={reload} />}
      {!series && !error && <Loading what="Loading curves" />}
      {series && <Chart lines={lines} row={row} sides={sides} options={options} shownName={shownName} onPick={side => navigate(placeOfSide(side))} />}
    </section>
  );
}

function Chart({ lines, row, sides, options, shownName, onPick }: {
  lines: readonly ComparedLine[]; row: RunMetric; sides: readonly Side[]; options: CompareOptions; shownName: string; onPick: (side: Side) => void;
}): ReactElement {
  const data: ChartData = {
    entries: lines.map(line => ({ curve: line.curve, index: line.id, grey: false, best: false, colour: line.colour, band: line.band })),
    options: { x: options.x, log: options.log, logX: options.logX, smoothing: options.smoothing, best: false, focus: row.smaller_is_better !== null },
    origin: 0, smallerIsBetter: row.smaller_is_better ?? true, live: false
  };
  const lineOf = (id: number): ComparedLine | undefined => lines.find(line => line.id === id);
  const pick = (id: number): void => {
    const side = sides.find(one => one.key === lineOf(id)?.keys[0]);
    if (side) onPick(side);
  };
  if (!lines.length) return <EmptyState title="None of the shown runs has reported it." />;
  return <CurvePlot data={data} metric={shownName} small nameOf={id => lineOf(id)?.name ?? ''} onPick={pick} />;
}

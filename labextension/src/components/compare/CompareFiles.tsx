/** Config and code of runs: what differs as a table, and line by line for two of them. */

import { createTwoFilesPatch } from 'diff';
import { ReactElement, useId, useMemo } from 'react';

import { useApp } from '../../state/context';
import type { ExperimentView } from '../../state/wire';
import { EmptyState, ErrorBanner, Loading, useLoaded } from '../common';
import { nameText } from '../common/text';
import { CodeDiff } from '../models/versions/CodeDiff';
import { yamlOf } from '../view/ConfigTab';
import { ConfigTable } from './CompareTables';
import { useCode } from './load';
import type { Side } from './model';
import { Labelled, PaneProps } from './pane';

/** Of one text; longer ones are not compared line by line. */
const MOST_CHARS = 400_000;
/** The time that a comparison of two texts may take, and the changes that it may find. */
const LIMITS = { context: 3, timeout: 800, maxEditLength: 4000 };

export function ConfigPane(props: PaneProps): ReactElement {
  return (
    <>
      <ConfigTable {...props} />
      {experimentsOf(props.sides).length > 1 && <ConfigLines {...props} />}
    </>
  );
}

function ConfigLines(props: PaneProps): ReactElement {
  const { api } = useApp();
  const [left, right] = pairOf(props);
  const { data, error, reload } = useLoaded(`${left} ${right}`, signal =>
    Promise.all([left, right].map(id => api.get<ExperimentView>(`experiments/${id}`, signal))));
  const names = [`experiment ${left}`, `experiment ${right}`];
  const diff = useMemo(() => (data ? diffOf(data.map(e => yamlOf(e.config ?? {})), names) : ''), [data]); // eslint-disable-line react-hooks/exhaustive-deps -- the names are those of the data
  return (
    <section className="det-compare-code" aria-label="Config line by line">
      <h2>Line by line</h2>
      <Pair {...props} />
      {error && <ErrorBanner error={error} what="Config" onRetry={reload} />}
      {!data && !error && <Loading what="Loading configs" />}
      {data && (diff === '' ? <p className="det-soft">The configs are the same.</p> : <CodeDiff file={{ path: 'config.yaml', digests: ['a', 'b'], diff: diff ?? '' }} names={names} />)}
    </section>
  );
}

/** The unified difference; null: the texts are too long or too different. */
export function diffOf(texts: readonly string[], names: readonly string[]): string | null {
  const [before = '', after = ''] = texts;
  if (before === after) return '';
  if (before.length > MOST_CHARS || after.length > MOST_CHARS) return null;
  const patch = createTwoFilesPatch(names[0]!, names[1]!, before, after, '', '', LIMITS) as string | undefined;
  return patch === undefined ? null : patch.replace(/^=+\n/, '');
}

export function CodePane(props: PaneProps): ReactElement {
  const { sides } = props;
  const several = experimentsOf(sides).length > 1;
  const [left, right] = pairOf(props);
  const { data, error, reload } = useCode(several ? [left, right] : []);
  if (!several) return <EmptyState title={sides.some(side => side.run.kind === 'run') ? 'The code of runs from anywhere is on the tab Code of their own pages.' : 'All runs are of one experiment, and have the same code.'} />;
  return (
    <section className="det-compare-code" aria-label="Code">
      <Pair {...props} />
      {error && <ErrorBanner error={error} what="Code" onRetry={reload} />}
      {!data && !error && <Loading what="Comparing code" />}
      {data && !data.files.length && <p className="det-soft">{sentence(nameText(data.note || 'the code is the same'))}</p>}
      {data?.files.map(file => <CodeDiff key={file.path} file={file} names={[`experiment ${left}`, `experiment ${right}`]} />)}
    </section>
  );
}

function sentence(text: string): string {
  return `${text.slice(0, 1).toUpperCase()}${text.slice(1)}${text.endsWith('.') ? '' : '.'}`;
}

/** The experiments of the runs, each once; runs from anywhere have none. */
function experimentsOf(sides: readonly Side[]): number[] {
  return [...new Set(sides.filter(side => side.run.kind !== 'run').map(side => side.run.experiment_id))];
}

function pairOf({ sides, options }: PaneProps): [number, number] {
  const ids = experimentsOf(sides);
  const at = (place: number, other: number): number => ids[place] ?? ids[other] ?? ids[0]!;
  return [at(options.left, 0), at(options.right, 1)];
}

/** Which two are compared, where there are more. */
function Pair({ sides, options, onOptions }: PaneProps): ReactElement | null {
  const id = useId();
  const ids = experimentsOf(sides);
  if (ids.length < 3) return null;
  const select = (key: 'left' | 'right', label: string): ReactElement => (
    <Labelled id={`${id}-${key}`} label={label}>
      <select id={`${id}-${key}`} className="det-input" value={options[key]} onChange={event => onOptions({ [key]: Number(event.target.value) })}>
        {ids.map((one, place) => <option key={one} value={place}>{`experiment ${one}`}</option>)}
      </select>
    </Labelled>
  );
  return <div className="det-controls">{select('left', 'From')}{select('right', 'to')}</div>;
}

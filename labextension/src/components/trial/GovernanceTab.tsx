/** What each source may train in a trial, and what it gave to each layer so far: the matrices S and D as heat maps. */

import type { ReactElement } from 'react';

import { useApp } from '../../state/context';
import { isOver } from '../../state/states';
import type { LearningView, TrialView } from '../../state/wire';
import { EmptyState, ErrorBanner, Loading, useLoaded } from '../common';
import { useThrottled } from '../common/loading/useThrottled';
import { HeatMap } from '../charts/HeatMap';

export function GovernanceTab({ trial }: { trial: TrialView }): ReactElement {
  const { api } = useApp();
  const over = isOver(trial.state);
  const round = useThrottled(over ? -1 : trial.steps_completed, 5000);
  const { data, error, reload } = useLoaded(`${trial.id} ${round} ${over}`, signal => api.get<LearningView>(`trials/${trial.id}/governance`, signal));
  if (error && !data) return <ErrorBanner error={error} what="What the sources may train" onRetry={reload} />;
  if (!data) return <Loading what="Loading what the sources may train" />;
  return (
    <div className="det-governance-tab">
      {data.s_hash ? <Both found={data} over={over} /> : <EmptyState title={over ? 'It ended before it looked at its model.' : 'Waiting for the trial to look at its model …'} />}
    </div>
  );
}

function Both({ found, over }: { found: LearningView; over: boolean }): ReactElement {
  const { depth } = found;
  return (
    <>
      <section>
        <HeatMap
          label="What each source may train" about={<>A closed layer gets nothing from samples of that source. S <code>{found.s_hash.slice(7, 19)}</code></>} corner="Parameters" columns={found.sources} leftOut={found.left_out}
          rows={found.groups.map(one => ({
            name: one.count > 1 ? `${one.label} (${one.count})` : one.label,
            cells: one.scales.map((scale, i) => ({ text: mark(scale, one.levels[i] ?? ''), share: Math.min(1, scale), tone: scale === 0 ? 'closed' as const : undefined }))
          }))}
        />
      </section>
      <section>
        {depth ? (
          <HeatMap
            label="What each source gave to each layer" about={<>Measured by the trial until step {depth.steps_completed}: of all that a source gave, the share of each layer.</>}
            corner="Layer" leftOut={depth.left_out}
            columns={found.sources.map(name => (name in found.share ? `${name} (${percent(found.share[name]!)} of samples)` : name))}
            rows={depth.layers.map((name, at) => ({ name, cells: depth.shares.map(row => ({ text: percent(row[at]!), share: row[at]! })) }))}
          />
        ) : <EmptyState title={`What each source gave comes with validations${over ? ', and none reported it' : ''}.`} />}
      </section>
    </>
  );
}

function mark(scale: number, level: string): string {
  const word = scale === 0 ? 'closed' : scale === 1 ? 'open' : `× ${scale}`;
  return scale === 0 || level === 'direct' || !level ? word : `${word}, ${level}`;
}

function percent(share: number): string {
  return share === 0 ? '0' : share < 0.001 ? '< 0.1 %' : `${(100 * share).toFixed(1)} %`;
}

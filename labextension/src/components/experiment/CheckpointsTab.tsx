/** Checkpoints of an experiment, best first. */

import type { ReactElement } from 'react';

import { everyItem } from '../../state/api';
import { useApp } from '../../state/context';
import { isOver } from '../../state/states';
import type { CheckpointView, ExperimentView } from '../../state/wire';
import { ErrorBanner, Loading, useLoaded } from '../common';
import { Checkpoints } from '../storage';
import { useThrottled } from '../common/loading/useThrottled';

const EVERY_MS = 2000;

export function CheckpointsTab({ experiment: e, version }: { experiment: ExperimentView; version: number }): ReactElement {
  const { api } = useApp();
  const round = useThrottled(version, EVERY_MS);
  const { data, error, reload } = useLoaded(
    `${e.id} ${round}`, signal => everyItem<CheckpointView>(api, `experiments/${e.id}/checkpoints`, 'after', signal)
  );
  if (error && !data) return <ErrorBanner error={error} what="Checkpoints" onRetry={reload} />;
  if (!data) return <Loading what="Loading the checkpoints" />;
  return (
    <Checkpoints items={data} over={isOver(e.state)} experiment={e} reload={reload} ofTrials />
  );
}

/** The versions of artifacts that a run, or a trial, has made and used. */

import type { ReactElement } from 'react';

import { everyItem } from '../../state/api';
import { useApp } from '../../state/context';
import type { RunArtifact } from '../../state/wire';
import { Ago, Go, Sheet } from '../admin/parts';
import { EmptyState, ErrorBanner, formatBytes, Loading, useLoaded } from '../common';
import { nameText } from '../common/text';
import { Aliases } from './Aliases';
import { placeOfVersion, versionText } from './paths';

/** The id of the run that is a trial. */
export function runOfTrial(trial: number): string {
  return trial.toString(16).padStart(32, '0');
}

export function RunArtifacts({ run, round, over }: {
  /** Its id. */ run: string; /** Grows when there may be more. */ round: number; over: boolean;
}): ReactElement {
  const { api } = useApp();
  const path = `runs/${encodeURIComponent(run)}/artifacts`;
  const { data, error, reload } = useLoaded(`${path} ${round}`, signal => everyItem<RunArtifact>(api, path, 'skip', signal));
  if (error && !data) return <ErrorBanner error={error} what="Artifacts" onRetry={reload} />;
  if (!data) return <Loading what="Loading the artifacts" />;
  if (!data.length) {
    return (
      <EmptyState title={over ? 'It has made and used no artifacts.' : 'No artifacts yet.'}>
        <p><code>run.use_artifact("cats:latest")</code> and <code>run.log_artifact("data/cats", name="cats")</code> record what a run uses and makes. All are on the page <Go to={{ kind: 'artifacts' }}>Artifacts</Go>.</p>
      </EmptyState>
    );
  }
  return (
    <Sheet label="Artifacts" head={<><th>Artifact</th><th>What the run did</th><th>Kind</th><th>Aliases</th><th className="det-right">Size</th><th>When</th></>}>
      {data.map(({ role, at, version }) => (
        <tr key={`${role} ${version.artifact_id} ${version.version}`}>
          <td><Go to={placeOfVersion(version)}><bdi>{versionText(version)}</bdi></Go></td>
          <td>{role === 'logged' ? 'made it' : 'used it'}</td>
          <td><bdi>{nameText(version.kind, 64)}</bdi></td>
          <td className="det-models-labels"><Aliases aliases={version.aliases} /></td>
          <td className="det-right det-num">{formatBytes(version.size)}</td>
          <td><Ago time={at} /></td>
        </tr>
      ))}
    </Sheet>
  );
}

/** Aliases as chips: of an artifact with the versions that have them, of a version by themselves. */

import type { ReactElement } from 'react';

import type { ArtifactView } from '../../state/wire';
import { Go } from '../admin/parts';
import { nameText } from '../common/text';
import { referenceOf } from './paths';

export function Pointing({ artifact }: { artifact: ArtifactView }): ReactElement | null {
  const aliases = Object.entries(artifact.aliases).sort(([a, i], [b, j]) => j - i || (a < b ? -1 : 1));
  if (!aliases.length) return null;
  return (
    <span className="det-chips">
      {aliases.map(([alias, version]) => (
        <span key={alias} className="det-chip" data-moving>
          {nameText(alias, 64)} <span aria-label="is at version">→</span>{' '}
          <Go to={{ kind: 'artifactversion', artifact: referenceOf(artifact), version }} title={`Version ${version} of ${nameText(artifact.name, 80)}`}>v{version}</Go>
        </span>
      ))}
    </span>
  );
}

export function Aliases({ aliases }: { aliases: readonly string[] }): ReactElement | null {
  if (!aliases.length) return null;
  return <span className="det-chips">{aliases.map(alias => <span key={alias} className="det-chip" data-moving={alias !== 'latest' || undefined}>{nameText(alias, 64)}</span>)}</span>;
}

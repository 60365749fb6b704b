/** Labels as chips: words that do not move, and labels with the version that they stand at. */

import type { ReactElement } from 'react';

import type { ModelView } from '../../state/wire';
import { Go } from '../admin/parts';
import { nameText } from '../common/text';
import { movingOf, referenceTo } from './model';

export function Moving({ model, plain = false }: { model: Pick<ModelView, 'name' | 'moving' | 'reference'>; /** Without links. */ plain?: boolean }): ReactElement | null {
  const moving = movingOf(model);
  if (!moving.length) return null;
  return (
    <span className="det-chips">
      {moving.map(([label, version]) => (
        <span key={label} className="det-chip" data-moving>
          {nameText(label, 64)} <span aria-label="is at version">→</span>{' '}
          {plain ? version : <Go to={{ kind: 'version', model: referenceTo(model), version }} title={`Version ${version} of ${nameText(model.name, 80)}`}>{version}</Go>}
        </span>
      ))}
    </span>
  );
}

export function Words({ labels }: { labels: readonly string[] }): ReactElement | null {
  if (!labels.length) return null;
  return <span className="det-chips">{labels.map(label => <span key={label} className="det-chip">#{nameText(label, 64)}</span>)}</span>;
}

/** Labels that a version has. */
export function OwnLabels({ labels }: { labels: readonly string[] }): ReactElement | null {
  if (!labels.length) return null;
  return <span className="det-chips">{labels.map(label => <span key={label} className="det-chip" data-moving>{nameText(label, 64)}</span>)}</span>;
}

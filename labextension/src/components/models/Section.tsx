/** The panel's section of models: the newest few, and the way to all of them. */

import type { ReactElement } from 'react';

import { useApp } from '../../state/context';
import type { ModelList } from '../../state/wire';
import { Go } from '../admin/parts';
import { ErrorBanner, formatAge, Loading, plural, useLoaded, useNow, type Loaded } from '../common';
import { nameText } from '../common/text';
import { Moving } from './Chips';
import { FirstModel } from './ModelsPage';
import { referenceTo } from './model';
import { modelsPath } from './paths';
import { useModelEvents } from './useModelEvents';

const SHOWN = 6;

/** The models that changed last, kept current. */
export function useNewestModels(): Loaded<ModelList> {
  const { api } = useApp();
  const path = modelsPath({ limit: SHOWN });
  const found = useLoaded(path, signal => api.get<ModelList>(path, signal));
  useModelEvents(found.reload);
  return found;
}

export function ModelItems({ found: { data, error, reload }, filter }: { found: Loaded<ModelList>; filter: string }): ReactElement {
  const now = useNow();
  if (error && !data) return <ErrorBanner error={error} what="Models" onRetry={reload} />;
  if (!data) return <Loading what="Loading the models" />;
  if (!data.items.length) return <FirstModel short />;
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const items = data.items.filter(model => words.every(word => `${model.name} ${model.owner} ${model.labels.join(' ')}`.toLowerCase().includes(word)));
  return (
    <>
      <ul className="det-list" aria-label="Models">
        {items.map(model => (
          <li key={model.id} className="det-item">
            <div className="det-item-head">
              <span className="det-ellipsis det-name"><Go to={{ kind: 'model', name: referenceTo(model) }} title={nameText(model.description || model.name, 200)}><bdi>{nameText(model.name, 120)}</bdi></Go></span>
              <span className="det-age det-soft det-num">{formatAge(model.updated_at, now)}</span>
            </div>
            <div className="det-facts">
              <span className="det-num">{plural(model.versions, 'version')}</span>
              <Moving model={model} />
            </div>
          </li>
        ))}
      </ul>
      {!items.length && <p className="det-soft det-none">None of the newest models fits “{nameText(filter, 60)}”.</p>}
      <p className="det-none"><Go to={{ kind: 'models' }}>All models</Go></p>
    </>
  );
}

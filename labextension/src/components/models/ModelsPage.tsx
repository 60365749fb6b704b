/** All models: found by their words, with the labels that move and where these stand. */

import { ReactElement, useEffect, useMemo, useState } from 'react';

import { useApp, useStore } from '../../state/context';
import type { ModelList, ModelView } from '../../state/wire';
import { Ago, Go, Sheet, View } from '../admin/parts';
import { ActionButton, EmptyState, ErrorBanner, Loading, plural, Toggle, useLoaded } from '../common';
import { Snippet } from '../common/CopyButton';
import { nameText } from '../common/text';
import { useSettled } from '../common/loading/useThrottled';
import { readOnly } from '../view/actions';
import { Moving, Words } from './Chips';
import { NewModel } from './dialogs/NewModel';
import { FindVersions } from './FindVersions';
import { referenceTo } from './model';
import { modelsPath } from './paths';
import { useModelEvents } from './useModelEvents';

export function ModelsPage(): ReactElement {
  const { navigate } = useApp();
  const me = useStore(s => s.me);
  const [search, setSearch] = useState('');
  const [archived, setArchived] = useState(false);
  const [making, setMaking] = useState(false);
  const [finding, setFinding] = useState(false);
  const wanted = useSettled(search);
  const found = useModels(wanted, archived);
  const { items, error, more } = found;
  const filtered = wanted.trim() !== '' || archived;
  return (
    <View
      title="Models" summary="Checkpoints that are kept under a name, as versions with all that they came from."
      tools={(
        <>
          <ActionButton label="Find versions …" onRun={() => setFinding(true)} />
          <ActionButton label="New model …" why={readOnly(me)} onRun={() => setMaking(true)} />
        </>
      )}
    >
      {making && <NewModel onClose={() => setMaking(false)} onMade={model => { setMaking(false); navigate({ kind: 'model', name: model.name }); }} />}
      {finding && <FindVersions onClose={() => setFinding(false)} />}
      {(filtered || (items !== null && items.length > 0) || search !== '') && (
        <div className="det-adm-filters" role="search" aria-label="Models">
          <input
            className="det-input" type="search" aria-label="Search models" placeholder="Name, label:… or owner:…" title="A part of the name; label:vision and owner:ada find by these" value={search}
            onChange={event => setSearch(event.target.value)}
          />
          <Toggle on={archived} label="Archived" tip="Show also archived models" onChange={setArchived} />
          <span className="det-soft det-num" role="status">{items && `${plural(items.length, 'model')}${more ? ' of more' : ''}`}</span>
        </div>
      )}
      {error && <ErrorBanner error={error} onRetry={found.reload} what="Models" />}
      {!items && !error && <Loading what="Loading the models" />}
      {items && items.length === 0 && (filtered ? <EmptyState title="No model fits." /> : <FirstModel />)}
      {items && items.length > 0 && <ModelSheet items={items} />}
      {more && <p className="det-adm-more"><ActionButton label="Show more" onRun={found.showMore} /></p>}
    </View>
  );
}

interface Models {
  items: readonly ModelView[] | null;
  error: ReturnType<typeof useLoaded>['error'];
  more: boolean;
  reload(): void;
  showMore(): Promise<void>;
}

/** The first page, kept current, and those that were asked for in addition. */
function useModels(search: string, archived: boolean): Models {
  const { api } = useApp();
  const key = modelsPath({ search, archived });
  const { data, error, reload } = useLoaded(key, signal => api.get<ModelList>(key, signal));
  const [rest, setRest] = useState<{ of: ModelList; items: ModelView[]; after: number | null } | null>(null);
  useModelEvents(reload);
  useEffect(() => setRest(null), [data]);
  const added = rest !== null && rest.of === data ? rest : null;
  const items = useMemo(() => (data ? [...data.items, ...(added?.items ?? [])] : null), [data, added]);
  const after = added ? added.after : data?.after ?? null;
  const showMore = async (): Promise<void> => {
    if (!data || after === null) return;
    const next = await api.get<ModelList>(modelsPath({ search, archived, after }));
    setRest({ of: data, items: [...(added?.items ?? []), ...next.items], after: next.after });
  };
  return { items, error, more: after !== null, reload, showMore };
}

function ModelSheet({ items }: { items: readonly ModelView[] }): ReactElement {
  const head = (
    <>
      <th>Model</th>
      <th>Labels</th>
      <th className="det-right">Versions</th>
      <th>Owner</th>
      <th>Updated</th>
    </>
  );
  return (
    <Sheet label="Models" head={head}>
      {items.map(model => (
        <tr key={model.id} data-archived={model.archived || undefined}>
          <td className="det-models-name">
            <Go to={{ kind: 'model', name: referenceTo(model) }}><span className="det-adm-name"><bdi>{nameText(model.name)}</bdi></span></Go>
            {model.archived && <span className="det-chip">archived</span>}
            {model.description && <span className="det-models-about det-soft">{nameText(model.description, 200)}</span>}
          </td>
          <td className="det-models-labels"><div className="det-chips"><Moving model={model} /><Words labels={model.labels} /></div></td>
          <td className="det-right det-num">{model.versions}</td>
          <td><span className="det-adm-name">{nameText(model.owner, 60)}</span></td>
          <td><Ago time={model.updated_at} /></td>
        </tr>
      ))}
    </Sheet>
  );
}

const MAGIC = '%det_model register digits --experiment 12';
const COMMANDS = ['det model create digits', 'det model register digits --experiment 12'];

/** How the first model is registered. */
export function FirstModel({ short = false }: { short?: boolean }): ReactElement {
  return (
    <EmptyState title="No models yet.">
      <p>A model is a name under which checkpoints are kept as versions. Registered checkpoints are never collected.</p>
      <div className="det-first-ways">
        <p>In an experiment's <b>Checkpoints</b> tab, choose <b>Register …</b>{short ? '.' : ', or in a terminal:'}</p>
        {!short && <Snippet text={COMMANDS.join('\n')} what="the commands" />}
        <p>{short ? 'In a notebook:' : 'In a notebook, the best checkpoint of experiment 12:'}</p>
        <Snippet text={MAGIC} what="the magic" />
      </div>
    </EmptyState>
  );
}

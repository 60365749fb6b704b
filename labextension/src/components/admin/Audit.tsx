/** The audit log: newest first, in pages, filtered by the master. */

import { useCallback, useEffect, useState, type ReactElement } from 'react';

import { asApiError, type ApiError } from '../../state/api';
import { useApp, type Place } from '../../state/context';
import type { AuditItem, AuditPage } from '../../state/wire';
import { ActionButton, EmptyState, ErrorBanner, formatTime, Loading } from '../common';
import { nameText } from '../common/text';
import { Go, Sheet, View } from './parts';

const PAGE = 100;
const TYPING_MS = 300;
/** The action of a refused request. */
const REFUSED = 'access.refused';

interface Filter {
  actor: string;
  action: string;
}

export function Audit(): ReactElement {
  const [typed, setTyped] = useState<Filter>({ actor: '', action: '' });
  const [filter, setFilter] = useState(typed);
  useEffect(() => {
    const timer = window.setTimeout(() => setFilter(typed), TYPING_MS);
    return () => window.clearTimeout(timer);
  }, [typed]);
  const { items, more, error, loading, older, reload } = usePages(filter);
  const filtered = Boolean(filter.actor || filter.action);
  return (
    <View
      title="Audit log" summary="Every change and who made it, and every refused request."
      tools={<ActionButton label="Newest" onRun={reload} />}
    >
      <div className="det-adm-filters" role="search">
        <label>
          User{' '}
          <input
            className="det-input" type="search" placeholder="any" value={typed.actor}
            onChange={event => setTyped({ ...typed, actor: event.target.value })}
          />
        </label>
        <label>
          Action{' '}
          <input
            className="det-input" type="search" placeholder="any, such as task.create" value={typed.action}
            onChange={event => setTyped({ ...typed, action: event.target.value })}
          />
        </label>
        <label className="det-adm-check">
          <input
            type="checkbox" checked={typed.action === REFUSED}
            onChange={event => setTyped({ ...typed, action: event.target.checked ? REFUSED : '' })}
          />{' '}
          Refused requests only
        </label>
      </div>
      {error && <ErrorBanner error={error} onRetry={reload} what="Audit log" />}
      {loading && !items.length && <Loading what="Loading the audit log" />}
      {!loading && !error && !items.length && (
        <EmptyState title={filtered ? 'No entry matches the filter.' : 'The audit log is empty.'}>
          {filtered && 'Filters match whole names: “ada”, “experiment.kill”, or “experiment” for all actions on experiments.'}
        </EmptyState>
      )}
      {items.length > 0 && <Log items={items} choose={change => setTyped({ ...typed, ...change })} />}
      {more && (
        <div className="det-adm-more">
          <ActionButton label="Older" onRun={older} />
        </div>
      )}
    </View>
  );
}

interface Pages {
  items: AuditItem[];
  more: boolean;
  error: ApiError | null;
  loading: boolean;
  older(): Promise<void>;
  reload(): void;
}

function usePages(filter: Filter): Pages {
  const { api } = useApp();
  const [round, setRound] = useState(0);
  const [state, setState] = useState<{ items: AuditItem[]; next: number | null; error: ApiError | null; loading: boolean }>(
    { items: [], next: null, error: null, loading: true }
  );
  const path = useCallback(
    (before: number | null): string => {
      const query = new URLSearchParams({ limit: String(PAGE) });
      if (filter.actor.trim()) query.set('actor', filter.actor.trim());
      if (filter.action.trim()) query.set('action', filter.action.trim());
      if (before !== null) query.set('before', String(before));
      return `audit?${query}`;
    },
    [filter]
  );
  useEffect(() => {
    const control = new AbortController();
    setState(old => ({ ...old, loading: true }));
    api.get<AuditPage>(path(null), control.signal).then(
      page => !control.signal.aborted && setState({ items: page.items, next: page.next, error: null, loading: false }),
      error => !control.signal.aborted && setState({ items: [], next: null, error: asApiError(error), loading: false })
    );
    return () => control.abort();
  }, [api, path, round]);
  const older = async (): Promise<void> => {
    try {
      const page = await api.get<AuditPage>(path(state.next));
      setState(old => ({ ...old, items: [...old.items, ...page.items], next: page.next, error: null }));
    } catch (error) {
      setState(old => ({ ...old, error: asApiError(error) }));
    }
  };
  return { ...state, more: state.next !== null, older, reload: () => setRound(n => n + 1) };
}

function Log({ items, choose }: { items: AuditItem[]; choose: (change: Partial<Filter>) => void }): ReactElement {
  const head = (
    <>
      <th>Time</th>
      <th>User</th>
      <th>Action</th>
      <th>Object</th>
      <th>Detail</th>
    </>
  );
  return (
    <Sheet label="Audit log" head={head}>
      {items.map(item => (
        <tr key={item.id}>
          <td className="det-num">{formatTime(item.time)}</td>
          <td>
            <button type="button" className="det-link" title="Show only this user" onClick={() => choose({ actor: item.actor })}>
              {nameText(item.actor)}
            </button>
          </td>
          <td>
            <button type="button" className="det-link" title="Show only this action" onClick={() => choose({ action: item.action })}>
              {nameText(item.action)}
            </button>
          </td>
          <td><Subject text={item.subject} /></td>
          <td className="det-adm-wide">{nameText(item.detail)}</td>
        </tr>
      ))}
    </Sheet>
  );
}

/** `experiment 12`, `trial 3` and `task nb-1a` are links. */
function Subject({ text }: { text: string }): ReactElement {
  const place = placeOf(text);
  const shown = nameText(text);
  return place ? <Go to={place}>{shown}</Go> : <>{shown}</>;
}

export function placeOf(subject: string): Place | null {
  const match = /^(experiment|trial|task) (\S+)$/.exec(subject);
  if (!match) return null;
  const [, kind, id] = match;
  if (kind === 'task') return { kind: 'task', id: id! };
  if (!/^\d{1,15}$/.test(id!)) return null;
  return kind === 'trial' ? { kind: 'trial', id: Number(id) } : { kind: 'experiment', id: Number(id) };
}

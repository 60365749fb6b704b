/** What a table of runs shows, as the query of its address has it: filter, order, columns, how they look. */

import type { SavedView, SaveView } from '../../state/wire';

export type RunTable = 'experiments' | 'trials';

export interface TableRequest {
  filter: string;
  /** Fields in order of importance, with `-` before them for descending. */
  sort: readonly string[];
  /** Fields in their order; null: the usual ones. */
  columns: readonly string[] | null;
  archived: boolean;
  /** The saved view that it began with; empty: none. */
  view: string;
  /** Columns that stay in place while the table is scrolled sideways. */
  pinned: readonly string[];
  /** Columns whose cells are coloured by their values. */
  heat: readonly string[];
}

export const PLAIN: TableRequest = { filter: '', sort: [], columns: null, archived: false, view: '', pinned: [], heat: [] };

/** What the master takes: see detlab.schemas.wire.saved_views. */
export const MOST_COLUMNS = 50;
export const MOST_SORT_KEYS = 10;

/** The request in the query of an address; what it does not name is as usual. */
export function readRequest(query: string): TableRequest {
  const given = new URLSearchParams(query);
  const list = (name: string, most: number): string[] => [...new Set(given.getAll(name).filter(Boolean))].slice(0, most);
  const columns = list('column', MOST_COLUMNS);
  return {
    filter: given.get('filter') ?? '',
    sort: list('sort', MOST_SORT_KEYS),
    columns: columns.length ? columns : null,
    archived: given.get('archived') === 'any',
    view: given.get('view') ?? '',
    pinned: list('pin', MOST_COLUMNS),
    heat: list('heat', MOST_COLUMNS)
  };
}

/** The query of a request's address. */
export function writeRequest(request: TableRequest): string {
  const query = new URLSearchParams();
  if (request.view) query.set('view', request.view);
  if (request.filter) query.set('filter', request.filter);
  if (request.archived) query.set('archived', 'any');
  for (const key of request.sort) query.append('sort', key);
  for (const key of request.columns ?? []) query.append('column', key);
  for (const key of request.pinned) query.append('pin', key);
  for (const key of request.heat) query.append('heat', key);
  return query.toString();
}

/** What the master is asked for; names may hold commas, so that lists go as JSON. */
function asked(request: TableRequest, columns: readonly string[]): URLSearchParams {
  const query = new URLSearchParams();
  if (request.filter.trim()) query.set('filter', request.filter);
  if (request.sort.length) query.set('sort', JSON.stringify(request.sort));
  if (columns.length) query.set('column', JSON.stringify(columns));
  if (request.archived) query.set('archived', 'any');
  return query;
}

/** The path of a page; `after` is the `next` of the page before. */
export function pagePath(table: RunTable, request: TableRequest, columns: readonly string[], limit: number, after: number | null): string {
  const query = asked(request, columns);
  query.set('limit', String(limit));
  if (after !== null) query.set(table === 'trials' ? 'after' : 'before', String(after));
  return `${table}?${query}`;
}

export function exportPath(table: RunTable, request: TableRequest, columns: readonly string[], format: 'csv' | 'parquet'): string {
  const query = asked(request, columns);
  query.set('table', table);
  query.set('format', format);
  return `tables/export?${query}`;
}

/** The order after a click on a column's title; `more` (with Shift) keeps the keys before. */
export function sorted(sort: readonly string[], name: string, descendingFirst: boolean, more: boolean): string[] {
  const at = sort.findIndex(key => fieldOf(key) === name);
  const first = descendingFirst ? [`-${name}`, name] : [name, `-${name}`];
  const next = at < 0 ? first[0]! : sort[at] === first[0] ? first[1]! : null; // the third click takes it away
  if (!more) return next === null ? [] : [next];
  const others = [...sort];
  if (at < 0) others.push(next!);
  else if (next === null) others.splice(at, 1);
  else others[at] = next;
  return others.slice(0, MOST_SORT_KEYS);
}

export function fieldOf(key: string): string {
  return key.startsWith('-') ? key.slice(1) : key;
}

export function toggled(list: readonly string[], name: string): string[] {
  return list.includes(name) ? list.filter(one => one !== name) : [...list, name];
}

/** What a view is called by this user: its name, or `OWNER/NAME` where it is somebody else's, of a project. */
export function viewKey(view: SavedView, me: string): string {
  return view.owner === me ? view.name : `${view.owner}/${view.name}`;
}

/** A saved view as a request; its layout may come from any program. */
export function ofView(view: SavedView, key: string = view.name): TableRequest {
  const list = (name: string): string[] => {
    const found = view.layout[name];
    return Array.isArray(found) ? found.filter((one): one is string => typeof one === 'string').slice(0, MOST_COLUMNS) : [];
  };
  return {
    filter: view.filter, sort: view.sort, columns: view.columns.length ? view.columns : null, archived: view.layout['archived'] === true,
    view: key, pinned: list('pinned'), heat: list('heat')
  };
}

/** What is kept of a request under a name. */
export function keptOf(table: RunTable, name: string, request: TableRequest, project = ''): SaveView {
  const { filter, sort, columns, archived, pinned, heat } = request;
  return { name, table, filter, sort: [...sort], columns: [...(columns ?? [])], layout: { pinned, heat, archived }, project };
}

/** Whether a request differs from the view that it began with. */
export function changedSince(view: SavedView, request: TableRequest): boolean {
  return writeRequest(ofView(view, request.view)) !== writeRequest(request);
}

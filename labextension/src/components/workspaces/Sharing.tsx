/** With whom an experiment or a model is shared: its readers and writers, and a form that adds one. */

import { ReactElement, useState } from 'react';

import { useApp } from '../../state/context';
import type { GrantList, GrantView } from '../../state/wire';
import { Ago, Sheet } from '../admin/parts';
import { ActionButton, EmptyState, ErrorBanner, Loading, useLoaded } from '../common';
import { useAct } from '../common/loading/load';
import { nameText } from '../common/text';

type Kind = GrantView['kind'];

/** `base` is the path of what is shared; `own` says why this user may not change whom it is shared with, or is null. */
export function Sharing({ base, name, about, own }: { base: string; name: string; about: string; own: string | null }): ReactElement {
  const { api } = useApp();
  const path = `${base}/grants`;
  const { data, error, reload } = useLoaded(path, signal => api.get<GrantList>(path, signal));
  return (
    <div className="det-labels">
      <p className="det-soft">{about}</p>
      {own === null && <Share path={path} name={name} reload={reload} />}
      {error && <ErrorBanner error={error} what="Sharing" onRetry={reload} />}
      {!data && !error && <Loading what="Loading with whom it is shared" />}
      {data && !data.items.length && (
        <EmptyState title="It is shared with nobody.">{own === null ? 'Name a user or a group of the Hub above.' : own}</EmptyState>
      )}
      {data && data.items.length > 0 && <Grants items={data.items} path={path} own={own} reload={reload} />}
    </div>
  );
}

function Share({ path, name, reload }: { path: string; name: string; reload: () => void }): ReactElement {
  const { api, notify } = useApp();
  const act = useAct();
  const [kind, setKind] = useState<Kind>('user');
  const [to, setTo] = useState('');
  const [write, setWrite] = useState(false);
  const why = to.trim() ? null : 'Enter the name of a user or group.';
  const share = async (): Promise<void> => {
    if (why) return;
    if (!(await act(() => api.replace<GrantList>(path, { kind, name: to.trim(), write })))) return;
    notify(`${kind} ${nameText(to.trim(), 60)} may ${write ? 'read and change' : 'read'} ${nameText(name, 80)}`, 'good');
    setTo('');
    reload();
  };
  return (
    <form className="det-adm-filters" aria-label="Share it" onSubmit={event => { event.preventDefault(); void share(); }}>
      <select className="det-input" aria-label="Kind" value={kind} onChange={event => setKind(event.target.value as Kind)}>
        <option value="user">user</option>
        <option value="group">group</option>
      </select>
      <input className="det-input" aria-label="Name" placeholder="Name in the Hub" value={to} autoComplete="off" onChange={event => setTo(event.target.value)} />
      <select className="det-input" aria-label="Right" value={write ? 'write' : 'read'} onChange={event => setWrite(event.target.value === 'write')}>
        <option value="read">may read</option>
        <option value="write">may read and change</option>
      </select>
      <ActionButton label="Share" primary why={why} onRun={share} />
      <button type="submit" hidden />
    </form>
  );
}

function Grants({ items, path, own, reload }: { items: readonly GrantView[]; path: string; own: string | null; reload: () => void }): ReactElement {
  const head = (
    <>
      <th>User or group</th>
      <th>May</th>
      <th>Shared by</th>
      <th>When</th>
      {own === null && <th><span className="det-hidden">Actions</span></th>}
    </>
  );
  return (
    <Sheet label="Shared with" head={head}>
      {items.map(grant => (
        <tr key={`${grant.kind} ${grant.name}`}>
          <td>{grant.kind} <span className="det-adm-name"><bdi>{nameText(grant.name, 120)}</bdi></span></td>
          <td>{grant.write ? 'read and change' : 'read'}</td>
          <td><span className="det-adm-name">{nameText(grant.granted_by, 60) || '–'}</span></td>
          <td><Ago time={grant.created_at} /></td>
          {own === null && <td className="det-right"><TakeBack grant={grant} path={path} reload={reload} /></td>}
        </tr>
      ))}
    </Sheet>
  );
}

function TakeBack({ grant, path, reload }: { grant: GrantView; path: string; reload: () => void }): ReactElement {
  const { api, confirm } = useApp();
  const act = useAct();
  const name = `${grant.kind} ${nameText(grant.name, 120)}`;
  const remove = async (): Promise<void> => {
    if (!(await confirm({ title: `No longer share it with ${name}?`, body: 'What was downloaded stays where it is.', yes: 'Remove' }))) return;
    if (await act(() => api.del(`${path}?kind=${grant.kind}&name=${encodeURIComponent(grant.name)}`))) reload();
  };
  return (
    <ActionButton label="Remove" onRun={remove}>
      Remove …<span className="det-hidden"> {name}</span>
    </ActionButton>
  );
}

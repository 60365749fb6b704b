/** The members of a workspace: who has which role, and a form that adds one. */

import { ReactElement, useState } from 'react';

import { asApiError, type ApiError } from '../../state/api';
import { useApp, useStore } from '../../state/context';
import type { MemberList, MemberRequest, MemberView, WorkspaceView } from '../../state/wire';
import { Ago, Sheet } from '../admin/parts';
import { ActionButton, EmptyState, ErrorBanner, Loading, useLoaded } from '../common';
import { nameText } from '../common/text';
import { useRechecked } from '../common/loading/rights';
import { notAdmin, ROLES, type RoleName, workspacePath } from './model';

/** `onLeft`: the user has left it, or is no admin any more. */
export function Members({ workspace, onLeft, onChanged }: { workspace: WorkspaceView; onLeft: () => void; onChanged: () => void }): ReactElement {
  const { api } = useApp();
  const me = useStore(s => s.me);
  const path = `${workspacePath(workspace.id)}/members`;
  const { data, error, reload } = useLoaded(path, signal => api.get<MemberList>(path, signal));
  useRechecked(reload);
  const [refused, setRefused] = useState<ApiError | null>(null);
  const why = notAdmin(me, workspace);
  const act = async (work: () => Promise<unknown>): Promise<boolean> => {
    setRefused(null);
    try {
      await work();
    } catch (caught) {
      setRefused(asApiError(caught));
      reload();
      return false;
    }
    reload();
    onChanged();
    return true;
  };
  const put = (to: MemberRequest): Promise<boolean> => act(() => api.replace<MemberList>(path, to));
  const remove = (of: MemberView): Promise<boolean> => act(() => api.del(`${path}?kind=${of.kind}&name=${encodeURIComponent(of.name)}`));
  return (
    <div className="det-labels">
      <ul className="det-roles det-soft">{ROLES.map(([role, may]) => <li key={role}><b>{role}</b> {may}</li>)}</ul>
      {why === null && <Add onAdd={put} />}
      {refused && <ErrorBanner error={refused} />}
      {error && <ErrorBanner error={error} what="Members" onRetry={reload} />}
      {!data && !error && <Loading what="Loading the members" />}
      {data && !data.items.length && <EmptyState title="It has no members." />}
      {data && data.items.length > 0 && (
        <Rows
          items={data.items} why={why} me={me?.name ?? ''} place={nameText(workspace.name, 80)} onRole={(member, role) => put({ kind: member.kind, name: member.name, role })}
          onRemove={async (member, leaving) => { if ((await remove(member)) && leaving) onLeft(); }}
        />
      )}
    </div>
  );
}

function Add({ onAdd }: { onAdd: (to: MemberRequest) => Promise<boolean> }): ReactElement {
  const { notify } = useApp();
  const [kind, setKind] = useState<MemberView['kind']>('user');
  const [name, setName] = useState('');
  const [role, setRole] = useState<RoleName>('viewer');
  const why = name.trim() ? null : 'Enter the name of a user or group.';
  const add = async (): Promise<void> => {
    if (why || !(await onAdd({ kind, name: name.trim(), role }))) return;
    notify(`${kind} ${nameText(name.trim(), 60)} is ${role}`, 'good');
    setName('');
  };
  return (
    <form className="det-adm-filters" aria-label="Add a member" onSubmit={event => { event.preventDefault(); void add(); }}>
      <select className="det-input" aria-label="Kind" value={kind} onChange={event => setKind(event.target.value as MemberView['kind'])}>
        <option value="user">user</option>
        <option value="group">group</option>
      </select>
      <input className="det-input" aria-label="Name" placeholder="Name in the Hub" value={name} autoComplete="off" onChange={event => setName(event.target.value)} />
      <RoleChoice label="Role" role={role} onChange={setRole} />
      <ActionButton label="Add" primary why={why} onRun={add} />
      <button type="submit" hidden />
      <small className="det-soft">Names are not looked up: whoever signs in to the Hub by this one has the role.</small>
    </form>
  );
}

function RoleChoice({ label, role, onChange }: { label: string; role: RoleName; onChange: (role: RoleName) => void }): ReactElement {
  return (
    <select className="det-input" aria-label={label} value={role} onChange={event => onChange(event.target.value as RoleName)}>
      {ROLES.map(([name]) => <option key={name} value={name}>{name}</option>)}
    </select>
  );
}

function Rows({ items, why, me, place, onRole, onRemove }: {
  items: readonly MemberView[]; why: string | null; me: string; place: string;
  onRole: (member: MemberView, role: RoleName) => Promise<boolean>; onRemove: (member: MemberView, leaving: boolean) => Promise<void>;
}): ReactElement {
  const { confirm } = useApp();
  const head = (
    <>
      <th>User or group</th>
      <th>Role</th>
      <th className="det-adm-roomy">Added by</th>
      <th className="det-adm-roomy">When</th>
      <th><span className="det-hidden">Actions</span></th>
    </>
  );
  const ask = async (member: MemberView, leaving: boolean): Promise<void> => {
    const name = nameText(member.name, 80);
    const question = leaving
      ? { title: `Leave workspace ${place}?`, body: 'You no longer see what lies in it, but for what you have submitted yourself.', yes: 'Leave' }
      : { title: `Remove ${member.kind} ${name}?`, body: 'They no longer see what lies in it, at once; what they have submitted stays theirs.', yes: 'Remove' };
    if (await confirm(question)) await onRemove(member, leaving);
  };
  return (
    <Sheet label="Members" head={head}>
      {items.map(member => {
        const leaving = member.kind === 'user' && member.name === me;
        return (
          <tr key={`${member.kind} ${member.name}`} data-mine={leaving || undefined}>
            <td>{member.kind} <span className="det-adm-name"><bdi>{nameText(member.name, 120)}</bdi></span></td>
            <td>
              {why === null
                ? <RoleChoice label={`Role of ${member.kind} ${nameText(member.name, 80)}`} role={member.role} onChange={role => void onRole(member, role)} />
                : member.role}
            </td>
            <td className="det-adm-roomy"><span className="det-adm-name">{nameText(member.added_by, 60) || '–'}</span></td>
            <td className="det-adm-roomy"><Ago time={member.created_at} /></td>
            <td className="det-right">
              {(why === null || leaving) && (
                <ActionButton label={leaving ? 'Leave' : 'Remove'} onRun={() => ask(member, leaving)}>
                  {leaving ? 'Leave …' : 'Remove …'}<span className="det-hidden"> {member.kind} {nameText(member.name, 80)}</span>
                </ActionButton>
              )}
            </td>
          </tr>
        );
      })}
    </Sheet>
  );
}

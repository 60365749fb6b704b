"""The members of workspaces: users and Hub groups with a role, which gives rights to all that lies in one (I9)."""

from __future__ import annotations

from sqlalchemy.orm import Session

from detlab.errors import Conflict, NotFound
from detlab.pasted import word
from detlab.schemas.wire import GrantTo
from detlab.schemas.wire.workspaces import MemberList, MemberRequest, MemberView
from detlab_hub.core.rights import Action
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import person, workspace_for
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.projects.workspaces import personal_conflict
from detlab_hub.services.streams.reads import note_rights
from detlab_hub.store.queries import workspaces
from detlab_hub.store.queries.rights import USER
from detlab_hub.store.tables import MemberRow, WorkspaceRow, clean_text

MOST = 500
"""Members of one workspace."""


class MembersOfWorkspaces(Service):
    """Use cases of members. All raise NotFound for a workspace that the caller may not see."""

    async def list(self, caller: Caller, workspace: str) -> MemberList:
        """Return the members of a workspace. All who may read it may read them."""
        return await self._context.read(lambda s: _list(s, workspace_for(s, caller, workspace)))

    async def put(self, caller: Caller, workspace: str, request: MemberRequest) -> MemberList:
        """Make a user or a group a member, or give them another role.

        Raises:
            Conflict: It has too many members, it is personal, or it would be left without an admin.
            Forbidden: The caller is no admin of it.
        """

        def put(unit: UnitOfWork) -> MemberList:
            row = _changeable(unit, caller, workspace, Action.MEMBER_SET)
            known = workspaces.member(unit.session, row.id, request.kind, request.name)
            if known is None and len(workspaces.members(unit.session, row.id)) >= MOST:
                raise Conflict(f"workspace {row.name!r} has {MOST} members already", hint="Make a group a member.")
            if known is not None and request.role != "admin":
                _check_not_last(unit.session, row, known, f"would be its {request.role}")
            made = MemberRow(
                workspace_id=row.id,
                kind=request.kind,
                name=clean_text(request.name),
                role=request.role,
                added_by=caller.name,
                created_at=unit.now,
            )
            unit.session.merge(made)
            detail = f"{request.kind} {request.name} is {request.role}"
            _note(unit, caller, row, request, "member.set", detail)
            return _list(unit.session, row)

        return self._changed(await self._context.write(put))

    async def remove(self, caller: Caller, workspace: str, to: GrantTo) -> MemberList:
        """Remove a member; streams of what they saw by their role alone end. Members may leave by themselves.

        Raises:
            Conflict: It would be left without an admin.
            Forbidden: The caller is no admin of it.
            NotFound: That user or group is no member.
        """

        def remove(unit: UnitOfWork) -> MemberList:
            leaving = (to.kind, clean_text(to.name)) == (USER, person(caller).name)
            row = _changeable(unit, caller, workspace, Action.MEMBER_LEAVE if leaving else Action.MEMBER_REMOVE)
            known = workspaces.member(unit.session, row.id, to.kind, to.name)
            if known is None:
                raise NotFound(
                    f"the {to.kind} {to.name!r} is no member of workspace {row.name!r}",
                    hint=f"det workspace list-members {row.id}",
                )
            _check_not_last(unit.session, row, known, "would leave")
            unit.session.delete(known)
            _note(unit, caller, row, to, "member.remove", f"{to.kind} {to.name}")
            return MemberList(items=[]) if leaving else _list(unit.session, row)

        return self._changed(await self._context.write(remove))

    def _changed(self, found: MemberList) -> MemberList:
        self._context.rights_changed()
        return found


def _note(unit: UnitOfWork, caller: Caller, row: WorkspaceRow, to: GrantTo, action: str, detail: str) -> None:
    """Record a change, and have every read of the event log after it look up rights anew (I9)."""
    audit.note(unit, caller, action, f"workspace {row.id}", detail)
    note_rights(unit, row.id, [(to.kind, clean_text(to.name))])


def _changeable(unit: UnitOfWork, caller: Caller, workspace: str, action: Action) -> WorkspaceRow:
    row = workspace_for(unit.session, caller, workspace, action)
    if row.kind == workspaces.PERSONAL:
        raise personal_conflict(row, "has no members")
    return row


def _check_not_last(s: Session, row: WorkspaceRow, known: MemberRow, what: str) -> None:
    """Check that a workspace keeps a user who is its admin: a group may be empty tomorrow."""
    if known.kind != USER or known.role != "admin":
        return
    others = [one for one in workspaces.members(s, row.id) if (one.kind, one.role) == (USER, "admin")]
    if len(others) <= 1:
        named = word(f"{row.owner}/{row.name}")
        raise Conflict(
            f"{known.name} is the last user who is an admin of workspace {row.name!r}, and {what}",
            hint=f"Make somebody else an admin first: det workspace add-member {named} --user NAME --role admin",
        )


def _list(s: Session, row: WorkspaceRow) -> MemberList:
    s.flush()
    return MemberList(
        items=[
            MemberView.model_validate(
                {
                    "kind": one.kind,
                    "name": one.name,
                    "role": one.role,
                    "added_by": one.added_by,
                    "created_at": one.created_at,
                }
            )
            for one in workspaces.members(s, row.id)
        ]
    )

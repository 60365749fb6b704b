"""Where something is to lie: the workspace and the project that a config or a move names, for who may put it there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, and_, or_
from sqlalchemy.orm import Session

from detlab.errors import ConfigError, NotFound, Problem
from detlab.pasted import word
from detlab_hub.core.rights import Action
from detlab_hub.services.base.access import no_such, person, reference_to, workspace_for, workspaces_of_name
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.store.queries import workspaces
from detlab_hub.store.tables import ProjectRow, TaskRow, WorkspaceRow


@dataclass(frozen=True)
class Destination:
    """A workspace and a project in it.

    Attributes:
        workspace: None: the personal one of `owner`, which may not be there yet.
        project: None: the one for what names none, likewise.
        owner: Whose personal workspace it is.
    """

    workspace: WorkspaceRow | None
    project: ProjectRow | None
    owner: str

    @property
    def reference(self) -> str:
        """What everybody names the workspace by; empty: it is personal."""
        row = self.workspace
        return "" if row is None or row.kind == workspaces.PERSONAL else f"{row.owner}/{row.name}"

    @property
    def workspace_id(self) -> int | None:
        """None: the personal one of `owner`, if that is not there yet."""
        return None if self.workspace is None else self.workspace.id

    def made(self, unit: UnitOfWork) -> tuple[int, int]:
        """Return the ids of workspace and project, which are made if they are the ones that everybody has."""
        s, now = unit.session, unit.now
        place = workspaces.personal(s, self.owner, now) if self.workspace is None else self.workspace.id
        if self.project is not None:
            return place, self.project.id
        return place, workspaces.uncategorized(s, place, self.owner, now)


def destination_of(s: Session, caller: Caller, config: dict[str, Any]) -> Destination:
    """Return where a config says that its experiment is to lie.

    Raises:
        ConfigError: There is no such workspace for the caller, no such project in it, or it is archived.
        Forbidden: The caller may read it, and put nothing into it.
    """
    return _found(s, caller, config.get("workspace") or "", config.get("project") or "", person(caller).name)


def destination(s: Session, caller: Caller, workspace: str, project: str, owner: str) -> Destination:
    """Return the workspace and the project that texts name.

    Args:
        s: A session.
        caller: Who wants to put something there.
        workspace: As `access.workspace_for` takes it; empty: the personal one of `owner`.
        project: A name or an id, which needs no workspace; empty: the one for what names none.
        owner: Whose the thing is. Only their own lies in a personal workspace.

    Raises:
        ConfigError: There is no such workspace for the caller, no such project in it, or it is archived.
        Forbidden: The caller may read it, and put nothing into it.
    """
    try:
        return _found(s, caller, workspace, project, owner)
    except ConfigError as error:
        # No config names it, but a move or a model that is made.
        raise ConfigError(error.problems, "this cannot be the destination", hint=error.hint) from None


def _found(s: Session, caller: Caller, workspace: str, project: str, owner: str) -> Destination:
    if not workspace and (by_id := _project_by_id(s, caller, project)) is not None:
        workspace = str(by_id.workspace_id)
    row = _workspace(s, caller, workspace, owner)
    found = None
    if project and row is not None:
        found = workspaces.project_named(s, row.id, project)
    named = "" if row is None else reference_to(caller, row)
    if project and found is None and workspaces.key_of(project) != workspaces.key_of(workspaces.NOWHERE):
        place = f"in workspace {named!r}" if workspace else "in your personal workspace"
        hint = f"make it: det project create {word(named or workspaces.NOWHERE)} {word(project)}"
        raise ConfigError([Problem("project", f"there is no project {project!r} {place}", hint)])
    if row is not None and row.archived_at is not None:
        hint = f"det workspace unarchive {word(named)}"
        raise ConfigError([Problem("workspace", f"{named!r} is archived: it takes nothing new", hint)])
    if found is not None and found.archived_at is not None:
        hint = f"det project unarchive {word(named)} {word(found.name)}"
        raise ConfigError([Problem("project", f"{found.name!r} is archived: it takes nothing new", hint)])
    return Destination(row, found, owner)


def searched(s: Session, caller: Caller, workspace: str | None, project: str | None) -> tuple[int | None, int | None]:
    """Return the ids of the workspace and the project that a list is narrowed to; None: it is not.

    A project alone is one of the caller's personal workspace.

    Raises:
        NotFound: There is no such workspace for the caller, or no such project in it.
    """
    if workspace is None and project is None:
        return None, None
    if workspace is None and (by_id := _project_by_id(s, caller, project or "")) is not None:
        return by_id.workspace_id, by_id.id
    place = searched_workspace(s, caller, workspace or workspaces.NOWHERE)
    if project is None:
        return place.id, None
    found = workspaces.project_named(s, place.id, project)
    if found is None:
        hint = f"det workspace list-projects {word(workspace or workspaces.NOWHERE)}"
        raise no_such(f"there is no project {project[:300]!r} in workspace {place.name!r}", exists=False, hint=hint)
    return place.id, found.id


def tasks_in(s: Session, caller: Caller, workspace: str | None, project: str | None) -> Sequence[ColumnElement[bool]]:
    """Return the conditions on tasks of a workspace or a project that the caller may see.

    Raises:
        NotFound: There is no such workspace for the caller, or no such project in it.
    """
    place, folder = searched(s, caller, workspace, project)
    home = None if place is None else s.get(WorkspaceRow, place)
    inside: ColumnElement[bool] = TaskRow.workspace_id == place
    personal = home is None or home.kind == workspaces.PERSONAL
    owner = person(caller).name if home is None else home.owner
    if personal:  # what named no workspace lies there, and has none
        inside = or_(inside, and_(TaskRow.workspace_id.is_(None), TaskRow.owner == owner))
    if folder is None:
        return [inside]
    chosen = s.get_one(ProjectRow, folder)
    if personal and chosen.key == workspaces.key_of(workspaces.NOWHERE):
        return [inside, or_(TaskRow.project_id == folder, TaskRow.project_id.is_(None))]
    return [inside, TaskRow.project_id == folder]


def searched_workspace(s: Session, caller: Caller, name: str) -> WorkspaceRow:
    """Return the workspace that a list is narrowed to; of the caller's own one, if nothing lies there yet, a stand-in.

    Raises:
        NotFound: There is no such workspace for the caller.
    """
    mine = person(caller).name
    if workspaces.key_of(name) == workspaces.key_of(workspaces.NOWHERE):
        known = workspaces.of_owner(s, mine, workspaces.NOWHERE)
        return known or WorkspaceRow(id=-1, name=workspaces.NOWHERE, owner=mine, kind=workspaces.PERSONAL)
    return workspace_for(s, caller, name)


def _project_by_id(s: Session, caller: Caller, project: str) -> ProjectRow | None:
    """Return the project of an id, of any workspace that the caller may read."""
    row = workspaces.project_of_id(s, project)
    if row is None:
        return None
    try:
        workspace_for(s, caller, str(row.workspace_id))
    except NotFound:
        return None
    return row


def _how_to_make(name: str) -> str:
    """Return what helps where a workspace is not there, or not for this caller: they cannot tell."""
    owner, slash, rest = name.partition("/")
    if name.isdigit():
        return "those that you may see: det workspace list"
    if not slash:
        return f"make it: det workspace create {word(owner)}"
    return f"its admins may let you in, if it is there; or make one of yours: det workspace create {word(rest)}"


def _workspace(s: Session, caller: Caller, name: str, owner: str) -> WorkspaceRow | None:
    if not name or workspaces.key_of(name) == workspaces.key_of(workspaces.NOWHERE):
        return workspaces.of_owner(s, owner, workspaces.NOWHERE)
    try:
        row = workspace_for(s, caller, name, Action.PROJECT_CREATE)
    except NotFound as error:
        others = workspaces_of_name(s, caller, name)
        hint = error.hint if others else _how_to_make(name)
        raise ConfigError([Problem("workspace", error.message, hint)]) from error
    if row.kind == workspaces.PERSONAL and row.owner != owner:
        problem = f"is {row.owner}'s personal workspace: only their own lies there"
        raise ConfigError([Problem("workspace", problem, "det workspace create NAME makes one that can be shared")])
    return row

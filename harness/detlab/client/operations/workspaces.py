"""Operations on workspaces and their members."""

from __future__ import annotations

from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ValidationError

from detlab.client.operations.experiments import one
from detlab.client.transport.calls import Call, Flow, field_of, model
from detlab.errors import ConfigError, Problem
from detlab.schemas.wire import Archived, GrantKind
from detlab.schemas.wire.workspaces import (
    CreateWorkspace,
    EditWorkspace,
    MemberRequest,
    MemberView,
    RoleName,
    WorkspaceList,
    WorkspaceView,
)

_PAGE = 1000
Name = str | int
"""A workspace's name, `OWNER/NAME` or id; a project's name or id."""
_Body = TypeVar("_Body", bound=BaseModel)
_members = field_of("items", list[MemberView])


def workspaces(*, name: str | None = None, archived: Archived | None = None) -> Flow[list[WorkspaceView]]:
    """Fetch the workspaces in which one has a role, and one's personal one."""
    found: list[WorkspaceView] = []
    after: int | None = None
    while True:
        query = {"limit": _PAGE, "after": after, "name": name, "archived": archived}
        page: WorkspaceList = yield Call("GET", "workspaces", params=query, parse=model(WorkspaceList))
        found += page.items
        after = page.after
        if after is None:
            return found


def workspace(name: Name) -> Flow[WorkspaceView]:
    """Fetch a workspace."""
    return one(Call("GET", workspace_path(name), parse=model(WorkspaceView)))


def create_workspace(name: str, description: str = "") -> Flow[WorkspaceView]:
    """Make a workspace; not repeated, as a second one of its name would be refused."""
    body = checked(CreateWorkspace, {"name": name, "description": description})
    return one(Call("POST", "workspaces", json=body, parse=model(WorkspaceView), again=False))


def edit_workspace(name: Name, /, **changes: Any) -> Flow[WorkspaceView]:
    """Change fields of `EditWorkspace`; each names the wanted result, so this can safely be repeated."""
    body = checked(EditWorkspace, changes)
    return one(Call("POST", f"{workspace_path(name)}/edit", json=body, parse=model(WorkspaceView)))


def delete_workspace(name: Name) -> Flow[WorkspaceView]:
    """Delete a workspace in which nothing lies."""
    return one(Call("DELETE", workspace_path(name), parse=model(WorkspaceView), again=False))


def members(name: Name) -> Flow[list[MemberView]]:
    """List the members of a workspace."""
    return one(Call("GET", f"{workspace_path(name)}/members", parse=_members))


def set_member(name: Name, kind: GrantKind, who: str, role: RoleName) -> Flow[list[MemberView]]:
    """Give a user or a group a role."""
    body = checked(MemberRequest, {"kind": kind, "name": who, "role": role})
    return one(Call("PUT", f"{workspace_path(name)}/members", json=body, parse=_members))


def remove_member(name: Name, kind: GrantKind, who: str) -> Flow[list[MemberView]]:
    """Remove a member."""
    query = {"kind": kind, "name": who}
    return one(Call("DELETE", f"{workspace_path(name)}/members", params=query, parse=_members, again=False))


def workspace_path(name: Name) -> str:
    """Return the path of a workspace."""
    return f"workspaces/{quote(str(name), safe='')}"


def checked(cls: type[_Body], fields: dict[str, Any]) -> _Body:
    """Return a body.

    Raises:
        ConfigError: A field cannot have this value; all such fields are listed.
    """
    try:
        return cls.model_validate(fields)
    except ValidationError as error:
        problems = [
            Problem(".".join(map(str, found["loc"])), found["msg"].removeprefix("Value error, "))
            for found in error.errors()
        ]
        raise ConfigError(problems, "this cannot be said of a workspace or a project") from error

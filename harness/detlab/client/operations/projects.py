"""Operations on workspaces, their members, their projects, and moves between them."""

from __future__ import annotations

from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ValidationError

from detlab.client.operations.experiments import one
from detlab.client.transport.calls import Call, Flow, field_of, model
from detlab.errors import ConfigError, Problem
from detlab.schemas.wire import Archived, ExperimentView, GrantKind
from detlab.schemas.wire.projects import (
    CreateProject,
    CreateWorkspace,
    EditProject,
    EditWorkspace,
    MemberRequest,
    MemberView,
    MoveExperiment,
    MoveModel,
    ProjectList,
    ProjectView,
    RoleName,
    WorkspaceList,
    WorkspaceView,
)
from detlab.schemas.wire.registry import ModelView

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
    return one(Call("GET", _workspace(name), parse=model(WorkspaceView)))


def create_workspace(name: str, description: str = "") -> Flow[WorkspaceView]:
    """Make a workspace; not repeated, as a second one of its name would be refused."""
    body = _checked(CreateWorkspace, {"name": name, "description": description})
    return one(Call("POST", "workspaces", json=body, parse=model(WorkspaceView), again=False))


def edit_workspace(name: Name, /, **changes: Any) -> Flow[WorkspaceView]:
    """Change fields of `EditWorkspace`; each names the wanted result, so this can safely be repeated."""
    body = _checked(EditWorkspace, changes)
    return one(Call("POST", f"{_workspace(name)}/edit", json=body, parse=model(WorkspaceView)))


def delete_workspace(name: Name) -> Flow[WorkspaceView]:
    """Delete a workspace in which nothing lies."""
    return one(Call("DELETE", _workspace(name), parse=model(WorkspaceView), again=False))


def members(name: Name) -> Flow[list[MemberView]]:
    """List the members of a workspace."""
    return one(Call("GET", f"{_workspace(name)}/members", parse=_members))


def set_member(name: Name, kind: GrantKind, who: str, role: RoleName) -> Flow[list[MemberView]]:
    """Give a user or a group a role."""
    body = _checked(MemberRequest, {"kind": kind, "name": who, "role": role})
    return one(Call("PUT", f"{_workspace(name)}/members", json=body, parse=_members))


def remove_member(name: Name, kind: GrantKind, who: str) -> Flow[list[MemberView]]:
    """Remove a member."""
    query = {"kind": kind, "name": who}
    return one(Call("DELETE", f"{_workspace(name)}/members", params=query, parse=_members, again=False))


# --- projects


def projects(name: Name, *, archived: Archived | None = None) -> Flow[list[ProjectView]]:
    """Fetch the projects of a workspace."""
    found: list[ProjectView] = []
    after: int | None = None
    while True:
        query = {"limit": _PAGE, "after": after, "archived": archived}
        page: ProjectList = yield Call("GET", f"{_workspace(name)}/projects", params=query, parse=model(ProjectList))
        found += page.items
        after = page.after
        if after is None:
            return found


def project(workspace: Name, name: Name) -> Flow[ProjectView]:
    """Fetch a project."""
    return one(Call("GET", _project(workspace, name), parse=model(ProjectView)))


def create_project(workspace: Name, name: str, description: str = "", notes: str = "") -> Flow[ProjectView]:
    """Make a project; not repeated, as a second one of its name would be refused."""
    body = _checked(CreateProject, {"name": name, "description": description, "notes": notes})
    path = f"{_workspace(workspace)}/projects"
    return one(Call("POST", path, json=body, parse=model(ProjectView), again=False))


def edit_project(workspace: Name, name: Name, /, **changes: Any) -> Flow[ProjectView]:
    """Change fields of `EditProject`; each names the wanted result, so this can safely be repeated."""
    body = _checked(EditProject, changes)
    return one(Call("POST", f"{_project(workspace, name)}/edit", json=body, parse=model(ProjectView)))


def delete_project(workspace: Name, name: Name) -> Flow[ProjectView]:
    """Delete a project in which nothing lies."""
    return one(Call("DELETE", _project(workspace, name), parse=model(ProjectView), again=False))


# --- moves


def move_experiment(
    experiment_id: int, workspace: Name = "", project: Name = "", *, keep_storage: bool = False
) -> Flow[ExperimentView]:
    """Move an experiment to another project; it names the wanted place, so it can safely be repeated."""
    fields = {"workspace": str(workspace), "project": str(project), "keep_storage": keep_storage}
    path = f"experiments/{int(experiment_id)}/move"
    return one(Call("POST", path, json=_checked(MoveExperiment, fields), parse=model(ExperimentView)))


def move_model(name: Name, workspace: Name = "") -> Flow[ModelView]:
    """Move a model to another workspace; it names the wanted place, so it can safely be repeated."""
    path = f"models/{quote(str(name), safe='')}/move"
    body = _checked(MoveModel, {"workspace": str(workspace)})
    return one(Call("POST", path, json=body, parse=model(ModelView)))


def _workspace(name: Name) -> str:
    return f"workspaces/{quote(str(name), safe='')}"


def _project(workspace: Name, name: Name) -> str:
    return f"{_workspace(workspace)}/projects/{quote(str(name), safe='')}"


def _checked(cls: type[_Body], fields: dict[str, Any]) -> _Body:
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

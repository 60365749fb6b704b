"""Operations on the projects of a workspace, and moves between them."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from detlab.client.operations.experiments import one
from detlab.client.operations.workspaces import Name, checked, workspace_path
from detlab.client.transport.calls import Call, Flow, model
from detlab.schemas.wire import Archived, ExperimentView
from detlab.schemas.wire.projects import (
    CreateProject,
    EditProject,
    MoveExperiment,
    MoveModel,
    ProjectList,
    ProjectView,
)
from detlab.schemas.wire.registry import ModelView

_PAGE = 1000


def projects(name: Name, *, archived: Archived | None = None) -> Flow[list[ProjectView]]:
    """Fetch the projects of a workspace."""
    found: list[ProjectView] = []
    after: int | None = None
    while True:
        query = {"limit": _PAGE, "after": after, "archived": archived}
        page: ProjectList = yield Call(
            "GET", f"{workspace_path(name)}/projects", params=query, parse=model(ProjectList)
        )
        found += page.items
        after = page.after
        if after is None:
            return found


def project(workspace: Name, name: Name) -> Flow[ProjectView]:
    """Fetch a project."""
    return one(Call("GET", _project(workspace, name), parse=model(ProjectView)))


def create_project(workspace: Name, name: str, description: str = "", notes: str = "") -> Flow[ProjectView]:
    """Make a project; not repeated, as a second one of its name would be refused."""
    body = checked(CreateProject, {"name": name, "description": description, "notes": notes})
    path = f"{workspace_path(workspace)}/projects"
    return one(Call("POST", path, json=body, parse=model(ProjectView), again=False))


def edit_project(workspace: Name, name: Name, /, **changes: Any) -> Flow[ProjectView]:
    """Change fields of `EditProject`; each names the wanted result, so this can safely be repeated."""
    body = checked(EditProject, changes)
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
    return one(Call("POST", path, json=checked(MoveExperiment, fields), parse=model(ExperimentView)))


def move_model(name: Name, workspace: Name = "") -> Flow[ModelView]:
    """Move a model to another workspace; it names the wanted place, so it can safely be repeated."""
    path = f"models/{quote(str(name), safe='')}/move"
    body = checked(MoveModel, {"workspace": str(workspace)})
    return one(Call("POST", path, json=body, parse=model(ModelView)))


def _project(workspace: Name, name: Name) -> str:
    return f"{workspace_path(workspace)}/projects/{quote(str(name), safe='')}"

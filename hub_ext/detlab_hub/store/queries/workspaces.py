"""Workspaces and projects, made on first use."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from detlab_hub.store.prepared import PreparedStatement
from detlab_hub.store.tables import ProjectRow, WorkspaceRow, clean_text

_WORKSPACE = PreparedStatement(select(WorkspaceRow.id).where(WorkspaceRow.name == bindparam("name")))
_PROJECT = PreparedStatement(
    select(ProjectRow.id).where(ProjectRow.workspace_id == bindparam("workspace"), ProjectRow.name == bindparam("name"))
)
_LABELS = select(ProjectRow.id, WorkspaceRow.name, ProjectRow.name).join(
    WorkspaceRow, WorkspaceRow.id == ProjectRow.workspace_id
)
_LABEL = PreparedStatement(_LABELS.where(ProjectRow.id == bindparam("project")))


def ensure(s: Session, workspace: str, project: str, owner: str, now: float) -> tuple[int, int]:
    """Return (workspace id, project id), creating what is missing."""
    place = _WORKSPACE.scalar(s, {"name": clean_text(workspace)})
    if place is None:
        made = WorkspaceRow(name=workspace, owner=owner, created_at=now)
        s.add(made)
        s.flush()
        place = made.id
    found = _PROJECT.scalar(s, {"workspace": place, "name": clean_text(project)})
    if found is None:
        new = ProjectRow(workspace_id=place, name=project, owner=owner, created_at=now)
        s.add(new)
        s.flush()
        found = new.id
    return place, found


def labels(s: Session, project_ids: Collection[int]) -> dict[int, tuple[str, str]]:
    """Return project id -> (workspace name, project name)."""
    if len(project_ids) == 1:
        found = _LABEL.all(s, {"project": next(iter(project_ids))})
    else:
        found = list(s.execute(_LABELS.where(ProjectRow.id.in_(sorted(project_ids)))))
    return {project_id: (workspace, project) for project_id, workspace, project in found}

"""Workspaces and projects, made on first use."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab_hub.store.tables import ProjectRow, WorkspaceRow, clean_text


def ensure(s: Session, workspace: str, project: str, owner: str, now: float) -> tuple[int, int]:
    """Return (workspace id, project id), making what is missing."""
    place = s.scalar(select(WorkspaceRow).where(WorkspaceRow.name == clean_text(workspace)))
    if place is None:
        place = WorkspaceRow(name=workspace, owner=owner, created_at=now)
        s.add(place)
        s.flush()
    found = s.scalar(
        select(ProjectRow).where(ProjectRow.workspace_id == place.id, ProjectRow.name == clean_text(project))
    )
    if found is None:
        found = ProjectRow(workspace_id=place.id, name=project, owner=owner, created_at=now)
        s.add(found)
        s.flush()
    return place.id, found.id


def labels(s: Session, project_ids: Collection[int]) -> dict[int, tuple[str, str]]:
    """Return project id -> (workspace name, project name)."""
    query = (
        select(ProjectRow.id, WorkspaceRow.name, ProjectRow.name)
        .join(WorkspaceRow, WorkspaceRow.id == ProjectRow.workspace_id)
        .where(ProjectRow.id.in_(sorted(project_ids)))
    )
    return {project_id: (workspace, project) for project_id, workspace, project in s.execute(query)}

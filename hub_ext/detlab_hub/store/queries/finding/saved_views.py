"""Saved views: a user's own, and those of projects that they may read."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from sqlalchemy import ColumnElement, Select, delete, func, or_, select
from sqlalchemy.orm import Session

from detlab_hub.core.rights import Person
from detlab_hub.store.queries.workspaces import visible_to
from detlab_hub.store.tables import ProjectRow, SavedViewRow, WorkspaceRow, clean_text


def page(s: Session, owner: str, viewer: Person, table: str | None, limit: int, after: int | None) -> list[int]:
    """Return the ids of the views of a user and of the projects that a person may read, the oldest first."""
    query = select(SavedViewRow.id).where(_had_by(owner, viewer)).order_by(SavedViewRow.id).limit(limit)
    if table is not None:
        query = query.where(SavedViewRow.table_name == table)
    return list(s.scalars(query if after is None else query.where(SavedViewRow.id > after)))


def named(s: Session, owner: str, table: str, name: str) -> SavedViewRow | None:
    """Return a user's view of a table by its name."""
    query = select(SavedViewRow).where(
        SavedViewRow.owner == owner, SavedViewRow.table_name == table, SavedViewRow.name == clean_text(name)
    )
    return s.scalar(query)


def readable_projects(s: Session, viewer: Person, ids: Collection[int]) -> set[int]:
    """Return those of some projects whose views a user has."""
    return set(s.scalars(_projects(viewer).where(ProjectRow.id.in_(sorted(ids))))) if ids else set()


def _had_by(owner: str, viewer: Person) -> ColumnElement[bool]:
    return or_(SavedViewRow.owner == owner, SavedViewRow.project_id.in_(_projects(viewer)))


def _projects(viewer: Person) -> Select[int]:
    """Return the query of projects in workspaces where a user has a role: an administrator is not offered all views."""
    query = select(ProjectRow.id).join(WorkspaceRow, WorkspaceRow.id == ProjectRow.workspace_id)
    return query.where(visible_to(replace(viewer, admin=False)))


def count(s: Session, owner: str) -> int:
    """Return how many views a user has."""
    return s.scalar(select(func.count()).select_from(SavedViewRow).where(SavedViewRow.owner == owner)) or 0


def remove(s: Session, row: SavedViewRow) -> None:
    """Remove a view."""
    s.execute(delete(SavedViewRow).where(SavedViewRow.id == row.id))

"""Pages of what clients of MLflow take for experiments, and of the models that runs in them have logged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, or_, select
from sqlalchemy.orm import Session

from detlab_hub.store.tables import ProjectRow, TrackedModelRow, TrackedRunRow, WorkspaceRow


def projects(
    s: Session,
    visible: ColumnElement[bool],
    conditions: Sequence[ColumnElement[bool]],
    order: Sequence[Any],
    *,
    archived: bool | None,
    skip: int,
    limit: int,
) -> list[int]:
    """Return the ids of projects, the newest first, and one more than `limit` if there are more."""
    query = select(ProjectRow.id).join(WorkspaceRow, WorkspaceRow.id == ProjectRow.workspace_id)
    query = query.where(visible, *conditions)
    if archived is not None:
        query = query.where(ProjectRow.archived_at.is_not(None) if archived else ProjectRow.archived_at.is_(None))
    query = query.order_by(*order, ProjectRow.created_at.desc(), ProjectRow.id.desc())
    return list(s.scalars(query.offset(skip).limit(limit + 1)))


def models(
    s: Session,
    project_ids: Sequence[int],
    experiment_ids: Sequence[int],
    conditions: Sequence[ColumnElement[bool]],
    *,
    skip: int,
    limit: int,
) -> list[str]:
    """Return the ids of models that runs have logged, the newest first, and one more than `limit` if there are more."""
    run, row = TrackedRunRow, TrackedModelRow
    query = select(row.id).join(run, run.id == row.run_id).where(run.deleted_at.is_(None), *conditions)
    query = query.where(or_(run.project_id.in_(project_ids), run.experiment_id.in_(experiment_ids)))
    query = query.order_by(row.created_at.desc(), row.id)
    return list(s.scalars(query.offset(skip).limit(limit + 1)))

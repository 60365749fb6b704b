"""Templates: by name, in pages, and those that stand on one."""

from __future__ import annotations

from sqlalchemy import ColumnElement, func, or_, select
from sqlalchemy.orm import Session

from detlab_hub.core.rights import Person
from detlab_hub.store.queries.workspaces import key_of, visible_to
from detlab_hub.store.tables import CLUSTER, TemplateRow, WorkspaceRow


def named(s: Session, workspace_id: int, name: str) -> TemplateRow | None:
    """Return the template of a name in a workspace; `CLUSTER`: of the cluster."""
    return s.scalar(
        select(TemplateRow).where(TemplateRow.workspace_id == workspace_id, TemplateRow.key == key_of(name))
    )


def page(s: Session, viewer: Person, limit: int, after: int | None, workspace_id: int | None = None) -> list[int]:
    """Return the ids of the templates that a user may see, in the order in which they were made, and one more."""
    query = select(TemplateRow.id).where(_visible(viewer)).order_by(TemplateRow.id).limit(limit + 1)
    if workspace_id is not None:
        query = query.where(TemplateRow.workspace_id == workspace_id)
    return list(s.scalars(query if after is None else query.where(TemplateRow.id > after)))


def _visible(viewer: Person) -> ColumnElement[bool]:
    theirs = select(WorkspaceRow.id).where(visible_to(viewer))
    return or_(TemplateRow.workspace_id == CLUSTER, TemplateRow.workspace_id.in_(theirs))


def count(s: Session, workspace_id: int) -> int:
    """Count the templates of a workspace."""
    return s.scalar(select(func.count()).where(TemplateRow.workspace_id == workspace_id)) or 0


def standing_on(s: Session, template_id: int) -> list[TemplateRow]:
    """Return the templates that stand directly on one."""
    return list(s.scalars(select(TemplateRow).where(TemplateRow.base_id == template_id).order_by(TemplateRow.id)))

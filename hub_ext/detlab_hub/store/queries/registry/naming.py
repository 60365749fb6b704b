"""What models and artifacts have in common: a name that is unique for its owner, and the workspace where it lies."""

from __future__ import annotations

from typing import TypeVar

from sqlalchemy import ColumnElement, Select, func, or_, select
from sqlalchemy.orm import Session

from detlab.schemas.script_names import normal
from detlab_hub.store.tables import ArtifactRow, ModelRow, WorkspaceRow, clean_text

R = TypeVar("R", ModelRow, ArtifactRow)
_ID_DIGITS = 18


def named(s: Session, table: type[R], name: str, asker: str) -> R | None:
    """Return the one that a text means: by its id, `OWNER/NAME`, or else the asker's own of that name."""
    text = clean_text(name)
    if text.isascii() and text.isdigit():
        return s.get(table, int(text)) if len(text) <= _ID_DIGITS else None
    owner, slash, rest = text.rpartition("/")
    return of_owner(s, table, owner if slash else asker, rest)


def of_owner(s: Session, table: type[R], owner: str, name: str) -> R | None:
    """Return somebody's one of a name."""
    return s.scalars(select(table).where(table.owner == owner, table.name == normal(clean_text(name)))).first()


def of_name(s: Session, table: type[R], name: str, visible: ColumnElement[bool], most: int) -> list[R]:
    """Return those of a name, the oldest first."""
    query = select(table).where(table.name == normal(clean_text(name)), visible)
    return list(s.scalars(query.order_by(table.id).limit(most)))


def page_of(
    table: type[R],
    visible: ColumnElement[bool],
    *,
    limit: int,
    after: int | None = None,
    name: str | None = None,
    owner: str | None = None,
    workspace: WorkspaceRow | None = None,
) -> Select[int]:
    """Select ids, newest first, and one more than `limit` if there are; `after` is the last one seen."""
    query = select(table.id).where(visible).order_by(table.id.desc()).limit(limit + 1)
    if after is not None:
        query = query.where(table.id < after)
    if name:
        text = normal(clean_text(name))  # SQLite knows the small letters of ASCII only
        alike = func.lower(table.name).contains(text.lower(), autoescape=True)
        query = query.where(or_(alike, table.name.contains(text, autoescape=True)))
    if owner:
        query = query.where(table.owner == clean_text(owner))
    if workspace is not None and workspace.kind == "personal":
        query = query.where(table.workspace_id.is_(None), table.owner == workspace.owner)
    elif workspace is not None:
        query = query.where(table.workspace_id == workspace.id)
    return query

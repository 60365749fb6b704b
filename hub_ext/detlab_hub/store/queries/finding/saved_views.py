"""Saved views, each under its owner's name: nobody asks for those of somebody else."""

from __future__ import annotations

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from detlab_hub.store.tables import SavedViewRow, clean_text


def page(s: Session, owner: str, table: str | None, limit: int, after: int | None) -> list[int]:
    """Return the ids of a user's views, the oldest first."""
    query = select(SavedViewRow.id).where(SavedViewRow.owner == owner).order_by(SavedViewRow.id).limit(limit)
    if table is not None:
        query = query.where(SavedViewRow.table_name == table)
    return list(s.scalars(query if after is None else query.where(SavedViewRow.id > after)))


def named(s: Session, owner: str, table: str, name: str) -> SavedViewRow | None:
    """Return a user's view of a table by its name."""
    query = select(SavedViewRow).where(
        SavedViewRow.owner == owner, SavedViewRow.table_name == table, SavedViewRow.name == clean_text(name)
    )
    return s.scalar(query)


def count(s: Session, owner: str) -> int:
    """Return how many views a user has."""
    return s.scalar(select(func.count()).select_from(SavedViewRow).where(SavedViewRow.owner == owner)) or 0


def remove(s: Session, row: SavedViewRow) -> None:
    """Remove a view."""
    s.execute(delete(SavedViewRow).where(SavedViewRow.id == row.id))

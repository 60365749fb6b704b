"""Parts of statements that differ between the two databases, and splitting lists to a statement's size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from sqlalchemy import Insert, Table
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.orm import Session

CHUNK = 500

T = TypeVar("T")


def chunks(items: Sequence[T], size: int = CHUNK) -> Iterator[Sequence[T]]:
    """Split `items` so that each part fits in one statement's parameters."""
    for begin in range(0, len(items), size):
        yield items[begin : begin + size]


def _dialect_insert(s: Session, table: Table) -> Any:
    postgres = s.get_bind().dialect.name == "postgresql"
    return postgresql_insert(table) if postgres else sqlite_insert(table)


def upsert(s: Session, table: Table, key: Sequence[str], columns: Sequence[str]) -> Insert:
    """Return an INSERT that replaces `columns` where a row with this `key` exists."""
    statement = _dialect_insert(s, table)
    changes = {column: getattr(statement.excluded, column) for column in columns}
    result: Insert = statement.on_conflict_do_update(index_elements=list(key), set_=changes)
    return result


def insert_or_ignore(s: Session, table: Table) -> Insert:
    """Return an INSERT that leaves an existing row unchanged."""
    result: Insert = _dialect_insert(s, table).on_conflict_do_nothing()
    return result

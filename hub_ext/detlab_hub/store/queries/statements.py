"""Parts of statements that differ between the databases, lists split to a statement's size, rows that fit a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar

from sqlalchemy import Boolean, ColumnElement, Insert, Table, Text, cast, func, literal, select
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import Session
from sqlalchemy.sql.functions import FunctionElement

from detlab_hub.store.tables.base import Base, CleanText, Json, clean_text

CHUNK = 500
READ_BYTES = 16 * 1024 * 1024
"""Of texts in the rows that are read for one page."""
MEASURED = 50
"""Rows that are measured at a time: the first that do not fit end it."""

T = TypeVar("T")
R = TypeVar("R", bound=Base)


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


# --- texts


class TextHolds(FunctionElement[bool]):
    """Whether a text holds another one, whatever the case of ASCII letters: the same on both databases."""

    type = Boolean()
    inherit_cache = True
    name = "text_holds"


@compiles(TextHolds, "sqlite")
def _on_sqlite(element: TextHolds, compiler: Any, **kw: Any) -> str:
    column, wanted = element.clauses
    return f"(instr(lower({compiler.process(column, **kw)}), {compiler.process(wanted, **kw)}) > 0)"


@compiles(TextHolds, "postgresql")
def _on_postgresql(element: TextHolds, compiler: Any, **kw: Any) -> str:
    column, wanted = element.clauses
    return f'(strpos(lower({compiler.process(column, **kw)} COLLATE "C"), {compiler.process(wanted, **kw)}) > 0)'


def text_holds(column: Any, wanted: str) -> ColumnElement[bool]:
    """Return the condition that a column's text holds another one, whatever the case of ASCII letters."""
    folded = clean_text(wanted).encode().lower().decode()
    return TextHolds(column, literal(folded, Text()))


# --- rows of a page


@dataclass(frozen=True)
class RowPage(Generic[R]):
    """Rows of a list, and whether there are more."""

    rows: list[R]
    more: bool


def first_that_fit(s: Session, table: type[R], keys: Sequence[Any], most: int) -> RowPage[R]:
    """Load rows by their primary keys, in that order, up to `most` and as many as `READ_BYTES` hold, one at least.

    Each may hold a megabyte, and a page a thousand of them. They are measured in the database before they are read.
    """
    chosen = fitting(s, table, keys[:most])
    key, _ = _measure(table)
    rows: dict[Any, R] = {}
    for some in chunks(chosen):
        rows.update((getattr(row, key.key), row) for row in s.scalars(select(table).where(key.in_(some))))
    return RowPage([rows[one] for one in chosen if one in rows], len(keys) > len(chosen))


def fitting(s: Session, table: type[Base], keys: Sequence[Any]) -> list[Any]:
    """Return the first keys whose rows `READ_BYTES` hold, one at least if there is one."""
    key, size = _measure(table)
    chosen: list[Any] = []
    total = 0
    for part in chunks(list(keys), MEASURED):
        sizes: dict[Any, int] = {}
        sizes.update((row[0], row[1]) for row in s.execute(select(key, size).where(key.in_(part))))
        for one in part:
            total += sizes.get(one, 0)
            if total > READ_BYTES and chosen:
                break
            chosen.append(one)
        if total > READ_BYTES:
            break
    return chosen


@cache
def _measure(table: type[Base]) -> tuple[Any, ColumnElement[int]]:
    """Return the key of a table, and the length of all texts of a row."""
    (key,) = table.__table__.primary_key.columns
    texts = [column for column in table.__table__.columns if isinstance(column.type, CleanText | Json)]
    size: ColumnElement[int] = literal(0)
    for column in texts:
        size = size + func.coalesce(func.length(cast(column, Text)), 0)
    return getattr(table, key.key), size

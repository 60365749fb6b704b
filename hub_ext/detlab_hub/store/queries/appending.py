"""Appending rows the way each database takes them fastest: thousands come by each second.

Tuples go to the driver as they are; many points go to PostgreSQL by COPY, a sixth of the cost of so many INSERTs. All
is part of the session's transaction. Rows must be new: a key that exists is an error here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

PointRow: TypeAlias = tuple[int, int, int, float | None, int, float]
"""series_id, step, run, value, flag, time"""
COLUMNS = ("series_id", "step", "run", "value", "flag", "time")
COPY_FROM = 20
"""Rows from which a COPY, which takes a few messages, is worth it."""

_COPY = f"COPY points ({', '.join(COLUMNS)}) FROM STDIN"


def append_rows(s: Session, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert rows as the driver takes them: their values are not converted."""
    connection = s.connection()
    mark = "?" if connection.dialect.name == "sqlite" else "%s"
    names, marks = ", ".join(columns), ", ".join([mark] * len(columns))
    connection.exec_driver_sql(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(rows))  # noqa: S608  (our names)


def append_points(s: Session, rows: Sequence[PointRow]) -> None:
    """Insert points that are not there yet."""
    connection = s.connection()
    if connection.dialect.name == "postgresql" and len(rows) >= COPY_FROM:
        _copy(connection, rows)
    else:
        append_rows(s, "points", COLUMNS, rows)


def _copy(connection: Connection, rows: Sequence[PointRow]) -> None:
    driver: Any = connection.connection.driver_connection
    dialect: Any = connection.dialect
    text = "".join([_line(row) for row in rows])
    try:
        with driver.cursor() as cursor, cursor.copy(_COPY) as copy:
            copy.write(text)
    except dialect.dbapi.Error as error:
        lost = dialect.is_disconnect(error, driver, None)
        if lost:
            connection.invalidate(error)
        # As SQLAlchemy would have it: the store judges by that.
        raise DBAPIError.instance(
            _COPY, None, error, dialect.dbapi.Error, connection_invalidated=lost, dialect=dialect
        ) from error


def _line(row: PointRow) -> str:
    series_id, step, run, value, flag, time = row
    shown = "\\N" if value is None else repr(value)
    return f"{series_id}\t{step}\t{run}\t{shown}\t{flag}\t{time!r}\n"

"""Rows of `series` while reports are folded into them: plain objects, read and written without the ORM.

A report of a thousand points changes eleven columns of each of its series. Setting a mapped attribute costs a hundred
times as much as the addition, and a flush more than the write; nothing else in a transaction of reports needs mapped
rows of series.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cache
from operator import attrgetter
from typing import Any

from sqlalchemy import ColumnElement, Table, insert, select
from sqlalchemy.orm import Session

from detlab_hub.store.prepared import driver_of, fetch, run_many
from detlab_hub.store.queries.appending import COLUMNS, PointRow, append_points
from detlab_hub.store.tables import MetricSeries
from detlab_hub.store.values import FINITE

_SERIES: Table = MetricSeries.__table__


@dataclass(slots=True, eq=False)
class SeriesLine:
    """A row of `series`; see `tables.Series` for what its columns mean. `save` writes what was changed."""

    id: int
    trial_id: int
    group_name: str
    name_id: int
    count: int = 0
    nan_count: int = 0
    posinf_count: int = 0
    neginf_count: int = 0
    finite_sum: float = 0.0
    min: float | None = None
    max: float | None = None
    last: float | None = None
    last_flag: int = FINITE
    last_step: int | None = None
    rolled_step: int | None = None
    unrolled: int = 0


_NAMES = tuple(column.name for column in fields(SeriesLine))
_CHANGING = _NAMES[4:]
_changing = attrgetter(*_CHANGING, "id")
SELECT = select(*(_SERIES.c[name] for name in _NAMES))
_INSERT = insert(_SERIES).returning(_SERIES.c.id, sort_by_parameter_order=True)
_INSERT_ARRAYS = (
    f"INSERT INTO series (trial_id, {', '.join(_CHANGING)}, group_name, name_id)"  # noqa: S608  (our names)
    f" SELECT {', '.join(['%s'] * (1 + len(_CHANGING)))}, fresh.group_name, fresh.name_id"
    " FROM unnest(%s::text[], %s::bigint[]) AS fresh (group_name, name_id) RETURNING id, group_name, name_id"
)


def where(s: Session, *conditions: ColumnElement[bool]) -> list[SeriesLine]:
    """Return the rows that meet conditions."""
    return made(s.connection().execute(SELECT.where(*conditions)))


def made(rows: Iterable[Sequence[Any]]) -> list[SeriesLine]:
    """Return the row that a `SELECT` has found."""
    return [SeriesLine(*row) for row in rows]


def add(s: Session, trial_id: int, keys: Sequence[tuple[str, int]]) -> list[SeriesLine]:
    """Make series without points of a trial, one for each (group, name id)."""
    rows = [SeriesLine(0, trial_id, group, name_id) for group, name_id in keys]
    if rows and driver_of(s)[0].dialect.name == "postgresql":
        # As arrays: so many parameters as ten thousand rows have take its driver seconds.
        groups, name_ids = [row.group_name for row in rows], [row.name_id for row in rows]
        same = [getattr(rows[0], name) for name in _CHANGING]
        found = fetch(s, _INSERT_ARRAYS, (trial_id, *same, groups, name_ids))
        numbers = {(group, name_id): row_id for row_id, group, name_id in found}
        for row in rows:
            row.id = numbers[row.group_name, row.name_id]
    elif rows:
        given = [{name: getattr(row, name) for name in _NAMES[1:]} for row in rows]
        for row, row_id in zip(rows, s.connection().execute(_INSERT, given).scalars(), strict=True):
            row.id = row_id
    return rows


def save(s: Session, rows: Iterable[SeriesLine]) -> None:
    """Write the changes of rows."""
    values = list(map(_changing, rows))
    if values:
        run_many(s, _update(driver_of(s)[0].dialect.name), values)


def append_point(s: Session, row: SeriesLine, point: PointRow) -> None:
    """Insert a point that does not exist yet and write the changes of its series.

    On PostgreSQL this is one statement, since the round trip is most of the cost.
    """
    if driver_of(s)[0].dialect.name == "postgresql":
        run_many(s, _INSERT_AND_UPDATE, [(*point, *_changing(row))])
    else:
        append_points(s, [point])
        save(s, [row])


@cache
def _update(dialect: str) -> str:
    mark = "?" if dialect == "sqlite" else "%s"
    changes = ", ".join([f"{name} = {mark}" for name in _CHANGING])
    return f"UPDATE series SET {changes} WHERE id = {mark}"  # noqa: S608  (our names)


_INSERT_AND_UPDATE = (
    f"WITH fresh AS (INSERT INTO points ({', '.join(COLUMNS)}) VALUES ({', '.join(['%s'] * len(COLUMNS))}))"  # noqa: S608  (our names)
    f" {_update('postgresql')}"
)

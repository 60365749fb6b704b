"""Statements that the master runs all the time, compiled once and handed to the driver as they are.

What Core does around each statement (a key of the cache, a context, a result of many modes) takes ten times as long as
SQLite takes for a row by its key. Here a statement is compiled once for each dialect, and what is left is the driver's
work and the conversion of those values that need one. Statements with lists (`expanding` parameters) are not for this.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Delete, Insert, Select, Update
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

Convert = Callable[[Any], Any]
ONE_TRANSACTION = "detlab_hub.store.prepared.one_transaction"
"""In `Session.info` of a session that is used for one transaction: its connection is asked for once."""
_FLOAT8 = 701
"""What PostgreSQL calls a double; it matters for numbers only, and all of ours that are not whole are doubles."""
_DRIVER = "detlab_hub.store.prepared.driver"


@dataclass(frozen=True)
class _Plan:
    """A statement as one driver takes it."""

    text: str
    order: tuple[str, ...] | None
    """Names of the parameters in their order; None where the driver takes them by name."""
    fixed: Mapping[str, Any]
    """Values that are part of the statement, as the driver takes them."""
    binds: Mapping[str, Convert]
    """Parameters whose values are converted."""
    results: tuple[tuple[int, Convert], ...]
    """Columns whose values are converted, by their place."""
    row: Callable[..., Any]
    """Makes a row of its values."""

    def values(self, given: Mapping[str, Any]) -> Any:
        """The parameters as the driver takes them."""
        if self.binds or self.fixed:
            converted = {
                name: self.binds[name](value) if name in self.binds else value for name, value in given.items()
            }
            given = {**self.fixed, **converted}
        return given if self.order is None else tuple([given[name] for name in self.order])

    def rows(self, cursor: Any) -> Iterator[Any]:
        """The rows of an answer."""
        found = cursor.fetchall()
        if not self.results:
            return map(self.row, found)
        return (self.row(self._converted(values)) for values in found)

    def _converted(self, values: Any) -> list[Any]:
        fresh = list(values)
        for place, convert in self.results:
            fresh[place] = convert(fresh[place])
        return fresh


class Prepared:
    """A statement of Core, run past Core.

    Args:
        statement: What is run; its values are named by `bindparam`, those of an INSERT or UPDATE by `given`, too.
        given: Columns that an INSERT or UPDATE sets from values of the same names.
    """

    def __init__(self, statement: Select[Any] | Insert | Update | Delete, given: tuple[str, ...] = ()) -> None:
        self._statement = statement
        self._given = given
        self._plans: dict[str, _Plan] = {}

    def run(self, s: Session, values: Mapping[str, Any]) -> int:
        """Run it; return how many rows it changed."""
        _, cursor = self._execute(s, values)
        return int(cursor.rowcount)

    def all(self, s: Session, values: Mapping[str, Any]) -> list[Any]:
        """Its rows, as named tuples."""
        plan, cursor = self._execute(s, values)
        return list(plan.rows(cursor))

    def first(self, s: Session, values: Mapping[str, Any]) -> Any:
        """Its first row, None if there is none."""
        plan, cursor = self._execute(s, values)
        return next(plan.rows(cursor), None)

    def scalar(self, s: Session, values: Mapping[str, Any]) -> Any:
        """The first value of its first row, None if there is none."""
        row = self.first(s, values)
        return None if row is None else row[0]

    def _execute(self, s: Session, values: Mapping[str, Any]) -> tuple[_Plan, Any]:
        connection, driver = driver_of(s)
        dialect = connection.dialect
        plan = self._plans.get(dialect.name)
        if plan is None:
            plan = self._plans[dialect.name] = _compile(self._statement, self._given, dialect)
        if _is_watched(connection):
            found = connection.exec_driver_sql(plan.text, plan.values(values))
            return plan, found.cursor if found.returns_rows else found
        try:
            return plan, driver.execute(plan.text, plan.values(values))
        except dialect.loaded_dbapi.Error as error:
            raise as_core_raises(error, plan.text, connection) from error


def run_many(s: Session, text: str, rows: Sequence[Sequence[Any]]) -> None:
    """Run a statement of the driver's once for each row of values, which are taken as they are."""
    connection, driver = driver_of(s)
    if _is_watched(connection):
        connection.exec_driver_sql(text, [tuple(row) for row in rows])
        return
    try:
        cursor = driver.cursor()
        cursor.executemany(text, rows)
        cursor.close()
    except connection.dialect.loaded_dbapi.Error as error:
        raise as_core_raises(error, text, connection) from error


def _is_watched(connection: Connection) -> bool:
    """Whether somebody listens to statements, who is not to miss those that are run past Core."""
    return bool(connection._has_events or connection.engine._has_events)


def _compile(statement: Any, given: tuple[str, ...], dialect: Dialect) -> _Plan:
    compiled = statement.compile(dialect=dialect, column_keys=list(given) or None)
    binds = {}
    fixed = {}
    for name, bind in compiled.binds.items():
        convert = bind.type.dialect_impl(dialect).bind_processor(dialect)
        if convert is not None:
            binds[name] = convert
        if not bind.required and bind.value is not None:
            fixed[name] = bind.value if convert is None else convert(bind.value)
    columns = getattr(statement, "selected_columns", None)
    if columns is None:
        columns = statement.exported_columns if statement.is_dml else ()
    names = [column.key for column in columns]
    results = []
    for place, column in enumerate(columns):
        convert = column.type.dialect_impl(dialect).result_processor(dialect, _FLOAT8)
        if convert is not None:
            results.append((place, convert))
    order = tuple(compiled.positiontup) if compiled.positional else None
    row = namedtuple("Row", names, rename=True)._make if names else tuple
    return _Plan(compiled.string, order, fixed, binds, tuple(results), row)


def driver_of(s: Session) -> tuple[Connection, Any]:
    """The connection of a session's transaction, of SQLAlchemy and of the driver, begun if need be."""
    known = s.info.get(_DRIVER)
    if known is None:
        connection = s.connection()
        known = connection, connection.connection.dbapi_connection
        if s.info.get(ONE_TRANSACTION):
            s.info[_DRIVER] = known
    found: tuple[Connection, Any] = known
    return found


def as_core_raises(error: Exception, statement: str, connection: Connection) -> DBAPIError:
    """An error of the driver as SQLAlchemy would have it: the store judges by that."""
    dialect = connection.dialect
    lost = dialect.is_disconnect(error, connection.connection.dbapi_connection, None)  # type: ignore[arg-type]
    if lost:
        connection.invalidate(error)
    raised = DBAPIError.instance(
        statement, None, error, dialect.loaded_dbapi.Error, connection_invalidated=lost, dialect=dialect
    )
    assert isinstance(raised, DBAPIError)
    return raised

"""Statements that the master runs all the time, compiled once and passed to the driver directly.

What Core does around each statement (a key of the cache, a context, a result of many modes) takes ten times as long as
SQLite takes for a row by its key. Here a statement is compiled once for each dialect; what remains is the driver's
work and the conversion of those values that need one. Statements with lists (`expanding` parameters) cannot be used.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from sqlalchemy import Connection, Delete, Insert, Select, Update
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

T = TypeVar("T")
Convert = Callable[[Any], Any]
Seen: TypeAlias = tuple[Any, T]
"""A row as the driver returned it, and the object made from it."""
_FLOAT8 = 701
"""PostgreSQL's type id of a double; needed for numbers only, and all of detlab's that are not integers are doubles."""
_DRIVER = "detlab_hub.store.prepared.driver"
"""In `Session.info`: the transaction, and the connection that was requested in it."""


@dataclass(frozen=True)
class _Plan:
    """A statement as one driver takes it."""

    text: str
    order: tuple[str, ...] | None
    """Names of the parameters in their order; None if the driver takes them by name."""
    fixed: Mapping[str, Any]
    """Values that are part of the statement, as the driver takes them."""
    binds: Mapping[str, Convert]
    """Parameters whose values are converted."""
    results: tuple[tuple[int, Convert], ...]
    """Columns whose values are converted, by their place."""
    row: Callable[..., Any]
    """Makes a row of its values."""

    def values(self, given: Mapping[str, Any]) -> Any:
        """Convert the parameters to what the driver takes."""
        if self.binds or self.fixed:
            converted = {
                name: self.binds[name](value) if name in self.binds else value for name, value in given.items()
            }
            given = {**self.fixed, **converted}
        return given if self.order is None else tuple([given[name] for name in self.order])

    def rows(self, found: Iterable[Any]) -> Iterator[Any]:
        """Return the driver's result as rows."""
        if not self.results:
            return map(self.row, found)
        return (self.row(self.converted(values)) for values in found)

    def converted(self, values: Any) -> list[Any]:
        """Return the driver's values of a row, converted by its columns."""
        fresh = list(values)
        for place, convert in self.results:
            fresh[place] = convert(fresh[place])
        return fresh


class PreparedStatement:
    """A statement of SQLAlchemy Core that runs without Core.

    Args:
        statement: The statement; its values are named by `bindparam`, those of an INSERT or UPDATE also by `given`.
        given: Columns that an INSERT or UPDATE sets from values of the same names.
    """

    def __init__(
        self, statement: Select[*tuple[Any, ...]] | Insert | Update | Delete, given: tuple[str, ...] = ()
    ) -> None:
        self._statement = statement
        self._given = given
        self._plans: dict[str, _Plan] = {}

    def run(self, s: Session, values: Mapping[str, Any]) -> int:
        """Run the statement; return how many rows it changed."""
        return int(self._execute(s, values, _changed)[1])

    def all(self, s: Session, values: Mapping[str, Any]) -> list[Any]:
        """Return its rows, as named tuples."""
        plan, found = self._execute(s, values, _fetched)
        return list(plan.rows(found))

    def again(
        self, s: Session, values: Mapping[str, Any], before: Mapping[Any, Seen[T]], make: Callable[..., T]
    ) -> dict[Any, Seen[T]]:
        """Return its rows by their first column, a key; an unchanged row is the same object as before.

        Args:
            s: A session.
            values: Values of the parameters.
            before: The previous result.
            make: Makes a row from its values.
        """
        plan, found = self._execute(s, values, _fetched)
        rows: dict[Any, Seen[T]] = {}
        for raw in found:
            seen = before.get(raw[0])
            if seen is None or seen[0] != raw:
                seen = raw, make(*(plan.converted(raw) if plan.results else raw))
            rows[raw[0]] = seen
        return rows

    def first(self, s: Session, values: Mapping[str, Any]) -> Any:
        """Return its first row, None if there is none."""
        plan, found = self._execute(s, values, _fetched)
        return next(plan.rows(found), None)

    def scalar(self, s: Session, values: Mapping[str, Any]) -> Any:
        """Return the first value of its first row, None if there is none."""
        row = self.first(s, values)
        return None if row is None else row[0]

    def _execute(self, s: Session, values: Mapping[str, Any], taken: Callable[[Any], T]) -> tuple[_Plan, T]:
        """Run it and read what is wanted from its cursor: reading a later row may fail, too."""
        connection, driver = driver_of(s)
        dialect = connection.dialect
        plan = self._plans.get(dialect.name)
        if plan is None:
            plan = self._plans[dialect.name] = _compile(self._statement, self._given, dialect)
        given = plan.values(values)
        try:
            if _is_watched(connection):
                found = connection.exec_driver_sql(plan.text, given)
                return plan, taken(found.cursor if found.returns_rows else found)
            return plan, taken(driver.execute(plan.text, given))
        except dialect.loaded_dbapi.Error as error:
            raise as_core_raises(error, plan.text, connection, driver) from error


def _changed(cursor: Any) -> int:
    changed: int = cursor.rowcount
    return changed


def _fetched(cursor: Any) -> list[Any]:
    found: list[Any] = cursor.fetchall()
    return found


def run_many(s: Session, text: str, rows: Sequence[Sequence[Any]]) -> None:
    """Run a statement in the driver's own form once for each row of values, which are passed on unchanged.

    Raises:
        DBAPIError: The driver failed, as SQLAlchemy would raise it.
    """
    connection, driver = driver_of(s)
    if _is_watched(connection):
        connection.exec_driver_sql(text, [tuple(row) for row in rows])
        return
    try:
        if len(rows) == 1:
            driver.execute(text, rows[0])
            return
        cursor = driver.cursor()
        cursor.executemany(text, rows)
        cursor.close()
    except connection.dialect.loaded_dbapi.Error as error:
        raise as_core_raises(error, text, connection, driver) from error


def fetch(s: Session, text: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Return the rows that a statement in the driver's own form finds, as the driver returns them.

    Raises:
        DBAPIError: The driver failed, as SQLAlchemy would raise it.
    """
    connection, driver = driver_of(s)
    try:
        cursor = connection.exec_driver_sql(text, values).cursor if _is_watched(connection) else None
        return _fetched(driver.execute(text, values) if cursor is None else cursor)
    except connection.dialect.loaded_dbapi.Error as error:
        raise as_core_raises(error, text, connection, driver) from error


def _is_watched(connection: Connection) -> bool:
    """Whether a listener to statements exists, which must not miss those that run without Core."""
    return bool(connection._has_events or connection.engine._has_events)


def _compile(statement: Any, given: tuple[str, ...], dialect: Dialect) -> _Plan:
    compiled = statement.compile(dialect=dialect, column_keys=list(given) or None)
    if compiled.insert_prefetch or compiled.update_prefetch:
        raise TypeError(f"columns whose default Core would work out are to be given: {compiled.string}")
    binds = {}
    fixed = {}
    for name, bind in compiled.binds.items():
        convert = bind.type.dialect_impl(dialect).bind_processor(dialect)
        if convert is not None:
            binds[name] = convert
        if not bind.required:
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
    row: Any = namedtuple("Row", names, rename=True) if names else None
    return _Plan(compiled.string, order, fixed, binds, tuple(results), row._make if names else tuple)


def driver_of(s: Session) -> tuple[Connection, Any]:
    """Return SQLAlchemy's and the driver's connection of a session's transaction; begin the transaction if need be."""
    transaction = s._transaction
    known = s.info.get(_DRIVER)
    # Asked for once in a transaction: a savepoint is made by asking, one that failed says so then.
    if known is None or known[0] is not transaction or not transaction.is_active:
        connection = s.connection()
        known = s.info[_DRIVER] = s._transaction, (connection, connection.connection.dbapi_connection)
    found: tuple[Connection, Any] = known[1]
    return found


def as_core_raises(error: Exception, statement: str, connection: Connection, driver: Any) -> DBAPIError:
    """Convert an error of the driver to what SQLAlchemy would raise: the store classifies by that."""
    dialect = connection.dialect
    lost = dialect.is_disconnect(error, driver, None)  # type: ignore[arg-type]  # the driver's own error
    if lost:
        connection.invalidate(error)
    raised = DBAPIError.instance(
        statement, None, error, dialect.loaded_dbapi.Error, connection_invalidated=lost, dialect=dialect
    )
    assert isinstance(raised, DBAPIError)
    return raised

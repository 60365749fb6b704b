"""Engines for SQLite and PostgreSQL, and what their errors mean.

On either database the writer's connection starts a real write transaction at once and readers see one snapshot per
read. SQLite runs with `synchronous=FULL`: an acknowledged commit has been fsynced.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import StaticPool

from detlab.pasted import word
from detlab_hub.store.errors import StoreError

BUSY_MS = 30_000
IDLE_MS = 15_000
"""PostgreSQL ends a write transaction in which the master does nothing for this long: a master that hangs, or whose
machine is lost, must not keep the lease's row locked and its successor waiting."""
ENDED_BY_A_BOUND = {"25P03", "25P04", "57P05"}
"""Codes with which PostgreSQL reports that it ended an idle transaction, one that took too long, or an idle connection,
and nothing else. The transaction has left nothing behind. The next write checks who has the lease by now."""
_UNBOUND = ("idle_session_timeout", "transaction_timeout")
"""Limits that an operator may have set for all connections (PostgreSQL 14, 17): the writer is idle whenever nothing
happens, and a migration may take any time."""
_DISK_FULL = "53100"
"""PostgreSQL has rolled this back, as SQLite has when it reports SQLITE_FULL. The master ends all the same, since it
cannot even renew its lease. It is restarted until it can."""
_LEAST_ROOM = 1 << 20
_PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",
    "PRAGMA foreign_keys=ON",
    f"PRAGMA busy_timeout={BUSY_MS}",
    "PRAGMA cache_size=-32768",
    "PRAGMA journal_size_limit=67108864",
    # What undoes a statement of a savepoint would else be a file in /var/tmp, whose disk may be full.
    "PRAGMA temp_store=MEMORY",
)


def parse_url(text: str) -> URL:
    """Return the URL with the driver we use: `sqlite:///path`, `postgresql://user@host/db`.

    Raises:
        StoreError: It is not a URL of one of the two databases.
    """
    try:
        url = make_url(text)
    except ArgumentError as error:
        raise StoreError(
            f"{text!r} is not a database URL: {error}",
            hint="set c.DetHub.db_url to sqlite:///path/to/file or postgresql://user@host/database",
        ) from error
    if url.drivername in {"postgresql", "postgres"}:
        url = url.set(drivername="postgresql+psycopg")
    if url.get_backend_name() not in {"sqlite", "postgresql"}:
        raise StoreError(
            f"detlab keeps its state in SQLite or PostgreSQL, not in {url.get_backend_name()!r}",
            hint="set c.DetHub.db_url to sqlite:///path/to/file or postgresql://user@host/database",
        )
    return url


def sqlite_path(url: URL) -> Path | None:
    """Return the file of an SQLite URL; None for PostgreSQL and for a database in memory."""
    if url.get_backend_name() != "sqlite" or url.database in {None, "", ":memory:"}:
        return None
    return Path(str(url.database).removeprefix("file:"))


def writer_engine(url: URL) -> Engine:
    """Return an engine with one connection, whose transactions take the write lock when they begin."""
    if url.get_backend_name() != "sqlite":
        engine = create_engine(url, pool_size=1, max_overflow=0, isolation_level="READ COMMITTED")

        @event.listens_for(engine, "connect")
        def durable(connection: Any, _record: Any) -> None:
            # A server may be set to answer before the disk has it; what we acknowledge must be on the disk.
            connection.execute("SET SESSION synchronous_commit TO on")
            connection.execute(f"SET SESSION idle_in_transaction_session_timeout TO {IDLE_MS}")
            # Those of them that this server knows.
            connection.execute(
                "SELECT set_config(name, '0', false) FROM pg_settings WHERE name = ANY(%s)", (list(_UNBOUND),)
            )
            connection.commit()

        return engine
    if sqlite_path(url) is None:
        engine = create_engine(url, poolclass=StaticPool, connect_args={"check_same_thread": False})
    else:
        engine = create_engine(url, pool_size=1, max_overflow=0)
    _sqlite_events(engine, begin="BEGIN IMMEDIATE", pragmas=_PRAGMAS)
    return engine


def reader_engine(url: URL, size: int) -> Engine:
    """Return an engine of `size` read-only connections; each transaction sees one snapshot."""
    if url.get_backend_name() != "sqlite":
        engine = create_engine(
            url, pool_size=size, max_overflow=0, pool_pre_ping=True, isolation_level="REPEATABLE READ"
        )

        @event.listens_for(engine, "connect")
        def read_only(connection: Any, _record: Any) -> None:
            connection.read_only = True  # its BEGIN says so: no statement of its own, and no listener for each begin

        return engine
    engine = create_engine(url, pool_size=size, max_overflow=0)
    _sqlite_events(engine, begin="BEGIN", pragmas=(*_PRAGMAS, "PRAGMA query_only=ON"))
    return engine


def _sqlite_events(engine: Engine, *, begin: str, pragmas: tuple[str, ...]) -> None:
    """Take over transactions from the sqlite3 module, which would start them too late."""

    @event.listens_for(engine, "connect")
    def connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        for pragma in pragmas:
            connection.execute(pragma).fetchall()

    def do_begin(dbapi_connection: Any) -> None:
        dbapi_connection.execute(begin)

    # Not by an event of the engine: where one listens, every statement asks who else does.
    engine.dialect.do_begin = do_begin  # type: ignore[method-assign]  # of this one dialect


def is_full(error: BaseException | None) -> bool:
    """Whether a database's own error reports a full disk."""
    if isinstance(error, sqlite3.Error):
        return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF == sqlite3.SQLITE_FULL
    return getattr(error, "sqlstate", None) == _DISK_FULL


def has_room(folder: Path) -> bool:
    """Whether a disk has usable room: SQLite reports a full one as an I/O error when it cannot share memory."""
    try:
        return shutil.disk_usage(folder).free >= _LEAST_ROOM
    except OSError:
        return True


def hint_of(error: BaseException | None, url: URL) -> str | None:
    """Return what to do about an error if it comes from a full disk; else None."""
    path = sqlite_path(url)
    if path is not None and (is_full(error) or not has_room(path.parent)):
        return (
            f"make room on its disk (df -h {word(path.parent)}); until then `det up` starts the master again and again"
        )
    if is_full(error):
        return "make room on the database server's disk; until then `det up` starts the master again and again"
    return None


class ErrorClass(Enum):
    """The class of a database error."""

    CALLER = "the statement was wrong; the store is fine"
    BUSY = "rolled back, may be tried again"
    BROKEN = "the store must stop"


_SQLITE_CALLER = {
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_RANGE,
    sqlite3.SQLITE_TOOBIG,
    sqlite3.SQLITE_INTERRUPT,
}
_POSTGRES_CALLER = {"0A", "21", "22", "23", "42", "54"}
_SQLITE_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def classify(error: DBAPIError, *, reading: bool = False) -> ErrorClass:
    """Classify an error as a wrong statement, a lock or a failing database; when in doubt, as failing.

    Args:
        error: What SQLAlchemy raised.
        reading: It came from a reader, for which "read-only" means a wrong statement.
    """
    original = error.orig
    if isinstance(original, sqlite3.Error):
        code = getattr(original, "sqlite_errorcode", None)
        if code is None:
            # Raised by the sqlite3 module itself, before the database saw anything (a bad binding, say).
            return ErrorClass.CALLER
        primary = code & 0xFF
        if primary in _SQLITE_CALLER or (reading and primary == sqlite3.SQLITE_READONLY):
            return ErrorClass.CALLER
        return ErrorClass.BUSY if primary in _SQLITE_BUSY else ErrorClass.BROKEN
    state = getattr(original, "sqlstate", None)
    if state is None:
        if error.connection_invalidated or type(original).__name__ == "OperationalError":
            return ErrorClass.BROKEN
        return ErrorClass.CALLER
    if state[:2] in _POSTGRES_CALLER or state in {"57014", "25P02"} or (reading and state == "25006"):
        return ErrorClass.CALLER
    if state[:2] == "40" or state == "55P03" or state in ENDED_BY_A_BOUND:
        return ErrorClass.BUSY
    return ErrorClass.BROKEN


def failure_in(error: BaseException) -> DBAPIError | None:
    """Return the database's own failure, not a wrong statement's, behind `error`; None if there is none.

    If a session cannot roll back what failed, it raises that error, with the cause behind it.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, DBAPIError) and classify(seen) is not ErrorClass.CALLER:
            return seen
        seen = seen.__context__
    return None


@contextlib.contextmanager
def patient(connection: Connection) -> Iterator[None]:
    """Allow the writer's transaction to be idle for as long as the block takes."""
    if connection.dialect.name != "postgresql":
        yield
        return
    connection.execute(text("SET LOCAL idle_in_transaction_session_timeout TO 0"))
    yield
    connection.execute(text(f"SET LOCAL idle_in_transaction_session_timeout TO {IDLE_MS}"))


def in_transaction(connection: Connection) -> bool:
    """Whether the driver is in a transaction that can still be committed; asks no server."""
    driver: Any = connection.connection.dbapi_connection
    if isinstance(driver, sqlite3.Connection):
        return driver.in_transaction
    return bool(driver.info.transaction_status.name == "INTRANS")

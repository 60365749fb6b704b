"""The store: one writer, readers beside it, a lease, and no further write after a failed one.

Query functions are plain functions of a `Session` (`detlab_hub.store.queries`); the store decides in which thread and
transaction they run. `write` returns after the commit (SQLite: after its fsync), so what it returned may be
acknowledged to the outside. Writes that wait for a commit share the next one (`store.groups`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import Any, Self, TypeVar

from sqlalchemy import Connection, Engine, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from detlab_hub.store import lease, migrate
from detlab_hub.store.copies import CopyPolicy, copy_before_migration
from detlab_hub.store.engine import (
    ErrorClass,
    classify,
    failure_in,
    hint_of,
    in_transaction,
    parse_url,
    patient,
    reader_engine,
    sqlite_path,
    writer_engine,
)
from detlab_hub.store.errors import LeaseLost, StoreBroken, StoreBusy, StoreDamaged, StoreError
from detlab_hub.store.groups import GroupingWriter, Outcome, QueuedWrite
from detlab_hub.store.lease import ProcessIdentity
from detlab_hub.store.prepared import driver_of
from detlab_hub.store.session import StoreSession
from detlab_hub.store.writer import StoreCall, reader_threads

T = TypeVar("T")
Clock = Callable[[], float]
_log = logging.getLogger(__name__)

READERS = 4
OPEN_LOCK = 0x6465746C6162
"""PostgreSQL advisory lock ("detlab") that serializes masters that start at the same time."""


class Store:
    """The master's database. Make one with `Store.open`.

    Attributes:
        epoch: The lease epoch; every write transaction checks that it is still ours.
        holder: Our name in the lease.
        url: The address, password hidden.
    """

    def __init__(
        self,
        url: URL,
        *,
        holder: str,
        clock: Clock,
        lease_ttl: float,
        writer: Executor | None,
        process: ProcessIdentity | None,
    ) -> None:
        self._url = url
        self.url = url.render_as_string(hide_password=True)
        self.holder = holder
        self.epoch = 0
        self._clock = clock
        self._ttl = lease_ttl
        self._process = process or ProcessIdentity.current()
        self._write_engine: Engine = writer_engine(url)
        self._connection: Connection | None = None
        """The writer's connection, from its first write on."""
        self._write_later: StoreCall[Any] = StoreCall(self._write, writes=True, awaited=True)
        self._write_now: StoreCall[Any] = StoreCall(self._write, writes=True, awaited=False)
        self._read_later: StoreCall[Any] = StoreCall(self._read, writes=False, awaited=True)
        self._read_now: StoreCall[Any] = StoreCall(self._read, writes=False, awaited=False)
        self._writer: Executor = writer or GroupingWriter(self._write_now, self._write_together)
        self._writing = threading.local()
        self._broken: StoreBroken | None = None
        self._closed = False
        self._released = False
        """Whether the lease is being released: later writes do not extend it."""
        private = url.get_backend_name() == "sqlite" and sqlite_path(url) is None
        self._inline_reads = private or writer is not None
        # A database in memory lives in its only connection: readers share it, and the writer's executor.
        self._read_engine = self._write_engine if private else reader_engine(url, READERS)
        self._readers = self._writer if self._inline_reads else reader_threads(READERS)

    # --- opening and closing ------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        url: str,
        *,
        holder: str,
        clock: Clock = time.time,
        lease_ttl: float = 15.0,
        writer: Executor | None = None,
        process: ProcessIdentity | None = None,
        upgrading: Callable[[], None] = lambda: None,
        copies: CopyPolicy | None = None,
    ) -> Self:
        """Open the database, take the lease and bring the schema up to date, in one transaction.

        Args:
            url: `sqlite:///path`, `sqlite://` (in memory) or `postgresql://user:password@host/database`.
            holder: Our name, shown to a second master that is refused.
            clock: Seconds since the epoch.
            lease_ttl: Seconds a lease lasts without renewal.
            writer: Runs the writes; default one thread, which groups them. A simulation gives an
                `InlineExecutor` (reads then run there, too).
            process: The process that holds the lease; a simulation may give another one than this.
            upgrading: Called before an older schema is brought up to date, which may take minutes.
            copies: How an older database is copied before that; None makes no copy.

        Raises:
            CannotCopy: No copy can be made, and one is required.
            LeaseHeld: Another live master has it.
            StoreDamaged: Not a sound database of detlab's.
            StoreTooNew: Written by a newer detlab.
            StoreError: It cannot be reached.
        """
        parsed = parse_url(url)
        migrate.check_file(parsed)
        store = cls(parsed, holder=holder, clock=clock, lease_ttl=lease_ttl, writer=writer, process=process)
        try:
            store._writer.submit(store._start, upgrading, copies).result()
        except BaseException:
            store._dispose()
            raise
        return store

    def _start(self, upgrading: Callable[[], None], copies: CopyPolicy | None) -> None:
        try:
            with Session(self._write_engine) as session, session.begin():
                connection = session.connection()
                if connection.dialect.name == "postgresql":
                    session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": OPEN_LOCK})
                now = self._clock()
                current = migrate.check_schema(connection, self.url)
                if current is not None:
                    # Before the migration: never alter a database under a master that uses it.
                    lease.check_free(session, now)
                if current is not None and current != migrate.revisions()[-1]:
                    upgrading()
                    self._migrate(connection, copies)
                    now = self._clock()
                else:
                    migrate.upgrade(connection)
                self.epoch = lease.take(session, holder=self.holder, process=self._process, now=now, ttl=self._ttl)
        except DBAPIError as error:
            reason = str(error.orig).strip()
            if "malformed" in reason or "not a database" in reason:
                raise StoreDamaged(
                    f"the database {self.url} is damaged: {reason}", hint="restore it from a backup, then det up"
                ) from error
            hint = hint_of(error.orig, self._url) or (
                "check c.DetHub.db_url and that the database runs and may be written to"
            )
            if classify(error) is ErrorClass.BUSY:
                hint = "a process that writes to it does not finish: a hung master? kill it (kill -9)"
            raise StoreError(f"the database {self.url} cannot be opened: {reason}", hint=hint) from error

    def _migrate(self, connection: Connection, copies: CopyPolicy | None) -> None:
        """Bring an older schema up to date, after a copy of the database."""
        schema = migrate.revisions()[-1]
        copy = None
        if copies is not None:
            with patient(connection):
                copy = copy_before_migration(self._url, schema, copies, _log.warning)
        if copy is not None:
            _log.warning("the database from before schema %s is kept in %s", schema, copy)
        try:
            migrate.upgrade(connection)
        except Exception as error:  # whatever it is, it is said with the way back
            reason = str(error.orig if isinstance(error, DBAPIError) else error).strip()
            kept = f"; the copy from before is {copy}" if copy is not None else ""
            cause = hint_of(error.orig, self._url) if isinstance(error, DBAPIError) else None
            back = "or install the version of detlab that you had: the database still fits it"
            raise StoreError(
                f"the database {self.url} cannot be brought to schema {schema}: {type(error).__name__}: {reason}."
                f" The change was undone{kept}",
                hint=f"{cause or 'see the whole error in the log, and report it'}; {back}",
            ) from error

    def close(self, *, release: bool = True) -> None:
        """Finish the writes under way, release the lease and close. A second call is harmless.

        Args:
            release: False leaves the lease as it is, as a crash would (simulations).
        """
        if self._closed:
            return
        try:
            if release and self._broken is None:
                self._released = True
                with contextlib.suppress(StoreBroken, StoreBusy):
                    self.write_sync(lambda session: lease.extend(session, self.epoch, 0.0))
        finally:
            self._dispose()

    def _dispose(self) -> None:
        self._closed = True
        self._writer.shutdown(wait=True)
        self._readers.shutdown(wait=True)
        if self._connection is not None:
            self._connection.close()
        self._read_engine.dispose()
        self._write_engine.dispose()

    # --- health -------------------------------------------------------------------------------------------

    @property
    def healthy(self) -> bool:
        """Whether the database can be written to, as far as is known."""
        return self._broken is None and not self._closed

    @property
    def broken_because(self) -> str | None:
        """Why the store stopped, for people; None while it is sound."""
        return None if self._broken is None else self._broken.message

    @property
    def broken_hint(self) -> str | None:
        """A hint of what to do about it."""
        return None if self._broken is None else self._broken.hint

    def _break(self, error: DBAPIError, doing: str) -> StoreBroken:
        broken = StoreBroken(
            f"the database {self.url} failed while {doing}: {str(error.orig).strip()}. "
            "Nothing more is written until the master is restarted",
            hint=hint_of(error.orig, self._url)
            or "see that the disk has room and is sound (df -h; dmesg), then: det down && det up",
        )
        if self._broken is None:
            self._broken = broken
        return broken

    def _busy(self, error: DBAPIError) -> StoreBusy:
        return StoreBusy(f"the database {self.url} rolled this back: {str(error.orig).strip()}")

    # --- reading and writing ------------------------------------------------------------------------------

    async def write(self, fn: Callable[[Session], T]) -> T:
        """Run `fn` in one write transaction and return its result after the commit.

        If the waiting task is cancelled, the write is either not started or completed. Rows that `fn` returns
        stay readable (they are detached, with all columns loaded).

        Raises:
            StoreBroken: An earlier write failed, or this one did: its outcome is unknown.
            StoreBusy: Rolled back; try again.
        """
        return await asyncio.wrap_future(self._submit(self._writer, self._write_later, fn))

    async def read(self, fn: Callable[[Session], T]) -> T:
        """Run `fn` on one snapshot, beside the writer.

        Raises:
            StoreBroken: It cannot be read.
            StoreBusy: The database ended the read; try again.
        """
        return await asyncio.wrap_future(self._submit(self._readers, self._read_later, fn))

    def write_sync(self, fn: Callable[[Session], T]) -> T:
        """Do what `write` does, for callers without an event loop. Never call it from inside a write.

        Raises:
            RuntimeError: It was called from inside a write.
        """
        if getattr(self._writing, "active", False):
            raise RuntimeError("a write inside a write: pass the session on instead")
        return self._submit(self._writer, self._write_now, fn).result()

    def read_sync(self, fn: Callable[[Session], T]) -> T:
        """Do what `read` does, for callers without an event loop."""
        if self._inline_reads:
            return self._submit(self._readers, self._read_now, fn).result()
        return self._read(fn)

    def _submit(self, executor: Executor, access: StoreCall[T], fn: Callable[[Session], T]) -> Future[T]:
        """Give a call to an executor.

        Raises:
            StoreBroken: The store was closed; requests that are still under way then hear that, and not of threads.
        """
        try:
            return executor.submit(access, fn)
        except RuntimeError as error:
            if not self._closed:
                raise
            why = "this master has stopped" if self._broken is None else self._broken.message
            raise StoreBroken(why, hint="try again: another one takes over, or it is started again") from error

    def renew_lease(self) -> None:
        """Extend the lease to its full time from now. Writes do so themselves when it has run down.

        Raises:
            LeaseLost: Another master has the lease; this one must stop.
        """
        self.write_sync(self._extend)

    async def renew(self) -> None:
        """Call `renew_lease` from the event loop; this needs no thread but the writer's own."""
        await self.write(self._extend)

    def _extend(self, session: Session) -> None:
        lease.extend(session, self.epoch, self._clock() + self._ttl)

    def _write(self, fn: Callable[[Session], T]) -> T:
        if self._broken is not None:
            raise StoreBroken(self._broken.message, hint=self._broken.hint) from self._broken
        try:
            with (
                self._mark_writing(),
                self._connected() as connection,
                StoreSession(connection) as session,
                session.begin(),
            ):
                expires_at = lease.check(session, self.epoch)
                result = fn(session)
                driver_of(session)  # raises where a flush failed and `fn` swallowed that: there is nothing to commit
                # Last, so that a write that took long does not end with a lease that ran out meanwhile.
                now = self._clock()
                if expires_at - now < self._ttl / 2 and not self._released:
                    lease.extend(session, self.epoch, now + self._ttl)
                return result
        except LeaseLost as error:
            self._broken = error
            raise
        except DBAPIError as error:
            verdict = classify(error)
            if verdict is ErrorClass.CALLER:
                raise
            if verdict is ErrorClass.BUSY:
                raise self._busy(error) from error
            raise self._break(error, "writing") from error

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Connection]:
        """Yield the writer's connection, which is kept: a trip to the pool and back takes as long as a small write.

        After an error the connection is returned to the pool, which resets it: a failed commit may have left its
        transaction open.
        """
        if self._connection is None:
            self._connection = self._write_engine.connect()
        try:
            yield self._connection
        except BaseException:
            connection, self._connection = self._connection, None
            connection.close()
            raise

    def _write_together(self, first: QueuedWrite, others: Iterable[QueuedWrite]) -> None:
        """Run several writes in one transaction and answer them after its commit, each with its own outcome.

        If one raises, only that one is undone. If the transaction or its commit fails, all of them fail.
        """
        outcomes = [Outcome(first)]

        def run(session: Session) -> None:
            connection = session.connection()
            self._run_one(connection, outcomes[0])
            for write in others:
                outcomes.append(Outcome(write))
                self._run_one(connection, outcomes[-1])

        try:
            self._write(run)
        except BaseException as error:  # each of them gets it, as from any executor
            for outcome in outcomes:
                # What one raised that is no error of the database, such as a cancellation, is not the others'.
                alone = isinstance(error, Exception) or outcome is outcomes[-1]
                outcome.result = None
                outcome.error = error if alone else StoreBusy(f"another write of the same transaction raised {error!r}")
        for outcome in outcomes:
            outcome.tell()

    def _run_one(self, connection: Connection, outcome: Outcome) -> None:
        """Run one write of a group, in a separate savepoint.

        Raises:
            DBAPIError: The database failed, not the write: nothing of this transaction can be kept.
            StoreBusy: The database has ended the transaction.
        """
        session = StoreSession(connection, join_transaction_mode="create_savepoint")
        try:
            outcome.result = outcome.write.fn(session)
            session.commit()  # of the savepoint
        except Exception as error:  # the waiting caller gets it
            if (failure := failure_in(error)) is not None:
                raise failure from error
            outcome.result, outcome.error = None, error
            try:
                session.rollback()
            except DBAPIError as lost:
                raise self._busy(lost) from error
        if not in_transaction(connection):
            # SQLite ends it by itself on some errors. What came next would be written outside of it, unfenced.
            raise StoreBusy(f"the database {self.url} rolled this back") from outcome.error
        session.close()

    def _read(self, fn: Callable[[Session], T]) -> T:
        try:
            with StoreSession(self._read_engine) as session, session.begin():
                return fn(session)
        except DBAPIError as error:
            verdict = classify(error, reading=True)
            if verdict is ErrorClass.CALLER:
                raise
            if verdict is ErrorClass.BUSY:
                raise self._busy(error) from error
            raise self._break(error, "reading") from error

    @contextlib.contextmanager
    def _mark_writing(self) -> Iterator[None]:
        self._writing.active = True
        try:
            yield
        finally:
            self._writing.active = False

"""A master that stands still in the middle of a write, with the database's locks, and the one that would take over."""

from __future__ import annotations

import select
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import errors
from sqlalchemy import text
from sqlalchemy.orm import Session

from detlab_hub.store import LeaseHeld, LeaseLost, Store, StoreBroken, StoreBusy, StoreError, engine
from detlab_hub.store.tables import ExperimentRow
from testbed.databases import postgres
from testbed.databases.store_rows import add_experiment

START = 1000.0
LATER = START + 3600.0
"""Long after the first one's lease ran out."""


@contextmanager
def standing_still(store: Store) -> Iterator[tuple[threading.Event, Future[int]]]:
    """A write that has written and does not end until the event is set."""
    writing, go_on = threading.Event(), threading.Event()

    def write(s: Session) -> int:
        made = add_experiment(s)
        writing.set()
        assert go_on.wait(60)
        return made

    with ThreadPoolExecutor(1) as pool:
        try:
            under_way = pool.submit(store.write_sync, write)
            assert writing.wait(20)
            yield go_on, under_way
        finally:
            go_on.set()


@pytest.mark.postgres
def test_a_master_that_stands_still_in_a_write_keeps_nobody_from_taking_over_on_postgresql(
    postgres_server: postgres.Server,
) -> None:
    """Without a bound the lease's row stayed locked, and the second one waited for as long as the first stood still."""
    postgres_server.sql("CREATE DATABASE standing_still")
    url = postgres_server.url("standing_still")
    first = Store.open(url, holder="first", clock=lambda: START)
    soon_ended(first)
    with standing_still(first) as (go_on, under_way), ThreadPoolExecutor(1) as pool:
        second = pool.submit(Store.open, url, holder="second", clock=lambda: LATER).result(60)
        go_on.set()
        with pytest.raises(StoreBusy):
            under_way.result(60)
    with pytest.raises(LeaseLost):
        first.write_sync(add_experiment)
    assert second.read_sync(lambda s: s.query(ExperimentRow).count()) == 0
    second.write_sync(add_experiment)
    first.close()
    second.close()
    postgres_server.sql("DROP DATABASE standing_still WITH (FORCE)")


@pytest.mark.postgres
@pytest.mark.parametrize(("then", "heard_by"), [(START, "the commit"), (LATER, "the lease's renewal")])
def test_a_master_whose_write_postgresql_ended_for_idleness_goes_on_if_nobody_took_over(
    postgres_server: postgres.Server, then: float, heard_by: str
) -> None:
    """SQLSTATE 25P03: nothing of the write is there, so that it may be tried again; it ended the master.

    The master hears of it by the first statement that follows: the commit, or before it the renewal of its lease.
    """
    now = [START]
    with postgres_server.database("idle_write") as url:
        store = Store.open(url, holder="first", clock=lambda: now[0])
        soon_ended(store)
        with standing_still(store) as (go_on, under_way):
            with psycopg.connect(url) as other:  # waits as long as the write has its transaction
                other.execute("SELECT epoch FROM lease FOR UPDATE")
            now[0] = then
            go_on.set()
            with pytest.raises(StoreBusy, match="idle-in-transaction"):
                under_way.result(60)
        assert store.healthy
        assert store.read_sync(lambda s: s.query(ExperimentRow).count()) == 0
        store.write_sync(add_experiment)
        assert store.read_sync(lambda s: s.query(ExperimentRow).count()) == 1
        with pytest.raises(LeaseHeld):  # the write that went through has made the lease last again
            Store.open(url, holder="second", clock=lambda: then)
        store.close()


@pytest.mark.postgres
def test_a_read_that_postgresql_ended_for_idleness_may_be_tried_again(postgres_server: postgres.Server) -> None:
    """An operator may bound idle transactions of all, those of readers too."""
    with postgres_server.database("idle_read") as url:
        postgres_server.sql("ALTER DATABASE idle_read SET idle_in_transaction_session_timeout TO 500")
        store = Store.open(url, holder="first")

        def read(s: Session) -> None:
            s.execute(text("SELECT pg_advisory_xact_lock(1)"))
            with psycopg.connect(url) as other:  # waits as long as the read has its transaction
                other.execute("SELECT pg_advisory_xact_lock(1)")
            s.execute(text("SELECT 1"))

        with pytest.raises(StoreBusy, match="idle-in-transaction"):
            store.read_sync(read)
        assert store.healthy
        assert store.read_sync(lambda s: s.query(ExperimentRow).count()) == 0
        store.close()


@pytest.mark.postgres
def test_an_operators_bound_on_idle_connections_is_not_the_masters(postgres_server: postgres.Server) -> None:
    """SQLSTATE 57P05: a master that nothing had happened to for so long was ended by its next write."""
    with postgres_server.database("idle_session") as url:
        postgres_server.sql("ALTER DATABASE idle_session SET idle_session_timeout TO 300")
        store = Store.open(url, holder="first")
        store.write_sync(add_experiment)
        assert store.read_sync(lambda s: s.query(ExperimentRow).count()) == 1
        other = psycopg.connect(url)
        ended_by_the_server(other)
        with pytest.raises(errors.IdleSessionTimeout):
            other.execute("SELECT 1")
        other.close()
        store.write_sync(add_experiment)  # as idle as the other one, and longer
        assert store.read_sync(lambda s: s.query(ExperimentRow).count()) == 2
        store.close()


@pytest.mark.postgres
def test_a_write_on_a_connection_that_was_ended_for_idleness_may_be_tried_again(
    postgres_server: postgres.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should the bound come from elsewhere than from settings: nothing was begun, nothing is lost."""
    monkeypatch.setattr(engine, "_UNBOUND", ())
    with postgres_server.database("idle_writer") as url:
        postgres_server.sql("ALTER DATABASE idle_writer SET idle_session_timeout TO 300")
        store = Store.open(url, holder="first")
        ended_by_the_server(connection_of(store))
        with pytest.raises(StoreBusy, match="idle-session timeout"):
            store.write_sync(add_experiment)
        assert store.healthy
        store.write_sync(add_experiment)
        store.close()
        with psycopg.connect(url) as seen:  # of the store's readers, too, the server may have ended a connection
            assert seen.execute("SELECT count(*) FROM experiments").fetchone() == (1,)


@pytest.mark.postgres
def test_the_writers_bounds_are_its_own(postgres_server: postgres.Server) -> None:
    """`transaction_timeout` (SQLSTATE 25P04) is of PostgreSQL 17: it is seen to where the server knows it."""
    with postgres_server.database("writers_bounds") as url:
        store = Store.open(url, holder="first")
        bounds = "SELECT name, setting FROM pg_settings WHERE name LIKE '%_timeout' ORDER BY name"
        found: dict[str, str] = dict(store.write_sync(lambda s: [tuple(row) for row in s.execute(text(bounds))]))
        store.close()
    assert found["idle_in_transaction_session_timeout"] == str(engine.IDLE_MS)
    assert {found.get("idle_session_timeout"), found.get("transaction_timeout", "0")} == {"0"}


def connection_of(store: Store) -> psycopg.Connection:
    """The writer's connection, which nobody uses now."""
    with store._write_engine.connect() as connection:
        return connection.connection.driver_connection


def soon_ended(store: Store) -> None:
    """Bound the transactions of the writer's connection by half a second.

    Only of this connection, and not before: under load, half a second may pass between two statements of the schema.
    """
    connection = connection_of(store)
    connection.execute("SET idle_in_transaction_session_timeout TO 500")
    connection.commit()


def ended_by_the_server(connection: psycopg.Connection) -> None:
    """Wait until the server has closed a connection that is idle."""
    assert select.select([connection.fileno()], [], [], 20)[0]


def test_on_sqlite_the_second_is_told_what_keeps_it_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock is the file's: nobody but the kernel can take it from a process that stands still."""
    url = f"sqlite:///{tmp_path}/detlab.sqlite"
    first = Store.open(url, holder="first", clock=lambda: START)
    monkeypatch.setattr(engine, "_PRAGMAS", ("PRAGMA busy_timeout=300",))
    with standing_still(first) as (go_on, under_way):
        with pytest.raises(StoreError, match="locked") as caught:
            Store.open(url, holder="second", clock=lambda: LATER)
        assert "kill -9" in caught.value.hint
        go_on.set()
        assert under_way.result(60) == 1
    second = Store.open(url, holder="second", clock=lambda: LATER)
    with pytest.raises(StoreBroken):
        first.write_sync(add_experiment)
    assert second.read_sync(lambda s: s.query(ExperimentRow).count()) == 1
    first.close()
    second.close()

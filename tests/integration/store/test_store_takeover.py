"""A master that stands still in the middle of a write, with the database's locks, and the one that would take over."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from detlab_hub.store import LeaseHeld, LeaseLost, Store, StoreBroken, StoreBusy, StoreError, engine
from detlab_hub.store.tables import ExperimentRow
from testbed import postgres
from testbed.store_rows import add_experiment

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
    postgres_server: postgres.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a bound the lease's row stayed locked, and the second one waited for as long as the first stood still."""
    monkeypatch.setattr(engine, "IDLE_MS", 500)
    postgres_server.sql("CREATE DATABASE standing_still")
    url = postgres_server.url("standing_still")
    first = Store.open(url, holder="first", clock=lambda: START)
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
    postgres_server: postgres.Server, monkeypatch: pytest.MonkeyPatch, then: float, heard_by: str
) -> None:
    """SQLSTATE 25P03: nothing of the write is there, so that it may be tried again; it ended the master.

    The master hears of it by the first statement that follows: the commit, or before it the renewal of its lease.
    """
    monkeypatch.setattr(engine, "IDLE_MS", 500)
    now = [START]
    with postgres_server.database("idle_write") as url:
        store = Store.open(url, holder="first", clock=lambda: now[0])
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

"""A failed write stops the store: real full disks, a real I/O error, a database that went away."""

from __future__ import annotations

import os
import resource
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError

from detlab.schemas.wire import LogRecord
from detlab_hub.store import Store, StoreBroken, StoreBusy, engine
from detlab_hub.store.queries.logs import lines
from detlab_hub.store.tables import ExperimentRow, TrialRow
from testbed.databases import postgres
from testbed.databases.store_rows import add_experiment

FILL = """
import resource, sys
from detlab.schemas.wire import LogRecord
from detlab_hub.store import Store, StoreBroken
from detlab_hub.store.queries.logs import lines as logs

store = Store.open(sys.argv[1], holder="x")
limit = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
line = LogRecord(seq=1, time=0.0, text="x" * 10_000)
written = 0
try:
    for _ in range(10_000):
        store.write_sync(lambda s: logs.append(s, 1, 1, [line] * 10))
        written += 10
except StoreBroken as error:
    print(written)
    print(store.healthy)
    print(error.message)
    try:
        store.write_sync(lambda s: logs.append(s, 1, 1, [line]))
    except StoreBroken:
        print("later write refused")
    print(len(store.read_sync(lambda s: logs.page(s, 1, limit=100_000))))
    store.close()
"""


def test_a_write_beyond_what_the_disk_takes_stops_the_store(tmp_path: Path) -> None:
    """The kernel refuses the write (RLIMIT_FSIZE): the same path as a full disk or an I/O error."""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    url = f"sqlite:///{tmp_path}/detlab.sqlite"
    done = subprocess.run(
        [sys.executable, "-c", FILL, url, str(3 << 20)], capture_output=True, text=True, check=True, timeout=100
    )
    written, healthy, message, later, seen = done.stdout.splitlines()
    assert int(written) > 0
    assert healthy == "False"
    assert str(tmp_path) in message
    assert later == "later write refused"
    assert int(seen) == int(written)
    # What was acknowledged is there after a restart; the rest is not.
    store = Store.open(url, holder="next")
    assert store.read_sync(lambda s: lines.count(s, 1)) == int(written)
    store.write_sync(add_experiment)
    store.close()


def test_a_full_database_stops_the_store(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path}/detlab.sqlite", holder="x")

    def limit(s: Any) -> None:
        pages = s.connection().exec_driver_sql("PRAGMA page_count").scalar()
        s.connection().exec_driver_sql(f"PRAGMA max_page_count = {pages + 20}")

    store.write_sync(limit)
    made: list[int] = []

    def fill() -> None:
        while len(made) < 10_000:
            made.append(store.write_sync(lambda s: add_experiment(s, name="n" * 4000)))

    with pytest.raises(StoreBroken, match="full"):
        fill()
    assert not store.healthy
    assert store.broken_because is not None
    assert "detlab.sqlite" in store.broken_because
    with pytest.raises(StoreBroken):
        store.write_sync(add_experiment)
    with pytest.raises(StoreBroken):
        store.renew_lease()
    assert store.read_sync(lambda s: s.query(ExperimentRow).count()) == len(made)
    store.close()


@pytest.mark.postgres
def test_a_postgres_that_goes_away_stops_the_store() -> None:
    try:
        server = postgres.up()
    except postgres.CannotRun as error:
        pytest.skip(str(error))
    try:
        store = Store.open(server.url(), holder="x")
        store.write_sync(add_experiment)
        postgres.down(server.directory)
        with pytest.raises(StoreBroken):
            store.write_sync(add_experiment)
        assert not store.healthy
        with pytest.raises(StoreBroken):
            store.write_sync(add_experiment)
        store.close()
    finally:
        postgres.down(server.directory)


@pytest.mark.postgres
def test_a_connection_that_the_server_closed_stops_the_store(postgres_server: postgres.Server) -> None:
    postgres_server.sql("CREATE DATABASE detlab_cut")
    store = Store.open(postgres_server.url("detlab_cut"), holder="x")
    store.write_sync(add_experiment)
    postgres_server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'detlab_cut'")
    with pytest.raises(StoreBroken):
        store.write_sync(add_experiment)
    assert not store.healthy
    store.close()
    again = Store.open(postgres_server.url("detlab_cut"), holder="y", clock=lambda: 4e9)
    assert again.read_sync(lambda s: s.query(ExperimentRow).count()) == 1
    again.close()
    postgres_server.sql("DROP DATABASE detlab_cut WITH (FORCE)")


async def test_requests_that_are_under_way_when_the_store_is_closed_hear_that_it_has_stopped(store: Store) -> None:
    """Of a master that lost its lease one came after the threads had ended: a traceback, and 500 instead of 503."""
    store.close()
    for ask in (store.read, store.write):
        with pytest.raises(StoreBroken, match="this master has stopped"):
            await ask(lambda s: s.query(ExperimentRow).count())
    with pytest.raises(StoreBroken, match="this master has stopped"):
        store.write_sync(add_experiment)


def test_a_broken_rule_is_the_callers_mistake_not_the_databases(store: Store, experiment_id: int) -> None:
    def twice(s: Any) -> None:
        for _ in range(2):
            s.add(TrialRow(experiment_id=experiment_id, idx=0, request_id="same", state="ACTIVE"))
        s.flush()

    with pytest.raises(IntegrityError):
        store.write_sync(twice)
    with pytest.raises(IntegrityError):
        store.write_sync(lambda s: s.add(TrialRow(experiment_id=4711, idx=0, request_id="r", state="ACTIVE")))
    assert store.healthy
    store.write_sync(add_experiment)


def test_a_database_locked_by_another_is_busy_not_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_PRAGMAS", (*engine._PRAGMAS, "PRAGMA busy_timeout=50"))
    path = tmp_path / "detlab.sqlite"
    store = Store.open(f"sqlite:///{path}", holder="x")
    intruder = sqlite3.connect(path, isolation_level=None)
    intruder.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy):
        store.write_sync(add_experiment)
    intruder.execute("ROLLBACK")
    intruder.close()
    assert store.healthy
    store.write_sync(add_experiment)
    store.close()


def test_reading_a_torn_page_stops_the_store(tmp_path: Path) -> None:
    path = tmp_path / "detlab.sqlite"
    store = Store.open(f"sqlite:///{path}", holder="x")
    for _ in range(300):
        store.write_sync(lambda s: add_experiment(s, name="n" * 3000))
    store.close()
    store = Store.open(f"sqlite:///{path}", holder="x")
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size // 2 // 4096 * 4096)
        file.write(os.urandom(size // 4 // 4096 * 4096))
    with pytest.raises(StoreBroken, match="malformed"):
        store.read_sync(lambda s: s.query(ExperimentRow).all())
    assert not store.healthy
    with pytest.raises(StoreBroken):
        store.write_sync(add_experiment)
    store.close()


def test_nothing_is_written_after_logs_fail(store: Store) -> None:
    """A statement that fails inside a batch takes the whole batch with it."""
    good = LogRecord(seq=1, time=0.0, text="good")

    def batch(s: Any) -> None:
        lines.append(s, 1, 1, [good] * 5)
        s.connection().exec_driver_sql("INSERT INTO no_such_table VALUES (1)")

    with pytest.raises(Exception, match="no_such_table"):
        store.write_sync(batch)
    assert store.healthy
    assert store.read_sync(lambda s: lines.count(s, 1)) == 0

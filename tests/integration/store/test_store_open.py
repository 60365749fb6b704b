"""Opening: the lease, and refusing what must not be touched."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from detlab_hub.store import (
    InlineExecutor,
    LeaseHeld,
    LeaseLost,
    ProcessIdentity,
    Store,
    StoreBroken,
    StoreDamaged,
    StoreError,
    StoreTooNew,
)
from detlab_hub.store.tables import ExperimentRow, Lease
from testbed.databases.store_rows import DEAD, add_experiment


class FakeClock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_second_master_is_refused_with_the_name_of_the_first(empty_db_url: str) -> None:
    clock = FakeClock()
    first = Store.open(empty_db_url, holder="first on host-a", clock=clock)
    clock.now += 5
    with pytest.raises(LeaseHeld) as caught:
        Store.open(empty_db_url, holder="second", clock=clock)
    assert caught.value.holder == "first on host-a"
    assert caught.value.expires_at == 1015.0
    assert "first on host-a" in str(caught.value)
    assert "10 s" in str(caught.value)
    first.write_sync(add_experiment)
    first.close()
    second = Store.open(empty_db_url, holder="second", clock=clock)
    assert second.epoch == first.epoch + 1
    second.close()


def test_a_lease_that_ran_out_is_taken_and_the_old_holder_is_fenced(empty_db_url: str) -> None:
    clock = FakeClock()
    first = Store.open(empty_db_url, holder="first", clock=clock)
    clock.now += 16
    second = Store.open(empty_db_url, holder="second", clock=clock)
    with pytest.raises(LeaseLost, match="second"):
        first.write_sync(add_experiment)
    assert not first.healthy
    with pytest.raises(StoreBroken):
        first.renew_lease()
    assert second.read_sync(lambda s: s.query(ExperimentRow).count()) == 0
    first.close()
    second.write_sync(add_experiment)
    second.close()


def test_a_slow_master_whose_lease_ran_out_unnoticed_goes_on(empty_db_url: str) -> None:
    clock = FakeClock()
    store = Store.open(empty_db_url, holder="only", clock=clock)
    clock.now += 100
    store.write_sync(add_experiment)
    with pytest.raises(LeaseHeld):
        Store.open(empty_db_url, holder="second", clock=clock)
    store.close()


def test_a_lease_of_before_a_restart_after_which_the_clock_was_put_back(empty_db_url: str) -> None:
    """On SQLite nobody else can hold it; a database that several machines reach may have its master elsewhere."""
    clock = FakeClock()
    here = ProcessIdentity.current()
    earlier = replace(here, boot="00000000-0000-0000-0000-000000000000")
    Store.open(empty_db_url, holder="before", clock=clock, process=earlier).close(release=False)
    clock.now -= 900
    if empty_db_url.startswith("sqlite"):
        Store.open(empty_db_url, holder="after", clock=clock).close()
    else:
        with pytest.raises(LeaseHeld, match="before"):
            Store.open(empty_db_url, holder="after", clock=clock)


def test_a_write_longer_than_the_lease_keeps_it(empty_db_url: str) -> None:
    """A second master that starts meanwhile waits for the write and then finds the lease renewed."""
    clock = FakeClock()
    first = Store.open(empty_db_url, holder="first", clock=clock)
    writing, go_on = threading.Event(), threading.Event()

    def slow(s: Session) -> int:
        made = add_experiment(s)
        writing.set()
        assert go_on.wait(20)
        clock.now += 20
        return made

    with ThreadPoolExecutor(2) as pool:
        write = pool.submit(first.write_sync, slow)
        assert writing.wait(20)
        second = pool.submit(Store.open, empty_db_url, holder="second", clock=lambda: 1020.0)
        # The second is either waiting for the lock by now or will find the lease renewed.
        go_on.set()
        assert write.result(20) > 0
        with pytest.raises(LeaseHeld, match="first"):
            second.result(20)
    first.write_sync(add_experiment)
    first.close()


def test_renewal_makes_the_lease_last(empty_db_url: str) -> None:
    clock = FakeClock()
    store = Store.open(empty_db_url, holder="only", clock=clock)
    for _ in range(5):
        clock.now += 10
        store.renew_lease()
    row = store.read_sync(lambda s: s.get(Lease, 1))
    assert row is not None
    assert row.expires_at == clock.now + 15
    store.close()


def test_the_lease_of_a_dead_process_is_taken_at_once(empty_db_url: str) -> None:
    clock = FakeClock()
    first = Store.open(empty_db_url, holder="first", clock=clock, process=DEAD)
    first.write_sync(add_experiment)
    first.close(release=False)
    second = Store.open(empty_db_url, holder="second", clock=clock)
    assert second.epoch == 2
    assert second.read_sync(lambda s: s.query(ExperimentRow).count()) == 1
    second.close()


@pytest.mark.parametrize("times", [1, 2])
def test_closing_is_final_and_harmless_twice(empty_db_url: str, times: int) -> None:
    store = Store.open(empty_db_url, holder="x")
    for _ in range(times):
        store.close()
    assert not store.healthy
    with pytest.raises(StoreBroken, match="this master has stopped"):
        store.write_sync(add_experiment)


async def test_writes_and_reads_from_an_event_loop(db_url: str) -> None:
    store = Store.open(db_url, holder="loop")
    made = await store.write(add_experiment)
    row = await store.read(lambda s: s.get(ExperimentRow, made))
    assert row is not None
    assert row.name == "digits"
    store.close()


async def test_a_simulation_runs_inline_in_memory() -> None:
    store = Store.open("sqlite://", holder="simulation", writer=InlineExecutor())
    made = await store.write(add_experiment)
    assert (await store.read(lambda s: s.get(ExperimentRow, made))) is not None
    assert store.read_sync(lambda s: s.query(ExperimentRow).count()) == 1
    store.close()


def test_an_inline_store_on_a_file_sees_its_own_writes(db_url: str) -> None:
    store = Store.open(db_url, holder="simulation", writer=InlineExecutor())
    made = store.write_sync(add_experiment)
    assert store.read_sync(lambda s: s.get(ExperimentRow, made)) is not None
    store.close()


def test_a_failing_function_rolls_back_and_the_store_goes_on(db_url: str) -> None:
    store = Store.open(db_url, holder="x")

    def fail(s: object) -> None:
        add_experiment(s)
        raise KeyError("a mistake in the caller")

    with pytest.raises(KeyError):
        store.write_sync(fail)
    assert store.healthy
    assert store.read_sync(lambda s: s.query(ExperimentRow).count()) == 0
    store.write_sync(add_experiment)
    store.close()


def test_a_reader_cannot_write(db_url: str) -> None:
    store = Store.open(db_url, holder="x")
    with pytest.raises(Exception, match=r"read-?only"):
        store.read_sync(add_experiment)
    store.write_sync(add_experiment)
    assert store.read_sync(lambda s: s.query(ExperimentRow).count()) == 1
    store.close()


def test_a_write_inside_a_write_is_refused_not_deadlocked(db_url: str) -> None:
    store = Store.open(db_url, holder="x")
    with pytest.raises(RuntimeError, match="inside"):
        store.write_sync(lambda _s: store.write_sync(add_experiment))
    store.close()


# --- what is refused ------------------------------------------------------------------------------------------


def newer(s: object) -> None:
    s.connection().exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")


def test_a_newer_schema_is_refused(empty_db_url: str) -> None:
    store = Store.open(empty_db_url, holder="x")
    store.write_sync(newer)
    store.close()
    with pytest.raises(StoreTooNew) as caught:
        Store.open(empty_db_url, holder="x")
    assert "9999" in str(caught.value)
    assert "pip install --upgrade" in str(caught.value)
    assert empty_db_url.rpartition("/")[2] in str(caught.value)


def test_a_database_with_others_tables_is_refused(empty_db_url: str) -> None:
    store = Store.open(empty_db_url, holder="x")
    store.write_sync(lambda s: s.connection().exec_driver_sql("DROP TABLE alembic_version"))
    store.close()
    with pytest.raises(StoreDamaged, match="no schema version"):
        Store.open(empty_db_url, holder="x")


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "detlab.sqlite"
    path.write_bytes(b"a text\n" * 100)
    with pytest.raises(StoreDamaged) as caught:
        Store.open(f"sqlite:///{path}", holder="x")
    assert str(path) in str(caught.value)
    assert f"mv {path}" in str(caught.value)
    assert path.read_bytes() == b"a text\n" * 100


def test_a_database_with_a_torn_page_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "detlab.sqlite"
    Store.open(f"sqlite:///{path}", holder="x").close()
    data = bytearray(path.read_bytes())
    data[4096 : 4096 * 3] = b"\xff" * 8192
    path.write_bytes(data)
    with pytest.raises(StoreDamaged) as caught:
        Store.open(f"sqlite:///{path}", holder="x")
    assert str(path) in str(caught.value)


def test_a_truncated_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "detlab.sqlite"
    Store.open(f"sqlite:///{path}", holder="x").close()
    os.truncate(path, 20_000)
    with pytest.raises(StoreDamaged):
        Store.open(f"sqlite:///{path}", holder="x")


def test_an_emptied_database_with_a_journal_is_no_cold_start(tmp_path: Path) -> None:
    path = tmp_path / "detlab.sqlite"
    path.touch()
    (tmp_path / "detlab.sqlite-wal").write_bytes(b"x" * 100)
    with pytest.raises(StoreDamaged, match="journal"):
        Store.open(f"sqlite:///{path}", holder="x")


def test_the_database_and_its_journal_are_for_the_owner_only(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path}/detlab.sqlite", holder="x")
    store.write_sync(add_experiment)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    store.close()
    assert {"detlab.sqlite", "detlab.sqlite-wal"} <= set(modes)
    assert set(modes.values()) == {0o600}


def test_commits_are_on_the_disk_before_they_are_acknowledged(empty_db_url: str) -> None:
    store = Store.open(empty_db_url, holder="x")
    postgres = empty_db_url.startswith("postgresql")
    ask = "SHOW synchronous_commit" if postgres else "PRAGMA synchronous"
    found = store.write_sync(lambda s: s.connection().exec_driver_sql(ask).scalar())
    store.close()
    assert found == ("on" if postgres else 2)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="mkdir -p"):
        Store.open(f"sqlite:///{tmp_path}/no/such/x.db", holder="x")


def test_a_read_only_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "detlab.sqlite"
    Store.open(f"sqlite:///{path}", holder="x").close()
    with pytest.raises(StoreError) as caught:
        Store.open(f"sqlite:///file:{path}?mode=ro&uri=true", holder="x")
    assert "cannot be opened" in str(caught.value)
    assert "readonly" in str(caught.value)


def test_a_postgres_that_is_not_there_is_named_without_its_password() -> None:
    with pytest.raises(StoreError) as caught:
        Store.open("postgresql://me:secret@127.0.0.1:1/detlab", holder="x")
    assert "127.0.0.1:1" in str(caught.value)
    assert "secret" not in str(caught.value)

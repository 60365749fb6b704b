"""Writes that wait while another is committed share one commit, and nothing else."""

from __future__ import annotations

import asyncio
import inspect
import textwrap
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, func, select, text
from sqlalchemy.exc import IntegrityError

from detlab_hub.store import Store, StoreBroken, StoreBusy, groups
from detlab_hub.store import store as store_module
from detlab_hub.store.errors import LeaseLost
from detlab_hub.store.tables import ExperimentRow
from testbed.crash_points import CALM, Tripwire, watching
from testbed.databases.store_rows import add_experiment

Write = Callable[[Any], Any]


def named(name: str) -> Write:
    """A write of one experiment."""
    return lambda s: add_experiment(s, name=name)


def steal(s: Any) -> None:
    """Take the lease, as another master would."""
    s.execute(text("UPDATE lease SET epoch = epoch + 1"))


def names(store: Store) -> list[str]:
    """The experiments that the database has."""
    return list(store.read_sync(lambda s: s.scalars(select(ExperimentRow.name).order_by(ExperimentRow.id)).all()))


async def together(store: Store, writes: list[Write], behind: Write = lambda s: None) -> list[Any]:
    """Have writes wait for the writer while it does another; return what each gave or raised."""
    started, go_on = threading.Event(), threading.Event()

    def hold(s: Any) -> None:
        started.set()
        assert go_on.wait(20)
        behind(s)

    async def release() -> None:
        await asyncio.sleep(0)  # all have been handed over
        go_on.set()

    holding = asyncio.create_task(store.write(hold))
    await asyncio.to_thread(started.wait, 20)
    waiting: list[Awaitable[Any]] = [store.write(write) for write in writes]
    results = await asyncio.gather(*waiting, release(), return_exceptions=True)
    await holding
    return results[:-1]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let groups be as large as they get, on a slow machine, too."""
    monkeypatch.setattr(groups, "PATIENCE", 20.0)


@pytest.fixture
def wire() -> Tripwire:
    return Tripwire(CALM, lambda: None)


@pytest.fixture
def watched(db_url: str, wire: Tripwire) -> Iterator[Store]:
    """A store whose commits are counted."""
    with watching(wire):
        store = Store.open(db_url, holder="test")
    yield store
    store.close()


@contextmanager
def statements(store: Store) -> Iterator[list[str]]:
    """What the writer executes meanwhile."""
    found: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        found.append(statement)

    event.listen(store._write_engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(store._write_engine, "before_cursor_execute", note)


async def test_writes_that_wait_share_one_commit_and_one_look_at_the_lease(watched: Store, wire: Tripwire) -> None:
    before = wire.count
    with statements(watched) as said:
        found = await together(watched, [named(f"n{n}") for n in range(10)])
    assert wire.count - before == 2  # that of the write they waited for, and theirs
    assert sum(" lease" in statement for statement in said) == 2
    assert names(watched) == [f"n{n}" for n in range(10)]
    assert found == sorted(found)
    assert len(set(found)) == 10


async def test_a_write_with_nothing_beside_it_has_no_savepoint(watched: Store) -> None:
    events: list[str] = []
    event.listen(watched._write_engine, "savepoint", lambda *_: events.append("savepoint"))
    await watched.write(named("alone"))
    watched.write_sync(named("alone, too"))
    assert events == []
    await together(watched, [named("one"), named("two")])
    assert events == ["savepoint", "savepoint"]


async def check_one_that_raises(watched: Store, wire: Tripwire) -> None:
    """One that raises is undone, and it alone."""

    def refused(s: Any) -> None:
        add_experiment(s, name="refused")
        raise ValueError("not this one")

    def wrong(s: Any) -> None:
        add_experiment(s, name="wrong")
        s.add(ExperimentRow(id=s.scalar(select(func.max(ExperimentRow.id))), name="x", owner="x", state="x"))

    before = wire.count
    found = await together(watched, [named("a"), refused, named("b"), wrong, named("c")])
    assert wire.count - before == 2
    assert names(watched) == ["a", "b", "c"]
    assert isinstance(found[1], ValueError)
    assert isinstance(found[3], IntegrityError)
    assert [type(found[n]) for n in (0, 2, 4)] == [int, int, int]
    assert watched.healthy


async def check_when_they_are_answered(watched: Store, wire: Tripwire) -> None:
    """Nobody hears of it before the commit, and nobody sees it."""
    answered: list[int] = []
    at_commit: list[tuple[list[int], int]] = []

    def note() -> None:
        time.sleep(0.2)  # in which the loop would hear of it
        at_commit.append((list(answered), len(names(watched))))

    async def one(number: int) -> None:
        await watched.write(named(str(number)))
        answered.append(number)

    started, go_on = threading.Event(), threading.Event()

    def hold(_: Any) -> None:
        started.set()
        assert go_on.wait(20)

    wire._note = note
    holding = asyncio.create_task(watched.write(hold))
    await asyncio.to_thread(started.wait, 20)
    tasks = [asyncio.create_task(one(number)) for number in range(5)]
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(holding, *tasks)
    wire._note = lambda: None
    assert at_commit == [([], 0), ([], 0)]
    assert sorted(answered) == [0, 1, 2, 3, 4]


async def test_one_that_raises_is_undone_alone(watched: Store, wire: Tripwire) -> None:
    await check_one_that_raises(watched, wire)


async def test_nobody_is_answered_before_the_commit(watched: Store, wire: Tripwire) -> None:
    await check_when_they_are_answered(watched, wire)


def plant(monkeypatch: pytest.MonkeyPatch, method: Callable[..., Any], right: str, wrong: str) -> None:
    """Put a bug into a method of the store."""
    source = textwrap.dedent(inspect.getsource(method))
    assert source.count(right) == 1, f"plant this bug anew: {right!r} is not in {method.__qualname__}"
    found: dict[str, Any] = {}
    exec(compile(source.replace(right, wrong), "planted", "exec"), vars(store_module), found)  # our own
    monkeypatch.setattr(Store, method.__name__, found[method.__name__])


async def test_planted_a_group_that_is_answered_before_its_commit(
    watched: Store, wire: Tripwire, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, Store._run_one, "session.close()", "session.close(); outcome.tell()")
    plant(monkeypatch, Store._write_together, "outcome.tell()", "outcome.write.future.done() or outcome.tell()")
    with pytest.raises(AssertionError):
        await check_when_they_are_answered(watched, wire)


async def test_planted_a_failing_member_that_undoes_the_others(
    watched: Store, wire: Tripwire, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = "session.rollback(); connection.exec_driver_sql('ROLLBACK'); connection.exec_driver_sql('BEGIN')"
    plant(monkeypatch, Store._run_one, "session.rollback()", lost)
    with pytest.raises(AssertionError):
        await check_one_that_raises(watched, wire)


async def test_planted_a_failing_member_that_is_kept(
    watched: Store, wire: Tripwire, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, Store._run_one, "session.rollback()", "session.commit()")
    with pytest.raises(AssertionError):
        await check_one_that_raises(watched, wire)


async def test_the_next_one_sees_what_those_before_it_wrote_and_not_what_was_undone(watched: Store) -> None:
    def refused(s: Any) -> None:
        s.get(ExperimentRow, first).name = "changed"
        s.flush()
        raise ValueError

    def look(s: Any) -> str:
        return str(s.get(ExperimentRow, first).name)

    def rename(s: Any) -> None:
        s.get(ExperimentRow, first).name += ", renamed"

    first = await watched.write(named("first"))
    found = await together(watched, [refused, look, rename, look])
    assert found[1] == "first"
    assert found[3] == "first, renamed"
    assert names(watched) == ["first, renamed"]


async def test_a_commit_that_fails_fails_all_of_them_and_keeps_nothing(watched: Store, wire: Tripwire) -> None:
    class NoCommitError(Exception):
        pass

    def fail() -> None:
        raise NoCommitError

    def arm(s: Any) -> int:
        wire._note = fail
        return add_experiment(s, name="armed")

    def refused(s: Any) -> None:
        raise ValueError

    found = await together(watched, [named("a"), arm, refused, named("b")])
    wire._note = lambda: None
    assert [type(one) for one in found] == [NoCommitError] * 4
    assert names(watched) == []
    await watched.write(named("later"))
    assert names(watched) == ["later"]


async def test_a_commit_that_the_database_refuses(tmp_path: Any) -> None:
    """A foreign key that is looked at only when all is written."""
    store = Store.open(f"sqlite:///{tmp_path}/detlab.sqlite", holder="x")

    def dangling(s: Any) -> None:
        connection = s.connection()
        connection.exec_driver_sql("CREATE TABLE a (id INTEGER PRIMARY KEY)")
        connection.exec_driver_sql("CREATE TABLE b (a INTEGER REFERENCES a (id) DEFERRABLE INITIALLY DEFERRED)")
        connection.exec_driver_sql("INSERT INTO b VALUES (7)")

    found = await together(store, [named("a"), dangling, named("b")])
    assert [type(one) for one in found] == [IntegrityError] * 3
    assert names(store) == []
    assert store.healthy
    store.close()


async def test_a_database_that_fails_under_one_of_them_fails_all_and_stops_the_store(tmp_path: Any) -> None:
    store = Store.open(f"sqlite:///{tmp_path}/detlab.sqlite", holder="x")

    def too_much(s: Any) -> None:
        pages = s.connection().exec_driver_sql("PRAGMA page_count").scalar()
        s.connection().exec_driver_sql(f"PRAGMA max_page_count = {pages + 2}")
        for _ in range(100):
            add_experiment(s, name="n" * 4000)

    found = await together(store, [named("a"), too_much, named("b")])
    assert isinstance(found[0], StoreBroken)
    assert isinstance(found[1], StoreBroken)
    assert isinstance(found[2], StoreBroken)
    assert not store.healthy
    assert names(store) == []
    store.close()


async def test_a_transaction_that_ended_under_one_of_them_is_tried_again_by_all(watched: Store) -> None:
    """SQLite ends the transaction by itself on some errors: what comes then must not be written outside of one."""

    def ended(s: Any) -> None:
        s.connection().exec_driver_sql("ROLLBACK")
        raise ValueError("and the transaction is gone")

    found = await together(watched, [named("a"), ended])
    assert [type(one) for one in found] == [StoreBusy] * 2
    assert names(watched) == []
    assert watched.healthy
    assert len(await together(watched, [named("b"), named("c")])) == 2
    assert names(watched) == ["b", "c"]


async def test_a_lost_lease_lets_none_of_them_in(watched: Store) -> None:
    found = await together(watched, [named("a"), named("b")], behind=steal)
    assert all(isinstance(one, StoreBroken) for one in found)
    assert names(watched) == []
    assert not watched.healthy


async def test_the_lease_is_lost_between_two_groups(watched: Store) -> None:
    found = await together(watched, [named("a"), steal])
    assert isinstance(found[0], int)
    with pytest.raises(LeaseLost):
        await watched.write(named("b"))
    assert names(watched) == ["a"]


async def test_a_group_has_a_bound(watched: Store, wire: Tripwire) -> None:
    before = wire.count
    await together(watched, [named(str(n)) for n in range(2 * groups.MOST + 1)])
    assert wire.count - before == 4
    assert len(names(watched)) == 2 * groups.MOST + 1


async def test_a_group_that_takes_long_takes_in_no_more(
    watched: Store, wire: Tripwire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "PATIENCE", 0.025)

    def slow(s: Any) -> int:
        time.sleep(0.02)
        return add_experiment(s)

    before = wire.count
    await together(watched, [slow] * 8)
    assert 4 <= wire.count - before <= 9
    assert len(names(watched)) == 8


async def test_a_write_that_is_cancelled_while_it_waits_is_left_out(watched: Store) -> None:
    started, go_on = threading.Event(), threading.Event()

    def hold(_: Any) -> None:
        started.set()
        assert go_on.wait(20)

    holding = asyncio.create_task(watched.write(hold))
    await asyncio.to_thread(started.wait, 20)
    tasks = [asyncio.create_task(watched.write(named(str(n)))) for n in range(6)]
    await asyncio.sleep(0)
    for gone in (0, 3):
        tasks[gone].cancel()
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(holding, *tasks, return_exceptions=True)
    assert names(watched) == ["1", "2", "4", "5"]
    assert [task.cancelled() for task in tasks] == [True, False, False, True, False, False]


async def test_closing_writes_what_waits(db_url: str) -> None:
    store = Store.open(db_url, holder="test")
    started, go_on = threading.Event(), threading.Event()

    def hold(_: Any) -> None:
        started.set()
        assert go_on.wait(20)

    holding = asyncio.create_task(store.write(hold))
    await asyncio.to_thread(started.wait, 20)
    tasks = [asyncio.create_task(store.write(named(str(n)))) for n in range(4)]
    await asyncio.sleep(0)
    threading.Timer(0.2, go_on.set).start()
    await asyncio.to_thread(store.close)
    await asyncio.gather(holding, *tasks)
    with pytest.raises(StoreBroken, match="this master has stopped"):
        await store.write(named("too late"))
    again = Store.open(db_url, holder="next")
    assert names(again) == ["0", "1", "2", "3"]
    again.close()


async def test_a_group_needs_no_room_outside_of_the_database(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """What undoes a statement of a savepoint was a file in the system's folder for such: full, it broke the master."""
    store = Store.open(f"sqlite:///{tmp_path_factory.mktemp('db')}/detlab.sqlite", holder="test")
    store.write_sync(lambda s: [add_experiment(s, name=f"{n:05}" + "x" * 400) for n in range(500)])
    opened: list[str] = []

    def rename(s: Any) -> None:
        s.execute(text("UPDATE experiments SET name = substr(name, 2) || 'y'"))
        targets = [_target(link) for link in Path("/proc/self/fd").iterdir()]
        opened.extend(target for target in targets if "etilqs" in target)

    assert await together(store, [rename, rename]) == [None, None]
    assert opened == []
    store.close()


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except FileNotFoundError:
        return ""


async def test_what_ends_one_write_is_not_told_to_the_others(store: Store) -> None:
    class Ended(BaseException):
        pass

    def end(s: Any) -> None:
        raise Ended

    first, second = await together(store, [named("a"), end])
    assert isinstance(first, StoreBusy)
    assert isinstance(second, Ended)
    assert names(store) == []


@pytest.mark.parametrize("count", [1, 2])
async def test_a_write_that_stops_an_iteration_is_answered(store: Store, count: int) -> None:
    def stop(s: Any) -> None:
        next(iter(()))

    outcomes = await asyncio.wait_for(together(store, [stop] * count), 20)
    assert [type(outcome) for outcome in outcomes] == [RuntimeError] * count


def test_a_lease_that_was_given_back_is_not_prolonged_by_that(db_url: str) -> None:
    now = [1000.0]
    store = Store.open(db_url, holder="one", clock=lambda: now[0], lease_ttl=15.0)
    now[0] += 9.0
    store.close()
    second = Store.open(db_url, holder="two", clock=lambda: now[0], lease_ttl=15.0)
    second.close()

"""Statements that go past Core, and rows that go past the unit of work: the same in the database, the same errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import Integer, bindparam, cast, delete, event, func, insert, select, text, update
from sqlalchemy.exc import DBAPIError, IntegrityError, InvalidRequestError
from sqlalchemy.orm import Session
from sqlalchemy.orm.exc import StaleDataError

from detlab.schemas.wire import TrialState
from detlab_hub.store import Store, StoreBroken
from detlab_hub.store.prepared import PreparedStatement, driver_of, fetch, run_many
from detlab_hub.store.session import insert_row
from detlab_hub.store.tables import ExperimentRow, GrantRow, Meta, TaskRow, TrialRow
from testbed.databases.store_rows import add_experiment, add_trial

BIG = st.integers(-(2**63), 2**63 - 1)
SMALL = st.integers(-(2**31), 2**31 - 1)
NUMBER = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=8,
)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "state": st.sampled_from(TrialState) | TEXT,
    "hparams": st.dictionaries(TEXT, JSON, max_size=4),
    "seed": BIG,
    "run": SMALL,
    "progress": NUMBER,
    "status": TEXT,
    "best_validation": st.none() | NUMBER,
    "latest_validation": st.none() | st.floats(),
    "early_exit": st.none() | TEXT,
    "searcher_stopped": st.booleans(),
    "warnings": st.lists(TEXT, max_size=3),
    "failure": st.none() | st.dictionaries(TEXT, JSON, max_size=3),
    "metadata_": st.dictionaries(TEXT, JSON, max_size=3),
    "started_at": st.none() | NUMBER,
}
"""Attributes of a trial, one of each type of column and more."""
rows = st.fixed_dictionaries({}, optional=FIELDS)
_TRIALS = TrialRow.__table__
_READ = PreparedStatement(select(*_TRIALS.c).where(_TRIALS.c.id == bindparam("trial")))
_STATUS = PreparedStatement(update(_TRIALS).where(_TRIALS.c.id == bindparam("trial")).values(status=bindparam("said")))


class Undo(Exception):
    pass


def stored(s: Session, trial_id: int) -> tuple[Any, ...]:
    """What the database has of a trial beside its keys, as the driver gives it."""
    found = s.connection().exec_driver_sql(f"SELECT * FROM trials WHERE id = {trial_id}").mappings().one()
    return tuple((name, repr(value)) for name, value in found.items() if name not in {"id", "idx", "request_id"})


def seen(row: TrialRow) -> list[tuple[str, str]]:
    """What a row says."""
    return [(name, repr(getattr(row, name))) for name in sorted(FIELDS)]


def usual(s: Session) -> Session:
    """A session as SQLAlchemy has it, in the same transaction."""
    return Session(s.connection(), join_transaction_mode="create_savepoint", expire_on_commit=False)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(first=rows, then=rows)
def test_what_is_written_and_read_is_what_sqlalchemy_writes_and_reads(
    store: Store, first: dict[str, Any], then: dict[str, Any]
) -> None:
    def both(s: Session) -> None:
        experiment = add_experiment(s)
        given_by = {"experiment_id": experiment, "state": "ACTIVE", "created_at": 1.0}
        ours = TrialRow(idx=0, request_id="ours", **{**given_by, **first})
        insert_row(s, ours)
        with usual(s) as other, other.begin():
            theirs = TrialRow(idx=1, request_id="theirs", **{**given_by, **first})
            other.add(theirs)
        assert stored(s, ours.id) == stored(s, theirs.id)
        for name, value in then.items():
            setattr(ours, name, value)
        s.flush()
        with usual(s) as other, other.begin():
            for name, value in then.items():
                setattr(other.get_one(TrialRow, theirs.id), name, value)
        assert stored(s, ours.id) == stored(s, theirs.id)
        s.expunge_all()
        with usual(s) as other:
            expected = seen(other.get_one(TrialRow, ours.id))
        assert seen(s.get_one(TrialRow, ours.id)) == expected
        read = _READ.first(s, {"trial": ours.id})
        assert [(name, repr(getattr(read, name.rstrip("_")))) for name in sorted(FIELDS)] == expected
        raise Undo

    with pytest.raises(Undo):
        store.write_sync(both)


# --- rows that are as they were


_AGAIN = PreparedStatement(select(_TRIALS.c.id, *(_TRIALS.c[name.rstrip("_")] for name in sorted(FIELDS))))


class Read(NamedTuple):
    """A trial, of values in the order of `_AGAIN`."""

    id: int
    values: tuple[Any, ...]


def made(number: int, *values: Any) -> Read:
    return Read(number, values)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(first=rows, then=rows)
@example(first={"hparams": {"a": 1}}, then={"hparams": {"a": True}})
@example(first={"warnings": ["a"]}, then={"warnings": ["b"]})
def test_rows_read_again_say_what_the_database_says(store: Store, first: dict[str, Any], then: dict[str, Any]) -> None:
    def work(s: Session) -> None:
        experiment = add_experiment(s)
        common = {"experiment_id": experiment, "state": "ACTIVE", "created_at": 1.0}
        changing = TrialRow(idx=0, request_id="changing", **{**common, **first})
        still = TrialRow(idx=1, request_id="still", **common)
        insert_row(s, changing)
        insert_row(s, still)
        before = _AGAIN.again(s, {}, {}, made)
        kept = before[still.id][1]
        for name, value in then.items():
            setattr(changing, name, value)
        s.flush()
        now = _AGAIN.again(s, {}, before, made)
        expected = {row[0]: repr(tuple(row[1:])) for row in _AGAIN.all(s, {})}
        assert {number: repr(row.values) for number, (_, row) in now.items()} == expected
        assert now[still.id][1] is kept
        raise Undo

    with pytest.raises(Undo):
        store.write_sync(work)


def test_a_row_read_again_is_a_new_object_only_if_it_changed(store: Store, experiment_id: int) -> None:
    one, two, three = (store.write_sync(lambda s: add_trial(s, experiment_id)) for _ in range(3))

    def look(before: dict[int, Any]) -> dict[int, Any]:
        return store.read_sync(lambda s: _AGAIN.again(s, {}, before, made))

    first = look({})
    assert sorted(first) == [one, two, three]
    store.write_sync(lambda s: _STATUS.run(s, {"trial": one, "said": "busy"}))
    store.write_sync(lambda s: s.execute(delete(TrialRow).where(TrialRow.id == two)))
    second = look(first)
    assert sorted(second) == [one, three]
    assert second[one][1] is not first[one][1]
    assert "busy" in second[one][1].values
    assert "busy" not in first[one][1].values, "what somebody still looks at stays as it was"
    assert second[three][1] is first[three][1]
    assert all(seen[1] is look(second)[number][1] for number, seen in second.items())


def test_rows_read_again_share_nothing_that_could_change(store: Store, experiment_id: int) -> None:
    one, two = (store.write_sync(lambda s: add_trial(s, experiment_id)) for _ in range(2))
    rows = store.read_sync(lambda s: _AGAIN.again(s, {}, {}, made))
    mutable = [[value for value in rows[number][1].values if isinstance(value, list | dict)] for number in (one, two)]
    assert len(mutable[0]) >= 3
    assert not {id(value) for value in mutable[0]} & {id(value) for value in mutable[1]}
    raw = {id(value) for number in (one, two) for value in rows[number][0]}
    assert not raw & {id(value) for values in mutable for value in values}


# --- somebody who listens


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


def test_who_listens_to_statements_hears_of_each(store: Store) -> None:
    def work(s: Session) -> None:
        experiment = add_experiment(s)
        trial = s.get_one(TrialRow, add_trial(s, experiment))
        assert _STATUS.run(s, {"trial": trial.id, "said": "busy"}) == 1
        assert _STATUS.run(s, {"trial": -1, "said": "busy"}) == 0
        assert _READ.first(s, {"trial": trial.id}).status == "busy"
        assert _READ.first(s, {"trial": -1}) is None
        mark = "?" if s.connection().dialect.name == "sqlite" else "%s"
        run_many(s, f"INSERT INTO meta (key, value) VALUES ({mark}, {mark})", [("a", "1"), ["b", "2"]])
        assert fetch(s, f"SELECT value, key FROM meta WHERE key = {mark}", ("b",)) == [("2", "b")]
        trial.progress = 0.5

    with statements(store) as found:
        store.write_sync(work)
    kinds = [" ".join(statement.split()[:3]).lower() for statement in found]
    for wanted in (
        "insert into experiments",
        "insert into trials",
        "insert into meta",
        "update trials set",
        "select value, key",
    ):
        assert any(kind.startswith(wanted) for kind in kinds), kinds
    assert sum(kind.startswith("update trials set") for kind in kinds) == 3

    def look(s: Session) -> tuple[Any, ...]:
        row = s.execute(select(TrialRow.status, TrialRow.progress)).one()
        return row.status, row.progress, sorted(s.scalars(select(Meta.key).where(Meta.key.in_(["a", "b"]))))

    assert store.read_sync(look) == ("busy", 0.5, ["a", "b"])


def test_who_listens_gets_the_errors_of_sqlalchemy(store: Store, experiment_id: int) -> None:
    with statements(store), pytest.raises(IntegrityError):
        store.write_sync(lambda s: insert_row(s, TrialRow(experiment_id=10**6, idx=0, request_id="r", state="ACTIVE")))
    assert store.healthy


# --- errors


@pytest.mark.parametrize("listened", [False, True])
def test_rows_come_as_the_driver_gives_them_and_errors_as_sqlalchemys(store: Store, listened: bool) -> None:
    def read(s: Session, what: str) -> list[Any]:
        mark = "?" if s.connection().dialect.name == "sqlite" else "%s"
        return fetch(s, f"SELECT {what} FROM meta WHERE key IN ({mark}, {mark}) ORDER BY key", ("x0", "x1"))

    store.write_sync(lambda s: s.add_all([Meta(key="x0", value="1"), Meta(key="x1", value="2")]))
    with statements(store) if listened else nullcontext():
        assert store.write_sync(lambda s: read(s, "key, value")) == [("x0", "1"), ("x1", "2")]
        with pytest.raises(DBAPIError, match="no_such_column"):
            store.write_sync(lambda s: read(s, "no_such_column"))
    assert store.healthy


def bad_number(s: Session) -> Any:
    """Fails in the second row, which SQLite comes to only when it is fetched."""
    if s.connection().dialect.name == "sqlite":
        return func.json(Meta.value)
    return cast(Meta.value, Integer)


@pytest.mark.parametrize("listened", [False, True])
def test_an_error_in_a_row_further_on_is_one_of_the_database(store: Store, listened: bool) -> None:
    store.write_sync(lambda s: s.add_all([Meta(key="x0", value="1"), Meta(key="x1", value="}")]))

    def read(s: Session) -> list[Any]:
        query = (
            select(bad_number(s).label("number")).where(Meta.key.startswith("x", autoescape=True)).order_by(Meta.key)
        )
        return PreparedStatement(query).all(s, {})

    if listened:
        with statements(store), pytest.raises(DBAPIError):
            store.write_sync(read)
    with pytest.raises(DBAPIError):
        store.write_sync(read)
    with pytest.raises(DBAPIError):
        store.read_sync(read)
    assert store.healthy
    store.write_sync(lambda s: s.execute(delete(Meta).where(Meta.key == "x1")))
    assert [int(row.number) for row in store.read_sync(read)] == [1]


def test_a_row_twice_is_refused_and_nothing_of_the_transaction_is_kept(store: Store, trial_id: int) -> None:
    def twice(s: Session) -> None:
        s.get_one(TrialRow, trial_id).status = "changed"
        s.flush()
        insert_row(s, Meta(key="new", value="1"))
        insert_row(s, Meta(key="new", value="2"))

    with pytest.raises(IntegrityError):
        store.write_sync(twice)
    assert store.healthy
    assert store.read_sync(lambda s: s.get(Meta, "new")) is None
    assert store.read_sync(lambda s: s.get_one(TrialRow, trial_id).status) == ""


@pytest.mark.parametrize("after", ["nothing", "a statement", "a row"])
@pytest.mark.parametrize("how", ["flush", "insert"])
def test_a_flush_that_failed_ends_the_transaction_whoever_swallows_the_error(
    store: Store, how: str, after: str
) -> None:
    """Else what came next would be written alone, and on SQLite even outside of a transaction."""
    store.write_sync(lambda s: s.add(Meta(key="there", value="1")))

    def swallow(s: Session) -> None:
        s.add(Meta(key="a", value="1"))
        again = Meta(key="there", value="2")
        if how == "flush":
            s.add(again)
        with pytest.raises(IntegrityError):
            s.flush() if how == "flush" else insert_row(s, again)
        if after == "a statement":
            _STATUS.run(s, {"trial": 1, "said": "x"})
        elif after == "a row":
            insert_row(s, Meta(key="b", value="1"))

    with pytest.raises(InvalidRequestError):
        store.write_sync(swallow)
    assert store.healthy
    assert store.read_sync(lambda s: [s.get(Meta, key) for key in ("a", "b")]) == [None, None]
    store.write_sync(lambda s: s.add(Meta(key="a", value="1")))


def test_a_row_that_is_gone_is_not_changed_in_silence(store: Store, trial_id: int) -> None:
    def change(s: Session) -> None:
        row = s.get_one(TrialRow, trial_id)
        s.connection().execute(delete(TrialRow.__table__).where(TrialRow.id == trial_id))
        row.status = "who?"

    with pytest.raises(StaleDataError):
        store.write_sync(change)
    assert store.read_sync(lambda s: s.get(TrialRow, trial_id)) is not None


def test_a_connection_lost_in_the_middle_stops_the_store(store: Store, trial_id: int) -> None:
    def cut(s: Session) -> None:
        _, driver = driver_of(s)
        driver.close()
        _STATUS.run(s, {"trial": trial_id, "said": "x"})

    postgres = store.url.startswith("postgresql")
    with pytest.raises(StoreBroken if postgres else DBAPIError):
        store.write_sync(cut)
    assert store.healthy != postgres


def test_what_core_would_work_out_is_to_be_given(store: Store) -> None:
    careless = PreparedStatement(insert(_TRIALS), ("experiment_id", "idx"))
    with pytest.raises(TypeError, match="are to be given"):
        store.write_sync(lambda s: careless.run(s, {"experiment_id": 1, "idx": 0}))


# --- transactions


def test_a_savepoint_holds_what_is_prepared(store: Store, trial_id: int) -> None:
    """Such a one is made when its connection is asked for, so it is asked for again."""

    def inside(s: Session) -> None:
        _STATUS.run(s, {"trial": trial_id, "said": "kept"})
        savepoint = s.begin_nested()
        _STATUS.run(s, {"trial": trial_id, "said": "undone"})
        savepoint.rollback()
        s.add(Meta(key="after", value="1"))

    store.write_sync(inside)
    assert store.read_sync(lambda s: s.get_one(TrialRow, trial_id).status) == "kept"
    assert store.read_sync(lambda s: s.get_one(Meta, "after").value) == "1"


def break_at_commit(s: Session) -> None:
    """Write what only a commit can refuse."""
    s.add(Meta(key="refused", value="1"))
    connection = s.connection()
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("PRAGMA defer_foreign_keys=ON")
        insert_row(s, TrialRow(experiment_id=10**6, idx=0, request_id="r", state="ACTIVE"))
    else:
        connection.exec_driver_sql("CREATE TEMP TABLE once (x int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        connection.exec_driver_sql("INSERT INTO once VALUES (1), (1)")


def test_the_kept_connection_is_sound_after_a_commit_that_failed(store: Store) -> None:
    with pytest.raises(IntegrityError):
        store.write_sync(break_at_commit)
    store.write_sync(lambda s: s.add(Meta(key="next", value="1")))
    kept = store._connection
    store.write_sync(lambda s: s.add(Meta(key="more", value="1")))
    assert store._connection is kept
    found = store.read_sync(lambda s: [s.get(Meta, key) is not None for key in ("refused", "next", "more")])
    assert found == [False, True, True]


# --- the flush


def test_what_is_given_as_none_gets_its_default(store: Store) -> None:
    make: Callable[[], TaskRow] = lambda: TaskRow(  # noqa: E731  (twice the same, new)
        kind="command", name="n", owner="ada", state="QUEUED", config=None, priority=None, id="t"
    )

    def written(s: Session) -> tuple[Any, Any]:
        insert_row(s, row := make())
        assert (row.config, row.priority) == ({}, 42)
        return row.config, row.priority

    def expected(s: Session) -> tuple[Any, Any]:
        with usual(s) as other:
            other.add(row := make())
            other.flush()
            return row.config, row.priority

    assert store.write_sync(expected) == store.write_sync(written)
    assert store.read_sync(lambda s: s.get_one(TaskRow, "t").config) == {}


def test_a_row_written_at_once_comes_after_those_that_it_refers_to(store: Store) -> None:
    def write(s: Session) -> None:
        experiment = ExperimentRow(id=77, name="x", owner="ada", state="ACTIVE")
        s.add(experiment)
        insert_row(s, TrialRow(experiment_id=77, idx=0, request_id="r", state="ACTIVE"))
        experiment.name = "y"

    store.write_sync(write)
    assert store.read_sync(lambda s: s.get_one(ExperimentRow, 77).name) == "y"


def test_rows_of_other_kinds_are_left_to_sqlalchemy(store: Store, experiment_id: int) -> None:
    """A key of several columns, at once and at the end, and a deleted row, beside rows of one."""

    def grant(name: str) -> GrantRow:
        return GrantRow(experiment_id=experiment_id, kind="user", name=name, granted_by="ada")

    def write(s: Session) -> None:
        insert_row(s, grant("at once"))
        s.get_one(ExperimentRow, experiment_id).name = "changed"
        s.add(grant("at the end"))

    store.write_sync(write)

    def remove(s: Session) -> None:
        s.get_one(ExperimentRow, experiment_id).name = "again"
        s.delete(s.get_one(GrantRow, (experiment_id, "user", "at once")))

    store.write_sync(remove)
    assert store.read_sync(lambda s: list(s.scalars(select(GrantRow.name)))) == ["at the end"]
    assert store.read_sync(lambda s: s.get_one(ExperimentRow, experiment_id).name) == "again"


def test_a_swapped_unique_value_is_judged_as_ever(store: Store, experiment_id: int) -> None:
    """Changes of a table are written by key, and before its new rows."""

    def move(s: Session) -> None:
        row = s.get_one(TrialRow, add_trial(s, experiment_id))
        row.idx = 5
        s.add(TrialRow(experiment_id=experiment_id, idx=0, request_id="other", state="ACTIVE"))

    store.write_sync(move)
    query = text("SELECT idx FROM trials ORDER BY idx")
    assert store.read_sync(lambda s: list(s.scalars(query))) == [0, 5]


def test_not_a_number_is_written_once_and_no_nan_is_lost(store: Store, trial_id: int) -> None:
    def write(s: Session) -> None:
        s.get_one(TrialRow, trial_id).latest_validation = math.nan

    store.write_sync(write)
    store.write_sync(write)
    value = store.read_sync(lambda s: s.get_one(TrialRow, trial_id).latest_validation)
    assert value is not None
    assert math.isnan(value)

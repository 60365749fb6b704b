"""Experiments, trials, checkpoints, workspaces, tokens."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import func, inspect, select
from sqlalchemy.orm import Session

from detlab.errors import NotFound
from detlab.schemas.wire import LogRecord, TrialState
from detlab_hub.store import Store
from detlab_hub.store.idempotency import known_experiment, known_task, note_experiment
from detlab_hub.store.queries import checkpoints, events, experiments, tokens, trial_order, trials, workspaces
from detlab_hub.store.queries.logs import chunks
from detlab_hub.store.queries.logs import lines as logs
from detlab_hub.store.queries.metrics import curves
from detlab_hub.store.tables import (
    AllocationRow,
    Base,
    CheckpointRow,
    ExperimentRow,
    Idempotency,
    SearcherJournal,
    TokenRow,
    TrialRow,
)
from testbed.databases.store_rows import add_experiment, add_trial

# --- experiments ----------------------------------------------------------------------------------------------


def test_experiments_page_newest_first_with_filters(store: Store) -> None:
    made = [
        store.write_sync(lambda s, n=n: add_experiment(s, owner="ada" if n % 2 else "bob", name=f"Run_{n}"))
        for n in range(10)
    ]

    def ids(*args: Any, **query: Any) -> list[int]:
        return store.read_sync(lambda s: experiments.page(s, *args, **query))

    first = ids(4)
    assert first == made[:-5:-1]
    assert ids(4, first[-1]) == made[5:1:-1]
    assert ids(owner="ada") == made[1::2][::-1]
    assert ids(name="run_3") == [made[3]]
    assert ids(name="n%") == []
    assert ids(state="PAUSED") == []
    assert ids(state="ACTIVE", owner="bob", limit=1) == [made[8]]


def test_counts_of_trials_by_state(store: Store, experiment_id: int) -> None:
    empty = store.write_sync(add_experiment)

    def states(s: Any) -> None:
        for state in (TrialState.ACTIVE, TrialState.ACTIVE, TrialState.COMPLETED):
            s.get(TrialRow, add_trial(s, experiment_id)).state = state

    store.write_sync(states)
    found = store.read_sync(lambda s: experiments.trial_counts(s, [experiment_id, empty]))
    assert found == {experiment_id: {"ACTIVE": 2, "COMPLETED": 1}, empty: {}}


def test_an_idempotency_key_finds_its_experiment_for_its_owner_only(store: Store, experiment_id: int) -> None:
    store.write_sync(lambda s: note_experiment(s, "ada", "k", experiment_id, 1.0))
    row = store.read_sync(lambda s: known_experiment(s, "ada", "k"))
    assert row is not None
    assert row.id == experiment_id
    assert store.read_sync(lambda s: known_experiment(s, "bob", "k")) is None
    store.write_sync(lambda s: note_experiment(s, "ada", None, experiment_id, 1.0))
    assert store.read_sync(lambda s: known_experiment(s, "ada", None)) is None
    assert store.read_sync(lambda s: known_task(s, "ada", "k")) is None, "a task may have the same key"


def fill(s: Any, experiment_id: int) -> None:
    """Hang one row of every kind on an experiment."""
    trial_id = add_trial(s, experiment_id)
    for step in range(60):
        curves.insert_report(s, trial_id, 1, "training", step, 0.0, {"a": step, "b": step, "note": "x"})
    logs.append(s, trial_id, 1, [LogRecord(seq=1, time=0.0, text="x")] * 50)
    events.append(s, "trial", 0.0, experiment_id, trial_id, {})
    key = f"{experiment_id}.{trial_id}"
    s.add(AllocationRow(id=key, trial_id=trial_id, experiment_id=experiment_id, run=1, state="RUNNING"))
    s.add(CheckpointRow(uuid=key, trial_id=trial_id, experiment_id=experiment_id))
    s.add(SearcherJournal(experiment_id=experiment_id, seq=trial_id, event={}, decisions=[]))
    s.add(Idempotency(owner="ada", key=key, experiment_id=experiment_id))
    s.flush()


def everything(s: Any) -> dict[str, list[tuple[Any, ...]]]:
    tables = (t for t in Base.metadata.sorted_tables if t.name not in {"lease", "metric_names", "meta"})
    return {t.name: sorted(map(str, s.execute(select(t)).all())) for t in tables}


@pytest.mark.parametrize("limit", [7, 100_000])
def test_a_deleted_experiment_leaves_nothing_and_takes_nothing_else(
    store: Store, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_CHARS", 1)  # a line in each chunk: lines go as slowly as points
    monkeypatch.setattr(chunks, "SMALL_CHARS", 0)
    keep = store.write_sync(add_experiment)
    store.write_sync(lambda s: fill(s, keep))
    before = store.read_sync(everything)
    gone = store.write_sync(add_experiment)
    for _ in range(2):
        store.write_sync(lambda s: fill(s, gone))
    calls = 1
    while not store.write_sync(lambda s: experiments.delete_rows(s, gone, limit)):
        calls += 1
    assert store.read_sync(everything) == before
    assert calls == 1 if limit > 1000 else calls >= 340 / 7
    assert store.write_sync(add_experiment) > gone


# --- trials, checkpoints --------------------------------------------------------------------------------------


def test_trials_page_in_creation_order(store: Store, experiment_id: int, new_trial: Callable[[], int]) -> None:
    made = [new_trial() for _ in range(7)]
    page = store.read_sync(lambda s: trial_order.ids(s, experiment_id, 3))
    assert page == made[:3]
    assert store.read_sync(lambda s: trial_order.ids(s, experiment_id, 10, after=page[-1])) == made[3:]


def test_the_newest_allocation_of_each_trial(store: Store, experiment_id: int, new_trial: Callable[[], int]) -> None:
    one, two = new_trial(), new_trial()

    def allocate(s: Any) -> None:
        for run, state in ((1, "TERMINATED"), (2, "RUNNING")):
            s.add(AllocationRow(id=f"a.{run}", trial_id=one, experiment_id=experiment_id, run=run, state=state))

    store.write_sync(allocate)
    found = store.read_sync(lambda s: trials.latest_allocations(s, [one, two]))
    assert {trial: row.id for trial, row in found.items()} == {one: "a.2"}
    assert store.read_sync(lambda s: experiments.running_counts(s, [experiment_id], ["RUNNING"])) == {experiment_id: 1}


def test_the_checkpoint_to_resume_from(store: Store, experiment_id: int, trial_id: int) -> None:
    def add(s: Any) -> None:
        for uuid, steps, at, state in (
            ("a", 10, 1.0, "COMPLETED"),
            ("b", 20, 2.0, "COMPLETED"),
            ("c", 30, 3.0, "DELETED"),
            ("d", 20, 4.0, "COMPLETED"),
        ):
            s.add(
                CheckpointRow(
                    uuid=uuid,
                    trial_id=trial_id,
                    experiment_id=experiment_id,
                    steps_completed=steps,
                    created_at=at,
                    state=state,
                )
            )

    store.write_sync(add)
    newest = store.read_sync(lambda s: checkpoints.latest(s, trial_id))
    assert newest is not None
    assert newest.uuid == "d"
    assert store.read_sync(lambda s: checkpoints.latest(s, trial_id + 1)) is None
    for of, key, order in (
        (checkpoints.of_trial, trial_id, "cdba"),
        (checkpoints.of_experiment, experiment_id, "dcba"),
    ):
        assert store.read_sync(lambda s, of=of, key=key: of(s, key)) == list(order)
        for seen in range(1, 5):
            first = store.read_sync(lambda s, of=of, key=key, seen=seen: of(s, key, seen))
            rest = store.read_sync(lambda s, of=of, key=key, first=first: of(s, key, 9, first[-1]))
            assert [*first, *rest] == list(order)
        with pytest.raises(NotFound, match="after which a page could begin"):
            store.read_sync(lambda s, of=of, key=key: of(s, key, 9, "nobody's"))


def test_a_nan_validation_is_kept_on_the_trial(store: Store, trial_id: int) -> None:
    for value in (math.nan, math.inf, 0.1, None):

        def note(s: Any, value: float | None = value) -> None:
            s.get(TrialRow, trial_id).latest_validation = value

        store.write_sync(note)
        row = store.read_sync(lambda s: s.get(TrialRow, trial_id))
        assert row is not None
        found = row.latest_validation
        assert found == value or (value is not None and found is not None and math.isnan(found) and math.isnan(value))


def test_json_columns_keep_what_postgres_json_would_refuse(store: Store, experiment_id: int) -> None:
    config = {"nul": "\x00", "lone": "\ud800", "nan": math.inf, "deep": [{"x": None}], "big": 10**30}

    def note(s: Any) -> None:
        s.get(ExperimentRow, experiment_id).config = config

    store.write_sync(note)
    row = store.read_sync(lambda s: s.get(ExperimentRow, experiment_id))
    assert row is not None
    assert row.config == config
    assert inspect(row).detached


# --- workspaces, tokens ---------------------------------------------------------------------------------------


def test_personal_workspaces_are_made_on_first_use_one_for_each_owner(store: Store) -> None:
    def ensure(owner: str) -> tuple[int, int]:
        def make(s: Session) -> tuple[int, int]:
            place = workspaces.personal(s, owner, 5.0)
            return place, workspaces.uncategorized(s, place, owner, 5.0)

        return store.write_sync(make)

    first, second = ensure("ada"), ensure("ben")
    assert ensure("ada") == first
    assert not {*first} & {*second} or first[0] != second[0]
    found = store.read_sync(lambda s: workspaces.labels(s, [first[1], second[1]]))
    assert found == {
        first[1]: ("ada", "Uncategorized", "Uncategorized"),
        second[1]: ("ben", "Uncategorized", "Uncategorized"),
    }


@pytest.mark.parametrize(
    ("one", "other"),
    [("Lab", "LAB"), ("café", "cafe\u0301"), ("ﬁne", "fine"), ("Straße", "STRASSE"), ("a b", "a  b"), ("Ⅳ", "iv")],
)
def test_names_that_differ_only_in_case_or_in_unicodes_form_are_one(one: str, other: str) -> None:
    assert workspaces.key_of(one) == workspaces.key_of(other)
    assert workspaces.key_of(one) != workspaces.key_of(f"{other}x")


def test_tokens_are_looked_up_until_they_expire(store: Store) -> None:
    token = store.write_sync(lambda s: tokens.issue(s, "task", "1.a.1", 100.0, 0.0))
    lasting = store.write_sync(lambda s: tokens.issue(s, "agent", "node", None, 0.0))
    assert token.startswith("dttask_")
    assert lasting.startswith("dtagent_")
    row = store.read_sync(lambda s: tokens.lookup(s, token, 99.9))
    assert row is not None
    assert (row.kind, row.subject) == ("task", "1.a.1")
    assert store.read_sync(lambda s: tokens.lookup(s, token, 100.0)) is None
    assert store.read_sync(lambda s: tokens.lookup(s, lasting, 1e12)) is not None
    assert store.read_sync(lambda s: tokens.lookup(s, "dttask_\ud800nonsense", 0.0)) is None


def test_the_text_of_a_token_is_not_in_the_database(store: Store) -> None:
    token = store.write_sync(lambda s: tokens.issue(s, "agent", "node", None, 0.0))
    rows = store.read_sync(lambda s: s.execute(select(TokenRow.__table__)).all())
    assert token not in str(rows)
    assert token.partition("_")[2] not in str(rows)


def test_tokens_are_revoked_and_purged(store: Store) -> None:
    old = store.write_sync(lambda s: tokens.issue(s, "task", "a", 10.0, 0.0))
    new = store.write_sync(lambda s: tokens.issue(s, "task", "a", 20.0, 0.0))
    store.write_sync(lambda s: tokens.issue(s, "task", "b", 20.0, 0.0))
    assert store.write_sync(lambda s: tokens.purge(s, 15.0)) == 1
    assert store.read_sync(lambda s: tokens.lookup(s, old, 0.0)) is None
    assert store.write_sync(lambda s: tokens.revoke(s, "task", "a")) == 1
    assert store.read_sync(lambda s: tokens.lookup(s, new, 0.0)) is None
    assert store.write_sync(lambda s: tokens.revoke(s, "task", "b")) == 1
    assert store.read_sync(lambda s: s.scalar(select(func.count()).select_from(TokenRow))) == 0

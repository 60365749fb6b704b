"""A row is got by its key however it came into the session."""

from __future__ import annotations

import pytest
from sqlalchemy import delete, event, select
from sqlalchemy.exc import NoResultFound
from sqlalchemy.orm import Session
from sqlalchemy.orm.exc import StaleDataError

from detlab_hub.store import Store
from detlab_hub.store.session import StoreSession, insert_row
from detlab_hub.store.tables import ExperimentRow, PartRow, TokenRow, TrialRow


def token(name: str) -> TokenRow:
    return TokenRow(hash=name, kind="task", subject="a", created_at=1.0)


def test_a_new_row_is_got_by_its_key_before_anything_was_flushed(store: Store) -> None:
    def add_and_get(s: Session) -> None:
        new = token("new")
        s.add(new)
        assert s.get(TokenRow, "new") is new

    store.write_sync(add_and_get)


def test_a_row_is_one_however_its_key_is_spelled(store: Store) -> None:
    store.write_sync(lambda s: s.add(token("a\ufffd")))

    def get_both(s: Session) -> None:
        row = s.get(TokenRow, "a\ufffd")
        assert row is not None
        assert s.get(TokenRow, "a\x00") is row
        row.subject = "b"

    store.write_sync(get_both)
    assert store.read_sync(lambda s: s.get_one(TokenRow, "a\ufffd").subject) == "b"


def test_what_is_not_there_is_none(store: Store) -> None:
    assert store.read_sync(lambda s: s.get(TokenRow, "nobody")) is None
    assert store.read_sync(lambda s: s.get(TokenRow, None)) is None
    with pytest.raises(NoResultFound):
        store.read_sync(lambda s: s.get_one(TokenRow, "nobody"))


@pytest.mark.parametrize("gone", [None, "experiment", "token"])
def test_two_changed_rows_are_both_written_or_the_one_that_is_gone_is_named(
    store: Store, experiment_id: int, gone: str | None
) -> None:
    store.write_sync(lambda s: s.add(token("one")))

    def change(s: Session) -> None:
        experiment, row = s.get_one(ExperimentRow, experiment_id), s.get_one(TokenRow, "one")
        if gone == "experiment":
            s.connection().execute(delete(ExperimentRow).where(ExperimentRow.id == experiment_id))
        elif gone == "token":
            s.connection().execute(delete(TokenRow).where(TokenRow.hash == "one"))
        experiment.name, row.subject = "changed", "b"

    if gone is not None:
        with pytest.raises(StaleDataError, match="ExperimentRow" if gone == "experiment" else "TokenRow one"):
            store.write_sync(change)
    else:
        store.write_sync(change)
    expected = ("digits", "a") if gone else ("changed", "b")
    found = store.read_sync(lambda s: (s.scalar(select(ExperimentRow.name)), s.scalar(select(TokenRow.subject))))
    assert found == expected


@pytest.mark.parametrize("gone", [None, "experiment", "token", "part"])
def test_three_changed_rows_are_all_written_or_the_one_that_is_gone_is_named(
    store: Store, experiment_id: int, gone: str | None
) -> None:
    """As when an attempt ends: its part, itself and its trial, by one statement where a round trip costs most."""
    store.write_sync(lambda s: s.add_all([token("one"), PartRow(allocation_id="x", rank=1, agent_id="n")]))
    named = {"experiment": "ExperimentRow", "token": "TokenRow one", "part": "PartRow x 1"}

    def change(s: Session) -> None:
        experiment, row = s.get_one(ExperimentRow, experiment_id), s.get_one(TokenRow, "one")
        part = s.get_one(PartRow, ("x", 1))
        for table in (ExperimentRow, TokenRow, PartRow):
            if gone is not None and named[gone].startswith(table.__name__):
                s.connection().execute(delete(table))
        experiment.name, row.subject, part.started = "changed", "b", True

    if gone is not None:
        with pytest.raises(StaleDataError, match=named[gone]):
            store.write_sync(change)
    else:
        store.write_sync(change)
    expected = ("digits", "a", False) if gone else ("changed", "b", True)
    found = store.read_sync(
        lambda s: (
            s.scalar(select(ExperimentRow.name)),
            s.scalar(select(TokenRow.subject)),
            s.scalar(select(PartRow.started)),
        )
    )
    assert found == expected


def test_a_row_with_a_key_of_two_columns_is_inserted_alone_kept_and_got_by_it(store: Store, experiment_id: int) -> None:
    def place(s: Session) -> None:
        s.get_one(ExperimentRow, experiment_id).name = "later"
        statements: list[str] = []
        event.listen(s.connection(), "before_cursor_execute", lambda *given: statements.append(given[2].split()[0]))
        for rank in (0, 1):
            insert_row(s, PartRow(allocation_id="x", rank=rank, agent_id=f"n{rank}", slots=["s0"]))
        assert statements == ["INSERT", "INSERT"], "what was changed is written once, at the end"
        assert [s.get_one(PartRow, ("x", rank)).agent_id for rank in (0, 1)] == ["n0", "n1"]
        assert len(statements) == 2, "they are known"
        assert s.get(PartRow, ("x", 2)) is None
        s.get_one(PartRow, ("x", 1)).end = "lost"

    store.write_sync(place)
    found = store.read_sync(lambda s: [(row.rank, row.slots, row.end) for row in s.scalars(select(PartRow))])
    assert sorted(found) == [(0, ["s0"], None), (1, ["s0"], "lost")]
    assert store.read_sync(lambda s: s.get_one(PartRow, ("x", 1)).end) == "lost"


def test_rows_that_were_read_ahead_are_those_that_get_gives(store: Store, experiment_id: int, trial_id: int) -> None:
    def read(s: Session) -> None:
        assert isinstance(s, StoreSession)
        statements: list[str] = []
        event.listen(s.connection(), "before_cursor_execute", lambda *given: statements.append(given[2]))
        s.get_ahead(ExperimentRow, experiment_id, TrialRow, trial_id)
        experiment, trial = s.get_one(ExperimentRow, experiment_id), s.get_one(TrialRow, trial_id)
        assert (experiment.name, trial.request_id, trial.experiment_id) == ("digits", "request-0", experiment_id)
        s.get_ahead(ExperimentRow, experiment_id, TrialRow, trial_id)
        assert len(statements) == 1

    store.read_sync(read)


def test_reading_ahead_what_is_missing_or_new_leaves_it_to_get(store: Store, experiment_id: int) -> None:
    def read(s: Session) -> None:
        assert isinstance(s, StoreSession)
        s.get_ahead(ExperimentRow, experiment_id, TrialRow, 999)
        assert s.get(TrialRow, 999) is None
        changed = s.get_one(ExperimentRow, experiment_id)
        changed.name = "mine"
        new = token("new")
        s.add(new)
        s.get_ahead(ExperimentRow, experiment_id, TokenRow, "new")
        assert s.get(TokenRow, "new") is new
        assert s.get(ExperimentRow, experiment_id) is changed
        assert changed.name == "mine"

    store.write_sync(read)

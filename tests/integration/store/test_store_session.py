"""A row is got by its key however it came into the session."""

from __future__ import annotations

import pytest
from sqlalchemy import delete, event, select
from sqlalchemy.exc import NoResultFound
from sqlalchemy.orm import Session
from sqlalchemy.orm.exc import StaleDataError

from detlab_hub.store import Store
from detlab_hub.store.session import StoreSession
from detlab_hub.store.tables import ExperimentRow, TokenRow, TrialRow


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

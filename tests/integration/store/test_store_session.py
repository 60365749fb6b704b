"""A row is got by its key however it came into the session."""

from __future__ import annotations

import pytest
from sqlalchemy.exc import NoResultFound
from sqlalchemy.orm import Session

from detlab_hub.store import Store
from detlab_hub.store.tables import TokenRow


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

from __future__ import annotations

import os
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.exc import DBAPIError

from detlab_hub.store import StoreError
from detlab_hub.store.engine import ErrorClass, classify, parse_url, sqlite_path
from detlab_hub.store.lease import ProcessIdentity
from detlab_hub.store.queries.logs.lines import LINE_BYTES, cut_line
from detlab_hub.store.tables import clean_text


def sqlite_error(code: int) -> DBAPIError:
    original = sqlite3.OperationalError("x")
    original.sqlite_errorcode = code
    return DBAPIError("INSERT", {}, original)


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (sqlite3.SQLITE_CONSTRAINT_UNIQUE, ErrorClass.CALLER),
        (sqlite3.SQLITE_ERROR, ErrorClass.CALLER),
        (sqlite3.SQLITE_BUSY, ErrorClass.BUSY),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, ErrorClass.BUSY),
        (sqlite3.SQLITE_FULL, ErrorClass.BROKEN),
        (sqlite3.SQLITE_IOERR_FSYNC, ErrorClass.BROKEN),
        (sqlite3.SQLITE_CORRUPT, ErrorClass.BROKEN),
        (sqlite3.SQLITE_READONLY, ErrorClass.BROKEN),
    ],
)
def test_sqlite_errors_are_told_apart(code: int, verdict: ErrorClass) -> None:
    assert classify(sqlite_error(code)) is verdict


class OperationalError(Exception):
    """Named as psycopg's, with an SQLSTATE."""

    def __init__(self, sqlstate: str | None) -> None:
        super().__init__(sqlstate)
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    ("sqlstate", "verdict"),
    [
        ("23505", ErrorClass.CALLER),
        ("22003", ErrorClass.CALLER),
        ("40001", ErrorClass.BUSY),
        ("40P01", ErrorClass.BUSY),
        ("25P03", ErrorClass.BUSY),
        ("25P04", ErrorClass.BUSY),
        ("57P05", ErrorClass.BUSY),
        ("53100", ErrorClass.BROKEN),
        ("58030", ErrorClass.BROKEN),
        ("57P01", ErrorClass.BROKEN),
        ("XX001", ErrorClass.BROKEN),
        (None, ErrorClass.BROKEN),
    ],
)
def test_postgres_errors_are_told_apart(sqlstate: str | None, verdict: ErrorClass) -> None:
    assert classify(DBAPIError("INSERT", {}, OperationalError(sqlstate))) is verdict


def test_postgres_urls_get_our_driver() -> None:
    assert parse_url("postgresql://u@h/d").drivername == "postgresql+psycopg"


@pytest.mark.parametrize("url", ["mysql://u@h/d", "not a url"])
def test_other_databases_are_refused_with_what_to_set(url: str) -> None:
    with pytest.raises(StoreError) as caught:
        parse_url(url)
    assert "DetHub.db_url" in str(caught.value)


def test_the_path_of_a_database() -> None:
    assert sqlite_path(parse_url("sqlite:////a/b.db")) == Path("/a/b.db")
    assert sqlite_path(parse_url("sqlite://")) is None
    assert sqlite_path(parse_url("postgresql://u@h/d")) is None


def test_this_process_is_not_seen_dead() -> None:
    identity = ProcessIdentity.current()
    assert identity.pid == os.getpid()
    assert not identity.seen_dead()
    assert ProcessIdentity.parse(identity.dump()) == identity


def test_a_gone_pid_and_a_pid_used_again_are_seen_dead() -> None:
    identity = ProcessIdentity.current()
    assert replace(identity, pid=2**22 + 1).seen_dead()
    assert replace(identity, start=identity.start + 1).seen_dead()


def test_a_process_of_another_boot_or_namespace_may_live() -> None:
    gone = replace(ProcessIdentity.current(), pid=2**22 + 1)
    assert not replace(gone, boot="another").seen_dead()
    assert not replace(gone, namespace="pid:[1]").seen_dead()
    assert not replace(gone, boot="").seen_dead()


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"boot": 1}'])
def test_a_strange_identity_is_none(text: str) -> None:
    assert ProcessIdentity.parse(text) is None


@given(st.text(st.characters(exclude_categories=())))
def test_clean_text_can_always_be_stored(text: str) -> None:
    clean = clean_text(text)
    assert "\x00" not in clean
    assert len(clean) == len(text)
    clean.encode()


@given(st.text(st.sampled_from("aé漢𐍈"), max_size=30), st.integers(0, 3000))
def test_long_lines_are_cut_and_marked(text: str, times: int) -> None:
    line = text * times
    cut = cut_line(line + "\r\n")
    assert len(cut.encode()) <= LINE_BYTES
    if len(line.encode()) <= LINE_BYTES:
        assert cut == line
    else:
        assert cut.endswith("[line cut at 16 kB]")
        assert line.startswith(cut[:1000])

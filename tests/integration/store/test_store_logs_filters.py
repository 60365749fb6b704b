"""Filters of logs go to the database, and look at no more lines than they say."""

from __future__ import annotations

from typing import Any

import pytest

from detlab.schemas.wire import LogRecord
from detlab_hub.store import Store
from detlab_hub.store.queries import logchunks, logs


def fill(store: Store, trial_id: int, count: int = 30) -> None:
    """Thirty lines, every tenth an error (0, 10, 20), two ranks in turn; some of another trial between them."""
    for n in range(count):
        record = LogRecord(seq=n, time=float(n), text=f"line {n}", rank=n % 2, level=None if n % 10 else "ERROR")
        store.write_sync(lambda s, one=record: logs.append(s, trial_id, 1, [one]))
        store.write_sync(lambda s, one=record: logs.append(s, trial_id + 1, 1, [one]))


def pick(store: Store, trial_id: int, **wanted: Any) -> tuple[list[str], logs.Edges]:
    lines, edges = store.read_sync(lambda s: logs.pick(s, trial_id, logs.Wanted(**wanted)))
    return [line.text for line in lines], edges


@pytest.mark.parametrize(
    ("level", "found"),
    [("DEBUG", "abcd"), ("INFO", "abcd"), ("WARNING", "bcd"), ("ERROR", "cd"), ("CRITICAL", "d"), (None, "abcde")],
)
def test_a_level_and_what_is_worse(store: Store, trial_id: int, level: str | None, found: str) -> None:
    for text, of in zip("abcde", ("INFO", "WARNING", "ERROR", "CRITICAL", None), strict=True):
        store.write_sync(
            lambda s, t=text, o=of: logs.append(s, trial_id, 1, [LogRecord(seq=1, time=0, text=t, level=o)])
        )
    assert "".join(pick(store, trial_id, level=level)[0]) == found
    assert "".join(pick(store, trial_id, level=level, tail=10)[0]) == found


def test_an_error_is_found_however_old_it_is(store: Store, trial_id: int) -> None:
    fill(store, trial_id)
    assert pick(store, trial_id, tail=2, level="WARNING")[0] == ["line 10", "line 20"]
    assert pick(store, trial_id, tail=5, level="ERROR", rank=1) == ([], logs.Edges())
    assert pick(store, trial_id, tail=5, level="ERROR", search="LINE 1")[0] == ["line 10"]


def test_a_filter_looks_at_so_many_lines_and_says_where_to_go_on(
    store: Store, trial_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logchunks, "CHUNK_CHARS", 1)  # a line in each
    monkeypatch.setattr(logchunks, "SMALL_CHARS", 0)
    fill(store, trial_id)
    monkeypatch.setattr(logs, "SCAN", 7)
    seen, older = [], None
    for _ in range(30):
        texts, edges = pick(store, trial_id, level="ERROR", **({"before": older} if older else {"tail": 100}))
        seen = texts + seen
        older = edges.older
        assert edges.next is None
        if older is None:
            break
    assert seen == ["line 0", "line 10", "line 20"]
    forward, position = [], 0
    for _ in range(30):
        texts, edges = pick(store, trial_id, level="ERROR", after=position)
        forward += texts
        if edges.next is None:
            break
        assert edges.next > position
        position = edges.next
    assert forward == seen


def test_pages_of_a_filter_join_without_a_gap(store: Store, trial_id: int) -> None:
    fill(store, trial_id)
    texts, edges = pick(store, trial_id, rank=0, tail=4)
    assert texts == ["line 22", "line 24", "line 26", "line 28"]
    texts, edges = pick(store, trial_id, rank=0, before=edges.older, limit=3)
    assert texts == ["line 16", "line 18", "line 20"]
    whole, edges = pick(store, trial_id, before=edges.older, limit=100)
    assert (whole, edges.older) == ([f"line {n}" for n in range(16)], None)

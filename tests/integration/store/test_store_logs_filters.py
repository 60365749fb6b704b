"""Filters of logs go to the database, and look at no more lines than they say."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest

from detlab.schemas.wire import LogRecord
from detlab_hub.store import Store
from detlab_hub.store.queries.logs import chunks
from detlab_hub.store.queries.logs import lines as logs


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
    monkeypatch.setattr(chunks, "CHUNK_CHARS", 1)  # a line in each
    monkeypatch.setattr(chunks, "SMALL_CHARS", 0)
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


def one_by_one(store: Store, trial_id: int, texts: list[str], run: int = 1) -> None:
    """Each line in a chunk of its own."""
    records = [LogRecord(seq=n, time=float(n), text=text, rank=0) for n, text in enumerate(texts)]
    for record in records:
        store.write_sync(lambda s, one=record: logs.append(s, trial_id, run, [one]))


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_CHARS", 1)
    monkeypatch.setattr(chunks, "SMALL_CHARS", 0)


def test_a_long_text_that_could_begin_at_every_letter_holds_no_reader(store: Store, trial_id: int) -> None:
    lines = [LogRecord(seq=n, time=0.0, text="a" * 6000) for n in range(400)]
    lines.append(LogRecord(seq=401, time=0.0, text="50%_of / " + "A" * 199 + "B"))
    store.write_sync(lambda s: logs.append(s, trial_id, 1, lines))
    began = time.thread_time()
    texts, edges = pick(store, trial_id, search="a" * 199 + "b")
    took = time.thread_time() - began
    assert (len(texts), edges) == (1, logs.Edges())
    assert pick(store, trial_id, search="%_OF / aaaaaaaaaaaaaaaaaaaaa")[0] == texts
    assert pick(store, trial_id, search="%_OF /")[0] == texts
    assert took < 0.3, "of the reader's processor time; with LIKE it was a second, and a minute for a whole question"


@pytest.mark.parametrize("backwards", [True, False])
def test_a_filter_ends_its_page_in_time_and_pages_join(
    store: Store, trial_id: int, tiny: None, backwards: bool
) -> None:
    one_by_one(store, trial_id, [f"{'even' if n % 2 == 0 else 'odd'} {n}" for n in range(30)])
    seen: list[str] = []
    edge: int | None = None
    pages = 0
    while edge is not None or not pages:
        pages += 1
        ticks = itertools.count()
        position = {"before": edge} if edge else {"tail": 100}
        wanted = logs.Wanted(search="even", **(position if backwards else {"after": edge}))
        lines, edges = store.read_sync(lambda s, w=wanted, t=ticks: logs.pick(s, trial_id, w, lambda: next(t) * 0.3))
        texts = [line.text for line in lines]
        assert len(texts) <= 4, "a second is over after so many looks at the clock"
        seen = texts + seen if backwards else seen + texts
        edge = edges.older if backwards else edges.next
    assert seen == [f"even {n}" for n in range(0, 30, 2)]
    assert pages > 3


def test_a_page_between_two_lines_reads_only_what_is_between_them(
    store: Store, trial_id: int, tiny: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_by_one(store, trial_id, [f"line {n}" for n in range(40)])
    read: list[int] = []
    unpacked = chunks.unpacked

    def counted(first: int, *rest: Any) -> Any:
        read.append(first)
        return unpacked(first, *rest)

    monkeypatch.setattr(chunks, "unpacked", counted)
    assert pick(store, trial_id, after=5, before=8) == (["line 5", "line 6"], logs.Edges())
    assert pick(store, trial_id, tail=30, after=37) == (["line 37", "line 38", "line 39"], logs.Edges())
    assert pick(store, trial_id, tail=30, after=5, before=8) == (["line 5", "line 6"], logs.Edges())
    assert sorted(read) == [6, 6, 7, 7, 38, 39, 40]


def test_the_last_lines_of_an_attempt_that_said_nothing_look_at_no_earlier_one(
    store: Store, trial_id: int, tiny: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_by_one(store, trial_id, [f"first {n}" for n in range(20)])
    one_by_one(store, trial_id, ["third"], run=3)

    def last(run: int, count: int) -> list[str]:
        return [line.text for line in store.read_sync(lambda s: logs.last_lines(s, trial_id, run, count))]

    assert (last(3, 5), last(1, 2)) == (["third"], ["first 18", "first 19"])
    monkeypatch.setattr(logs, "_lines", lambda chunk: pytest.fail(f"attempt {chunk.run} was read"))
    assert last(2, 5) == []


def test_a_page_may_be_full_by_its_text(store: Store, trial_id: int) -> None:
    one_by_one(store, trial_id, ["x" * 10] * 10)
    assert pick(store, trial_id, chars=25) == (["x" * 10] * 3, logs.Edges(next=3))
    assert pick(store, trial_id, chars=25, tail=10) == (["x" * 10] * 3, logs.Edges(older=8))

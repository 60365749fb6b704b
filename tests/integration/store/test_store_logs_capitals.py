"""A text is found whatever the case of ASCII letters, on both databases alike."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select, update

from detlab.schemas.wire import LogRecord
from detlab_hub.store import Store
from detlab_hub.store.queries.logs import chunks as logchunks
from detlab_hub.store.queries.logs import lines as logs
from detlab_hub.store.tables import LogChunk

LETTERS = "aAbBxX0.: éÉ_"


def say(store: Store, trial_id: int, *texts: str) -> None:
    records = [LogRecord(seq=n, time=float(n), text=text) for n, text in enumerate(texts)]
    store.write_sync(lambda s: logs.append(s, trial_id, 1, records))


def found(store: Store, trial_id: int, text: str) -> list[str]:
    lines, _ = store.read_sync(lambda s: logs.pick(s, trial_id, logs.Wanted(search=text)))
    return [line.text for line in lines]


def lower(text: str) -> bytes:
    return text.encode().lower()


@pytest.mark.parametrize(
    "text",
    ["Loss=nan", "loss=NaN", "isNaN", "NAN", "n", "=n", "12:30T", "t12", "É=x", "ERROR at LINE 3", "-", "at line"],
)
def test_a_text_is_found_however_it_is_written(store: Store, trial_id: int, text: str) -> None:
    lines = ["Loss=NaN", "loss=nan", "12:30T12", "xÉ=X", "é=x", "Error at line 3", "error AT LINE 3", "isNan(", "-- 1"]
    say(store, trial_id, *lines)
    assert found(store, trial_id, text) == [line for line in lines if lower(text) in lower(line)]


@pytest.mark.parametrize("seed", range(3))
def test_what_is_found_in_many_chunks_is_what_is_in_them(
    store: Store, trial_id: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logchunks, "CHUNK_CHARS", 30)
    monkeypatch.setattr(logchunks, "SMALL_CHARS", 0)
    monkeypatch.setattr(logchunks, "CAPITALS_CHARS", 12)  # in some chunks there are too many
    monkeypatch.setattr(logs, "SECONDS", 60.0)  # a page ends for its time on a busy machine, too
    draw = random.Random(seed)
    lines = ["".join(draw.choices(LETTERS, k=draw.randint(0, 12))) for _ in range(100)]
    for start in range(0, len(lines), 20):
        say(store, trial_id, *lines[start : start + 20])
    for _ in range(30):
        text = "".join(draw.choices(LETTERS.replace(" ", ""), k=draw.randint(1, 4)))
        assert found(store, trial_id, text) == [line for line in lines if lower(text) in lower(line)], text


def test_lines_from_before_there_were_such_words_are_found(store: Store, trial_id: int) -> None:
    say(store, trial_id, "An ERROR")
    store.write_sync(lambda s: s.execute(update(LogChunk).values(capitals=None)))
    assert found(store, trial_id, "error") == ["An ERROR"]


def test_a_chunk_that_grows_knows_the_words_of_all_its_lines(store: Store, trial_id: int) -> None:
    say(store, trial_id, "An Apple")
    say(store, trial_id, "a Pear")
    rows: Any = store.read_sync(lambda s: s.execute(select(LogChunk.capitals, LogChunk.lines)).all())
    postgres = store.read_sync(lambda s: s.get_bind().dialect.name) == "postgresql"
    assert rows == [("an apple pear" if postgres else None, 2)]
    assert found(store, trial_id, "PEAR") == ["a Pear"]


def test_a_text_of_many_words_is_found(store: Store, trial_id: int) -> None:
    text = "a b c d e f g h i j K"
    say(store, trial_id, f"the {text.lower()}", f"The {text}", "another", text.upper())
    assert found(store, trial_id, text) == [f"the {text.lower()}", f"The {text}", text.upper()]


@given(st.text(alphabet=LETTERS, max_size=40), st.text(alphabet=LETTERS, min_size=1, max_size=4))
def test_a_text_with_capitals_has_a_word_among_those_with_capitals(body: str, text: str) -> None:
    words = logchunks.capitals(body)
    assert words is not None
    folded = lower(text).decode()
    if folded in lower(body).decode() and folded not in body:
        assert any(word in words for word in logchunks.words_of(text))


def test_too_many_words_with_capitals_are_not_kept() -> None:
    assert logchunks.capitals("no capital, 12") == ""
    assert logchunks.capitals("UUID 3F9A-b2Cd É") == "a cd f uuid"
    assert logchunks.capitals(" ".join("A" * n for n in range(1, 60))) is None

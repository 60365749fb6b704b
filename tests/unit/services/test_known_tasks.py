"""Tokens of tasks that are remembered: no longer than their attempt, their own time, and some seconds."""

from __future__ import annotations

from detlab_hub.services.base.callers import TaskCaller
from detlab_hub.services.base.token_cache import LASTS, MOST, KnownTasks


def task(name: str) -> TaskCaller:
    return TaskCaller(name, 1, 1, 1, None)


def test_what_is_kept_is_known_for_some_seconds() -> None:
    known = KnownTasks()
    assert known.get("a", 100.0) is None
    known.keep("a", task("x"), None, 100.0, known.ends)
    assert known.get("a", 100.0 + LASTS - 0.1) == task("x")
    assert known.get("a", 100.0 + LASTS) is None


def test_a_token_is_not_known_beyond_its_own_time() -> None:
    known = KnownTasks()
    known.keep("a", task("x"), 103.0, 100.0, known.ends)
    assert known.get("a", 102.9) == task("x")
    assert known.get("a", 103.0) is None


def test_an_end_is_the_end_of_all_its_tokens_and_of_no_other() -> None:
    known = KnownTasks()
    for digest, name in (("a", "x"), ("b", "x"), ("c", "y")):
        known.keep(digest, task(name), None, 100.0, known.ends)
    known.forget(["x", "nobody"])
    assert [known.get(digest, 100.0) for digest in "abc"] == [None, None, task("y")]


def test_what_ended_while_it_was_looked_up_is_not_kept() -> None:
    known = KnownTasks()
    before = known.ends
    known.forget(["x"])
    known.keep("a", task("x"), None, 100.0, before)
    assert known.get("a", 100.0) is None


def test_there_is_a_bound() -> None:
    known = KnownTasks()
    for number in range(MOST + 1):
        known.keep(str(number), task(str(number)), None, 100.0, known.ends)
    assert known.get("0", 100.0) is None
    assert known.get(str(MOST), 100.0) is not None
    known.forget([str(MOST)])
    assert known.get(str(MOST), 100.0) is None

"""Waiting for room on a full disk, one wait inside of another."""

from __future__ import annotations

import errno

import pytest

from detlab.core.full_disk import PATIENCE, PAUSE, await_room
from detlab.errors import StorageError


def full() -> None:
    raise StorageError("cannot write") from OSError(errno.ENOSPC, "No space left on device")


class Abandoned(Exception):
    pass


def test_a_wait_inside_of_another_is_ended_by_that_ones_sleep() -> None:
    def abandon(seconds: float) -> None:
        raise Abandoned

    def never(seconds: float) -> None:
        raise AssertionError("it cannot be abandoned")

    with pytest.raises(Abandoned):
        await_room(lambda: await_room(full, "the manifest", sleep=never), "the checkpoint", sleep=abandon)


def test_waits_inside_of_each_other_share_one_patience() -> None:
    slept: list[float] = []

    def inner() -> None:
        await_room(full, "the manifest", sleep=slept.append)

    for _ in range(2):  # each time anew
        slept.clear()
        with pytest.raises(StorageError):
            await_room(inner, "the checkpoint", sleep=slept.append)
        assert len(slept) == PATIENCE / PAUSE


def test_what_may_not_be_repeated_is_not_waited_for() -> None:
    calls: list[int] = []

    def attempt() -> None:
        calls.append(1)
        full()

    with pytest.raises(StorageError):
        await_room(attempt, "the manifest", sleep=lambda _: None, may_repeat=lambda _: False)
    assert calls == [1]


def test_the_wait_outside_repeats_what_the_one_inside_may_not() -> None:
    """As the writer of checkpoints does: files that an fsync failed for are written anew."""
    calls: list[str] = []

    def publish() -> str:
        calls.append("publish")
        if len(calls) < 4:
            full()
        return "done"

    def store() -> str:
        calls.append("write")
        return await_room(publish, "the manifest", may_repeat=lambda _: False)

    assert await_room(store, "the checkpoint", sleep=lambda _: None) == "done"
    assert calls == ["write", "publish"] * 2

"""Shared threads: one user's calls that never end hold up nobody else, and what nobody needs any more is not begun."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from detlab.errors import StaleAttempt, Unavailable
from detlab_hub.services.base import threads as module
from detlab_hub.services.base.callers import TaskCaller
from detlab_hub.services.base.threads import Threads, TooSlow, Workers, user_of


class Away:
    """A store that accepts and never answers, until the test is over."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.begun = 0

    def ask(self) -> None:
        self.begun += 1
        self.over.wait(30)


@pytest.fixture
def away() -> Iterator[Away]:
    here = Away()
    yield here
    here.over.set()


def made(**how) -> Threads:
    return Threads("looks", **{"size": 2, "waiting": 64, "each": 1, "seconds": 0.2, **how})


async def test_a_call_that_never_ends_gives_its_place_back_after_its_time(away: Away) -> None:
    threads = made(size=1)
    slow = asyncio.create_task(threads.run("mallory", away.ask))
    await asyncio.sleep(0.05)
    began = time.monotonic()
    assert await threads.run("ada", int, "7") == 7
    assert time.monotonic() - began < 1.0
    with pytest.raises(TooSlow, match=r"longer than 0.2 s"):
        await slow


async def test_all_calls_of_one_user_hold_a_thread_for_one_time_together(away: Away) -> None:
    """`seconds` for each queued call made minutes: the first that is too slow speaks for the others."""
    threads = made()
    slow = [asyncio.create_task(threads.run("mallory", away.ask)) for _ in range(16)]
    began = time.monotonic()
    assert await threads.run("ada", int, "7") == 7
    assert time.monotonic() - began < 0.15, "one place was free: each user may hold one"
    found = await asyncio.gather(*slow, return_exceptions=True)
    assert all(isinstance(one, TooSlow) for one in found)
    assert time.monotonic() - began < 1.0
    assert away.begun == 1
    away.over.set()
    await asyncio.sleep(0.1)
    assert await threads.run("mallory", int, "8") == 8, "once it has ended, they may again"


async def test_without_a_spare_thread_a_slow_call_keeps_its_place(away: Away, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SPARE", 1)
    threads = made(size=1)
    with pytest.raises(TooSlow):
        await threads.run("mallory", away.ask)
    second = asyncio.create_task(threads.run("eve", away.ask))
    await asyncio.sleep(0.5)
    assert not second.done()
    away.over.set()
    await second


async def test_a_cancelled_caller_waits_for_a_call_that_has_begun_no_longer_than_its_time(away: Away) -> None:
    threads = made()
    call = asyncio.create_task(threads.run("ada", away.ask))
    await asyncio.sleep(0.05)
    began = time.monotonic()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert 0.05 < time.monotonic() - began < 1.0


async def test_what_nobody_needs_any_more_is_not_begun_when_its_turn_comes() -> None:
    threads, gate, ran = made(size=1, seconds=None), threading.Event(), []
    first = asyncio.create_task(threads.run("ada", gate.wait, 10))
    await asyncio.sleep(0.05)

    async def over() -> None:
        raise StaleAttempt("attempt 1 is over")

    second = asyncio.create_task(threads.run("ada", ran.append, 1, wanted=over))
    gate.set()
    await first
    with pytest.raises(StaleAttempt):
        await second
    assert ran == []


async def test_what_comes_while_the_master_stops_is_told_to_come_again(away: Away) -> None:
    """A request of the last moment is answered as any other outage, not by a traceback."""
    threads = made(size=1, seconds=None, each=None)
    running = asyncio.create_task(threads.run("ada", away.ask))
    await asyncio.sleep(0.05)
    queued = asyncio.create_task(threads._run("ben", int, "7"))
    await asyncio.sleep(0.05)
    threads.close()
    with pytest.raises(Unavailable, match="the master is stopping"):
        await queued
    with pytest.raises(Unavailable, match="the master is stopping"):
        await threads._run("ada", int, "7")
    away.over.set()
    await running


async def test_what_a_call_raises_is_raised() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        await made().run("ada", int, "x")


def test_many_tasks_of_one_owner_are_one_user() -> None:
    tasks = [TaskCaller(f"{number}.a.0", number, 1, 0, None, "mallory") for number in range(3)]
    assert {user_of(task) for task in tasks} == {"mallory"}


def test_one_user_leaves_a_thread_to_others_wherever_stores_are_asked() -> None:
    workers = Workers()
    for kind in (workers.looks, workers.removals, workers.downloads, workers.credentials, workers.names):
        assert kind.each < kind.size, kind.what
        assert kind.seconds is not None, kind.what
        assert kind.seconds <= 60.0
    workers.close()

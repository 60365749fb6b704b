"""Waiting for what no event tells of: asked again and again, never for longer than a bound."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
SOONEST, LATEST = 0.05, 0.25
"""Seconds from one question to the next: at first, and once a wait is long."""


def until(
    what: Callable[[], T],
    why: Callable[[], str] | str = "it did not come true",
    seconds: float = 60.0,
    every: float | None = None,
) -> T:
    """Return what `what` returns once that is true; fail with `why` after `seconds`.

    Most questions go to a cluster, which takes a processor's time for each from what is waited for: they come less
    often the longer it takes, at most a twentieth of that late, unless `every` so many seconds is asked for.
    """
    began = time.monotonic()
    while not (found := what()):
        waited = time.monotonic() - began
        if waited > seconds:
            raise AssertionError(f"not within {seconds:g} s: {why() if callable(why) else why}")
        time.sleep(min(max(SOONEST, waited / 20), LATEST) if every is None else every)
    return found


async def soon(holds: Callable[[], object], seconds: float = 15.0, every: float = 0.02) -> None:
    """Wait until something holds that other tasks of this loop bring about."""
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(every)

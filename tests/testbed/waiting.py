"""Waiting for what no event tells of: asked again and again, never for longer than a bound."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(
    what: Callable[[], T],
    why: Callable[[], str] | str = "it did not come true",
    seconds: float = 60.0,
    every: float = 0.05,
) -> T:
    """Return what `what` returns once that is true; fail with `why` after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (found := what()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {why() if callable(why) else why}")
        time.sleep(every)
    return found


async def soon(holds: Callable[[], object], seconds: float = 15.0, every: float = 0.02) -> None:
    """Wait until something holds that other tasks of this loop bring about."""
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(every)

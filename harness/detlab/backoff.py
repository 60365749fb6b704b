"""Pauses between attempts: doubling, capped, with jitter. Nothing here reads a clock or waits."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

_MOST_DOUBLINGS = 30
"""Far above any cap; it keeps the power small after a week of failures."""
_draw = random.SystemRandom().random
"""Not the process's generator, whose numbers are the user's: a notebook that seeds it gets the same ones each time."""


def longest_pause(failures: int, first: float, cap: float) -> float:
    """Return the upper bound of a pause, in seconds.

    Args:
        failures: Failures in a row, from 1.
        first: The bound after the first failure, in seconds.
        cap: The bound of every pause, in seconds.
    """
    return min(cap, first * 2.0 ** min(failures - 1, _MOST_DOUBLINGS))


def pause_after(failures: int, first: float, cap: float, draw: Callable[[], float] = _draw) -> float:
    """Return the seconds to wait after a failure: half of `longest_pause` to all of it.

    The jitter keeps a hundred agents from connecting at the same moment after a restart of the master.

    Args:
        failures: Failures in a row, from 1.
        first: The bound after the first failure, in seconds.
        cap: The bound of every pause, in seconds.
        draw: Source of randomness, uniform in [0, 1).
    """
    return longest_pause(failures, first, cap) * (0.5 + 0.5 * draw())


@dataclass(slots=True)
class Backoff:
    """Counts failures in a row and gives the pause after each.

    Attributes:
        first: Upper bound of the first pause, in seconds.
        cap: Upper bound of every pause, in seconds.
        draw: Source of randomness, uniform in [0, 1).
        failures: Failures in a row.
    """

    first: float = 0.25
    cap: float = 15.0
    draw: Callable[[], float] = _draw
    failures: int = 0

    def next_pause(self) -> float:
        """Count one failure and return how many seconds to wait before the next attempt."""
        self.failures += 1
        return pause_after(self.failures, self.first, self.cap, self.draw)

    def reset(self) -> None:
        """Forget the failures: an attempt succeeded."""
        self.failures = 0

"""Backoff between attempts: exponential with jitter, without a clock."""

from __future__ import annotations

import random
from collections.abc import Callable

_JITTER = random.SystemRandom().random
"""Not the process's generator: its numbers are the user's."""


class Backoff:
    """Draw the pauses between retries: doubling from `first` to `cap` seconds, each scaled by 0.5..1.

    The jitter keeps a hundred agents from knocking at the same moment after a master restart.

    Args:
        first: Upper bound of the first pause, seconds.
        cap: Upper bound of every pause, seconds.
        rand: Source of randomness, uniform in [0, 1).
    """

    def __init__(self, first: float = 0.25, cap: float = 15.0, rand: Callable[[], float] = _JITTER) -> None:
        self._first = first
        self._cap = cap
        self._rand = rand
        self._failures = 0

    @property
    def failures(self) -> int:
        """Failures in a row."""
        return self._failures

    def next_pause(self) -> float:
        """Count one failure and return how many seconds to wait before the next attempt."""
        # 2**20 is far above any cap; the bound keeps the power small after a week of failures.
        bound = min(self._cap, self._first * float(2 ** min(self._failures, 20)))
        self._failures += 1
        return bound * (0.5 + 0.5 * self._rand())

    def reset(self) -> None:
        """Forget the failures: an attempt succeeded."""
        self._failures = 0

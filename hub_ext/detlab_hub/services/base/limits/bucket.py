"""Token buckets: a burst, and a rate per second in the long run. Pure; the caller passes the time."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K")


@dataclass
class Bucket:
    """One bucket, full at first.

    Attributes:
        rate: Tokens that come back per second.
        burst: Tokens that it holds at most.
        tokens: What is in it as of `filled`.
        filled: When it was last filled up.
    """

    rate: float
    burst: float
    tokens: float
    filled: float

    @classmethod
    def full(cls, rate: float, burst: float, now: float) -> Bucket:
        """Return a bucket of which nothing was taken."""
        return cls(rate, burst, burst, now)

    def take(self, now: float, amount: float = 1.0) -> float:
        """Take tokens, all or none.

        A clock that goes backwards neither adds tokens nor removes any.

        Returns:
            0.0 if they were taken; else the seconds until there are enough, `inf` if the bucket never holds as many.
        """
        self.fill(now)
        if self.tokens >= amount:
            self.tokens -= amount
            return 0.0
        if amount > self.burst or self.rate <= 0:
            return math.inf
        return (amount - self.tokens) / self.rate

    def fill(self, now: float) -> None:
        """Put in what has come back since the last time."""
        self.tokens = min(self.burst, self.tokens + max(0.0, now - self.filled) * self.rate)
        self.filled = now

    @property
    def used(self) -> float:
        """Tokens that are missing."""
        return self.burst - self.tokens


class Buckets(Generic[K]):
    """A bucket for each key. Beyond the limit of keys, the least recently used one is reset.

    Args:
        rate: Tokens that come back per second, to each.
        burst: Tokens that each holds at most.
        most: Keys that are remembered.
    """

    def __init__(self, rate: float, burst: float, most: int = 10_000) -> None:
        self.rate, self.burst, self._most = rate, burst, most
        self._buckets: OrderedDict[K, Bucket] = OrderedDict()

    def take(self, key: K, now: float, amount: float = 1.0) -> float:
        """Take tokens of a key's bucket; see `Bucket.take`."""
        return self.of(key, now).take(now, amount)

    def of(self, key: K, now: float) -> Bucket:
        """Return a key's bucket, filled up."""
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = Bucket.full(self.rate, self.burst, now)
            if len(self._buckets) > self._most:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(key)
            bucket.fill(now)
        return bucket

    def used(self, now: float) -> dict[K, float]:
        """Return how many tokens are missing, by key; keys of full buckets are left out."""
        for bucket in self._buckets.values():
            bucket.fill(now)
        return {key: bucket.used for key, bucket in self._buckets.items() if bucket.used >= 1}

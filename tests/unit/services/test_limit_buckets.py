"""Token buckets with a clock of the test's own."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab_hub.services.base.limits.bucket import Bucket, Buckets


def test_a_bucket_gives_its_burst_and_then_its_rate() -> None:
    bucket = Bucket.full(rate=2.0, burst=10.0, now=0.0)
    assert [bucket.take(0.0) for _ in range(10)] == [0.0] * 10
    assert bucket.take(0.0) == pytest.approx(0.5)
    assert bucket.take(0.5) == 0.0
    assert bucket.take(0.5) > 0.0
    assert [bucket.take(100.0) for _ in range(10)] == [0.0] * 10
    assert bucket.take(100.0) > 0.0


def test_waiting_as_long_as_it_says_is_enough() -> None:
    bucket = Bucket.full(rate=3.0, burst=5.0, now=0.0)
    now = 0.0
    for _ in range(50):
        wait = bucket.take(now)
        if wait:
            now += wait + 1e-9
            assert bucket.take(now) == 0.0


def test_what_never_fits_is_told_so() -> None:
    assert Bucket.full(rate=1.0, burst=5.0, now=0.0).take(0.0, 6.0) == math.inf
    empty = Bucket.full(rate=0.0, burst=1.0, now=0.0)
    assert empty.take(0.0) == 0.0
    assert empty.take(1e9) == math.inf


def test_a_clock_that_goes_back_gives_nothing() -> None:
    bucket = Bucket.full(rate=1.0, burst=2.0, now=100.0)
    bucket.take(100.0, 2.0)
    assert bucket.take(50.0) > 0.0
    assert bucket.take(51.0) == 0.0


def test_keys_have_buckets_of_their_own_and_the_oldest_are_forgotten() -> None:
    buckets: Buckets[str] = Buckets(rate=0.0, burst=1.0, most=2)
    assert buckets.take("mallory", 0.0) == 0.0
    assert buckets.take("mallory", 0.0) == math.inf
    assert buckets.take("ada", 0.0) == 0.0
    assert buckets.used(0.0) == {"mallory": 1.0, "ada": 1.0}
    buckets.take("mallory", 0.0)
    buckets.take("eve", 0.0)
    assert set(buckets.used(0.0)) == {"mallory", "eve"}


@given(
    rate=st.floats(0.1, 100),
    burst=st.integers(1, 50),
    gaps=st.lists(st.floats(0, 2, allow_nan=False), max_size=200),
)
def test_never_more_than_burst_and_rate_allow(rate: float, burst: int, gaps: list[float]) -> None:
    """In every stretch of time, not only from the beginning: the definition of a token bucket."""
    bucket, now, taken = Bucket.full(rate, burst, 0.0), 0.0, []
    for gap in gaps:
        now += gap
        if bucket.take(now) == 0.0:
            taken.append(now)
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            assert last - first + 1 <= burst + rate * (taken[last] - taken[first]) + 1e-6

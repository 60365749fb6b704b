"""When a checkpoint is near: only where the last ones came regularly, and never for long."""

from __future__ import annotations

import random

import pytest

from detlab_hub.core.lifecycle.cadence import is_near

EVERY_MINUTE = (0.0, 60.0, 120.0)


@pytest.mark.parametrize(
    ("now", "near"), [(121.0, False), (164.9, False), (165.0, True), (180.0, True), (186.0, True), (186.1, False)]
)
def test_a_checkpoint_is_near_shortly_before_and_a_little_after_it_is_due(now: float, near: bool) -> None:
    assert is_near(EVERY_MINUTE, now, 15.0) is near


@pytest.mark.parametrize(
    "times",
    [(), (0.0, 60.0), (0.0, 20.0, 120.0), (0.0, 100.0, 120.0), (50.0, 50.0, 50.0), (0.0, 29.0, 58.0)],
    ids=["none", "one distance", "longer", "shorter", "at once", "often anyhow"],
)
def test_nothing_is_near_where_nobody_can_tell_or_one_is_never_far(times: tuple[float, ...]) -> None:
    assert not any(is_near(times, tenth / 10, 15.0) for tenth in range(3000))


def test_nothing_is_near_where_that_is_off() -> None:
    assert not any(is_near(EVERY_MINUTE, tenth / 10, 0.0) for tenth in range(3000))


def test_nobody_is_waited_for_longer_than_twice_what_is_near_whenever_the_checkpoint_comes() -> None:
    """The master asks in each pass, and at the commit: the time from the first pass that waits to the question."""
    draw = random.Random(5)
    for _ in range(300):
        within, length = draw.uniform(1.0, 30.0), draw.uniform(10.0, 400.0)
        times = [0.0]
        while len(times) < 12:
            times.append(times[-1] + length * draw.uniform(0.7, 1.3))
        began = draw.uniform(times[3], times[8])
        now = began
        while is_near([time for time in times if time <= now][-3:], now, within):
            now += 0.5
        assert now - began <= 2 * within + 0.5

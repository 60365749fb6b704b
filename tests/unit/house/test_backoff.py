"""The one backoff: doubling, capped, with jitter."""

from __future__ import annotations

import random

import pytest

from detlab.backoff import Backoff, longest_pause, pause_after


def test_pauses_double_to_their_cap_and_begin_again_after_a_success() -> None:
    backoff = Backoff(first=0.5, cap=30.0, draw=lambda: 1.0)
    assert [backoff.next_pause() for _ in range(8)] == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert backoff.failures == 8
    backoff.reset()
    assert (backoff.failures, backoff.next_pause()) == (0, 0.5)


def test_each_pause_is_shortened_by_up_to_a_half_at_random() -> None:
    low, high = (Backoff(1.0, 4.0, draw) for draw in (lambda: 0.0, lambda: 0.999999))
    assert [low.next_pause() for _ in range(4)] == [0.5, 1.0, 2.0, 2.0]
    assert all(pause <= 4.0 for pause in [high.next_pause() for _ in range(40)])
    drawn = random.Random(0)
    assert len({pause_after(9, 1.0, 4.0, drawn.random) for _ in range(20)}) == 20


@pytest.mark.parametrize("failures", [1, 2, 64, 10_000, 10**9])
def test_a_pause_is_finite_after_any_number_of_failures(failures: int) -> None:
    assert 0.5 <= longest_pause(failures, 0.5, 30.0) <= 30.0

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab_hub.store import downsample

curves = st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=400)
budgets = st.integers(min_value=downsample.MIN_POINTS, max_value=120)


@given(curves, budgets)
def test_kept_points_are_bounded_increasing_and_have_both_ends(values: list[float], budget: int) -> None:
    kept = downsample.choose(values, budget).tolist()
    assert len(kept) <= budget
    assert kept == sorted(set(kept))
    assert all(0 <= index < len(values) for index in kept)
    if values:
        assert kept[0] == 0
        assert kept[-1] == len(values) - 1


@given(curves, budgets)
def test_the_global_least_and_greatest_are_always_kept(values: list[float], budget: int) -> None:
    kept = [values[index] for index in downsample.choose(values, budget)]
    numbers = [value for value in values if not math.isnan(value)]
    kept_numbers = [value for value in kept if not math.isnan(value)]
    if numbers:
        assert min(kept_numbers) == min(numbers)
        assert max(kept_numbers) == max(numbers)
    else:
        assert not kept_numbers


@given(curves, st.integers(min_value=5, max_value=120))
def test_a_nan_is_never_hidden(values: list[float], budget: int) -> None:
    kept = [values[index] for index in downsample.choose(values, budget)]
    assert any(map(math.isnan, kept)) == any(map(math.isnan, values))


@given(curves, budgets)
def test_a_curve_within_the_budget_is_untouched(values: list[float], budget: int) -> None:
    if len(values) <= budget:
        assert downsample.choose(values, budget).tolist() == list(range(len(values)))


def test_a_spike_of_one_step_survives_in_its_bucket() -> None:
    curve = np.sin(np.arange(100_000) / 5000.0)
    curve[12_345] = 50.0
    curve[77_777] = -50.0
    kept = set(downsample.choose(curve, 100).tolist())
    assert {0, 12_345, 77_777, 99_999} <= kept
    assert len(kept) > 90


def test_too_small_a_budget_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 4"):
        downsample.choose([1.0, 2.0], 3)

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab_hub.store import values


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_split_and_join_are_inverse(value: float) -> None:
    stored, flag = values.split(value)
    assert stored is None or math.isfinite(stored)
    back = values.join(stored, flag)
    assert back == value or (math.isnan(back) and math.isnan(value))


@given(st.lists(st.floats(min_value=-1e100, max_value=1e100) | st.just(math.nan), max_size=50))
def test_fold_equals_a_summary_made_at_once(numbers: list[float]) -> None:
    summary = values.Totals()
    cut = len(numbers) // 2
    values.fold(summary, enumerate(numbers[:cut]))
    values.fold(summary, enumerate(numbers[cut:], cut))
    view = values.view(summary)
    finite = [number for number in numbers if not math.isnan(number)]
    assert view.count == len(numbers)
    assert view.nan_count == len(numbers) - len(finite)
    assert view.min == min(finite, default=None)
    assert view.max == max(finite, default=None)
    if finite:
        scale = max(map(abs, finite))
        assert view.mean == pytest.approx(math.fsum(finite) / len(finite), abs=1e-12 * scale)
    assert view.last_step == (len(numbers) - 1 if numbers else None)


@pytest.mark.parametrize(
    ("numbers", "mean"),
    [([math.inf, 1.0], math.inf), ([-math.inf, 1.0], -math.inf), ([math.inf, -math.inf], math.nan)],
)
def test_the_mean_with_infinities(numbers: list[float], mean: float) -> None:
    summary = values.Totals()
    values.fold(summary, enumerate(numbers))
    found = values.view(summary).mean
    assert found == mean or (math.isnan(mean) and found is not None and math.isnan(found))


@pytest.mark.parametrize(
    ("given_value", "scalar"),
    [
        (True, 1.0),
        (False, 0.0),
        (3, 3.0),
        ("Infinity", math.inf),
        ("-Infinity", -math.inf),
        ("a text", None),
        (None, None),
        ([1, 2], None),
        ({"a": 1}, None),
        (10**400, None),
    ],
)
def test_what_counts_as_a_scalar(given_value: Any, scalar: float | None) -> None:
    assert values.as_scalar(given_value) == scalar


def test_nan_by_name_is_a_scalar() -> None:
    found = values.as_scalar("NaN")
    assert found is not None
    assert math.isnan(found)

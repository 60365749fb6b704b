"""A constraint has two ends: at each the value itself is kept, and what is just beyond it is not."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detlab.viz import fronts
from detlab_hub.core.searchers.objectives import MetricBound, Objectives

BELOW, ABOVE = math.nextafter(2.0, -math.inf), math.nextafter(5.0, math.inf)
CASES = [
    ({"min": 2.0, "max": 5.0}, {2.0: True, 5.0: True, 3.0: True, BELOW: False, ABOVE: False}),
    ({"min": 2.0}, {2.0: True, BELOW: False, ABOVE: True, 1e300: True, -1e300: False}),
    ({"max": 5.0}, {5.0: True, ABOVE: False, BELOW: True, -1e300: True, 1e300: False}),
    ({"min": None, "max": 0}, {0.0: True, 5e-324: False, -1.0: True}),
    ({"min": 0, "max": None}, {0.0: True, -5e-324: False, 1.0: True}),
    ({"min": 2.0, "max": 2.0}, {2.0: True, BELOW: False, 2.0000001: False}),
]
finite = st.floats(allow_nan=False, allow_infinity=False, width=32)


@pytest.mark.parametrize(("given_", "values"), CASES)
def test_a_search_and_its_figures_keep_both_ends(given_: dict[str, float | None], values: dict[float, bool]) -> None:
    searcher = {"metric": "loss", "constraints": {"memory": given_}}
    objectives = Objectives.from_config(searcher)
    (shown,) = fronts.constraints({"searcher": searcher})
    (bound,) = objectives.bounds
    assert (shown.low, shown.high) == (bound.low, bound.high)
    for value, kept in values.items():
        assert (objectives.judge(1.0, {"memory": value}).violation == 0) is kept, value
        assert (bound.low <= value <= bound.high) is kept, value
    assert objectives.judge(1.0, {"memory": math.nan}).violation == math.inf


@given(finite, finite, finite)
def test_the_violation_is_the_distance_to_the_range(one: float, other: float, value: float) -> None:
    low, high = sorted((one, other))
    violation = MetricBound("m", low, high).violation(value)
    if value < low:
        assert violation == low - value > 0
    elif value > high:
        assert violation == value - high > 0
    else:
        assert violation == 0


@given(finite, finite)
def test_each_end_alone_leaves_the_other_open(end: float, value: float) -> None:
    assert (MetricBound("m", low=end).violation(value) > 0) is (value < end)
    assert (MetricBound("m", high=end).violation(value) > 0) is (value > end)

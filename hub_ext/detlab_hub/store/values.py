"""Scalars as the points table keeps them, and the running summary of a series. Pure.

SQLite has no NaN and PostgreSQL sorts it above infinity, so a value that is not finite is a flag beside NULL.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

from detlab.schemas.wire import SummaryView, decode_float

FINITE, NAN, POSINF, NEGINF = 0, 1, 2, 3
_NONFINITE = {NAN: math.nan, POSINF: math.inf, NEGINF: -math.inf}


def split(value: float) -> tuple[float | None, int]:
    """Return `(value, flag)` as stored."""
    if math.isfinite(value):
        return value, FINITE
    if math.isnan(value):
        return None, NAN
    return None, POSINF if value > 0 else NEGINF


def join(value: float | None, flag: int) -> float:
    """Return the float that `split` was given."""
    if flag == FINITE and value is not None:
        return value
    return _NONFINITE[flag]


def as_scalar(value: Any) -> float | None:
    """Return a reported value as a float if it is a number (bool counts as 0/1), else None: structured."""
    try:
        return decode_float(value)
    except OverflowError:  # an int beyond every float: keep its digits as JSON
        return None


class Summary(Protocol):
    """The summary columns of a series row."""

    count: Any
    nan_count: Any
    posinf_count: Any
    neginf_count: Any
    finite_sum: Any
    min: Any
    max: Any
    last: Any
    last_flag: Any
    last_step: Any


def fold(summary: Summary, step: int, value: float) -> None:
    """Add one point at a step that the series did not have."""
    summary.count += 1
    if math.isnan(value):
        summary.nan_count += 1
    else:
        if value == math.inf:
            summary.posinf_count += 1
        elif value == -math.inf:
            summary.neginf_count += 1
        else:
            summary.finite_sum += value
        summary.min = value if summary.min is None else min(summary.min, value)
        summary.max = value if summary.max is None else max(summary.max, value)
    if summary.last_step is None or step >= summary.last_step:
        set_last(summary, step, value)


def set_last(summary: Summary, step: int, value: float) -> None:
    """Note the value at the greatest step."""
    summary.last_step = step
    summary.last, summary.last_flag = split(value)


def view(summary: Summary) -> SummaryView:
    """Return the summary for people: `count` counts every point; min, max and mean skip NaN."""
    numbers = summary.count - summary.nan_count
    mean: float | None = None
    if numbers:
        if summary.posinf_count and summary.neginf_count:
            mean = math.nan
        elif summary.posinf_count or summary.neginf_count:
            mean = math.inf if summary.posinf_count else -math.inf
        else:
            mean = summary.finite_sum / numbers
    return SummaryView(
        count=summary.count,
        min=summary.min,
        max=summary.max,
        mean=mean,
        last=None if summary.last_step is None else join(summary.last, summary.last_flag),
        last_step=summary.last_step,
        nan_count=summary.nan_count,
    )

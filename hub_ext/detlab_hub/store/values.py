"""Scalars as the points table keeps them, and the running summary of a series. Pure.

SQLite has no NaN and PostgreSQL sorts it above infinity, so a value that is not finite is a flag beside NULL.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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
    """Return the float that was passed to `split`."""
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
    """The summary columns of a series, as a mapped row has them; see `Totals` for what they mean."""

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


@dataclass(slots=True)
class Totals:
    """A summary by itself, in the order of its columns.

    Attributes:
        count: Points, NaN and infinite ones included.
        nan_count: Those that are NaN.
        posinf_count: Those that are +infinity.
        neginf_count: Those that are -infinity.
        finite_sum: Sum of the finite ones.
        min: Least value that is not NaN; None if there is none.
        max: Greatest value that is not NaN.
        last: Value at the greatest step, as stored.
        last_flag: Its flag.
        last_step: The greatest step; None without points.
    """

    count: int = 0
    nan_count: int = 0
    posinf_count: int = 0
    neginf_count: int = 0
    finite_sum: float = 0.0
    min: float | None = None
    max: float | None = None
    last: float | None = None
    last_flag: int = FINITE
    last_step: int | None = None


def fold(summary: Summary, points: Iterable[tuple[int, float]]) -> None:
    """Add points at steps that the series did not have, in step order."""
    points = list(points)
    numbers = [value for _, value in points]
    if all(map(math.isfinite, numbers)):  # nearly always
        if points:
            fold_finite(summary, points[-1][0], numbers)
        return
    total, least, greatest = summary.finite_sum, summary.min, summary.max
    for value in numbers:
        if math.isnan(value):
            summary.nan_count += 1
            continue
        if value == math.inf:
            summary.posinf_count += 1
        elif value == -math.inf:
            summary.neginf_count += 1
        else:
            total += value
        least = value if least is None or value < least else least
        greatest = value if greatest is None or value > greatest else greatest
    summary.count += len(points)
    summary.finite_sum, summary.min, summary.max = total, least, greatest
    _set_newest(summary, *points[-1])


def fold_finite(summary: Summary, last_step: int, numbers: Sequence[float]) -> None:
    """Add at least one value, all finite, at steps that the series did not have; the last is the newest."""
    summary.count += len(numbers)
    summary.finite_sum = sum(numbers, summary.finite_sum)
    least, greatest = min(numbers), max(numbers)
    summary.min = least if summary.min is None else min(summary.min, least)
    summary.max = greatest if summary.max is None else max(summary.max, greatest)
    _set_newest(summary, last_step, numbers[-1])


def _set_newest(summary: Summary, step: int, value: float) -> None:
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

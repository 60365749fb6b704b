"""Which search spaces can be searched: how many points a grid has, and ranges that numbers cannot hold.

What is refused here is refused alike by `det experiment config check`, by `det preview-search` and by the master: all
of them ask `check`. Nothing is expanded to be counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from detlab.errors import Problem
from detlab.schemas.expconf.checks.walk import visit_hyperparameters
from detlab.schemas.expconf.raw.paths import render

MAX_GRID_POINTS = 100_000
"""Points of a grid search. Each is a trial: a row, a decision of the searcher, a line wherever trials are listed."""
_LARGEST_SHOWN = 10**30
_INT_RANGE_LIMIT = 2**63


def _number(value: object) -> int | float | None:
    """Return a finite number of at most 64 bits as it is; None for anything else, which other rules refuse."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if math.isfinite(value) and abs(value) <= 1.8e308 else None


def grid_points(hyperparameters: object) -> int | None:
    """Count the points of a grid over a raw `hyperparameters` block.

    Returns:
        The exact number up to 10**30, any larger number beyond; None while a `count` or a range is missing or wrong.
    """
    points = 1
    for path, value in visit_hyperparameters(hyperparameters):
        if any(isinstance(part, int) for part in path) or not isinstance(value, dict):
            continue  # inside a list, or a constant
        size = _axis_size(value)
        if size is None:
            return None
        if points <= _LARGEST_SHOWN:
            points *= size
    return points


def _axis_size(spec: dict[str, Any]) -> int | None:
    match spec.get("type"):
        case "const":
            return 1
        case "categorical":
            values = spec.get("vals")
            return len(values) if isinstance(values, list) and values else None
        case "int" | "double" | "log" as kind:
            count = _number(spec.get("count"))
            if count is None or count < 1:
                return None
            if kind != "int":
                return int(count)
            low, high = _number(spec.get("minval")), _number(spec.get("maxval"))
            return None if low is None or high is None or low >= high else min(int(count), int(high) - int(low) + 1)
        case _:
            return None


def grid_size(raw: dict[str, Any]) -> Iterator[Problem]:
    """Refuse a grid of more than `MAX_GRID_POINTS` points."""
    searcher = raw.get("searcher")
    if not isinstance(searcher, dict) or searcher.get("name") != "grid":
        return
    points = grid_points(raw.get("hyperparameters"))
    if points is not None and points > MAX_GRID_POINTS:
        shown = f"{points:,}" if points <= _LARGEST_SHOWN else "more than 10**30"
        message = f"the grid has {shown} points, each a trial; a grid may have {MAX_GRID_POINTS:,}"
        yield Problem("hyperparameters", message, "use a smaller `count`, or the random searcher with `max_trials`")


def widths(raw: dict[str, Any]) -> Iterator[Problem]:
    """Every number of a range can be held: an int in 64 bits, a double and a log in a float."""
    for path, spec in visit_hyperparameters(raw.get("hyperparameters")):
        if not isinstance(spec, dict) or any(isinstance(part, int) for part in path):
            continue
        low, high = _number(spec.get("minval")), _number(spec.get("maxval"))
        if low is None or high is None or low >= high:
            continue
        message = _too_wide(spec, low, high)
        if message:
            yield Problem(render(path), message)


def _too_wide(spec: dict[str, Any], low: float, high: float) -> str | None:
    match spec.get("type"):
        case "int" if int(high) - int(low) >= _INT_RANGE_LIMIT:
            return "the range of an int must be below 2**63"
        case "double" | "log" if not math.isfinite(float(high) - float(low)):
            return f"the range from {low} to {high} is too large for a float"
        case "log":
            base = _number(spec.get("base"))
            for exponent in (low, high) if base is not None and base > 0 else ():
                if _overflows(float(base or 0), float(exponent)):
                    return f"{base}**{exponent} is too large for a float"
    return None


def _overflows(base: float, exponent: float) -> bool:
    try:
        return not math.isfinite(math.pow(base, exponent))
    except OverflowError:
        return True

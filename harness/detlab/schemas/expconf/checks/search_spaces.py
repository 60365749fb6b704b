"""Which search spaces can be searched: how many points a grid has, ranges that numbers cannot hold, likely mistakes.

What is refused here is refused alike by `det experiment config check`, by `det preview-search` and by the master: all
of them ask `check`. Nothing is expanded to be counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from detlab.errors import Problem
from detlab.schemas.expconf.blocks.hyperparameters import TYPES
from detlab.schemas.expconf.checks.walk import visit_hyperparameters
from detlab.schemas.expconf.raw.paths import Path, render
from detlab.schemas.space import Space, SpaceError, count_points, leaves_of
from detlab.schemas.space.values import steps_of

MAX_GRID_POINTS = 100_000
"""Points of a grid search. Each is a trial: a row, a decision of the searcher, a line wherever trials are listed."""
_LARGEST_SHOWN = 10**30
_INT_RANGE_LIMIT = 2**63
_WIDE = 10
"""How many times larger than `minval` a `maxval` of at most 1 is where both are values rather than exponents."""
_FROM_ZERO = 1_000
"""How many times smaller than `maxval` a log begins that is proposed for values from 0."""
_HUGE = 1e18
"""A largest value beyond this is no hyperparameter: its exponent was meant as a value."""
_DEEP = 20
"""Levels of a choice that are searched for ranges."""


def finite_number(value: object) -> int | float | None:
    """Return a finite number of at most 64 bits as it is; None for anything else, which other rules refuse."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if math.isfinite(value) and abs(value) <= 1.8e308 else None


def grid_points(hyperparameters: object) -> int | None:
    """Count the points of a grid over a raw `hyperparameters` block.

    Returns:
        The exact number up to 10**30, any larger number beyond; None while a `count` or a range is missing or wrong.
    """
    if isinstance(hyperparameters, dict) and has_conditions(hyperparameters):
        return _conditional_points(hyperparameters)
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


def has_conditions(hyperparameters: dict[str, Any]) -> bool:
    """Return whether some hyperparameters exist only in some trials."""
    return any(leaf.conditions for leaf in leaves_of(hyperparameters))


def _conditional_points(hyperparameters: dict[str, Any]) -> int | None:
    sizes = (_axis_size(leaf.spec) for leaf in leaves_of(hyperparameters) if leaf.kind != "const")
    if any(size is None for size in sizes):
        return None
    try:
        points = count_points(Space(hyperparameters))
    except SpaceError:  # refused with its reason by the rules of conditions
        return None
    return _LARGEST_SHOWN + 1 if points is None else points


def _axis_size(spec: dict[str, Any]) -> int | None:
    match spec.get("type"):
        case "const":
            return 1
        case "categorical" | "ordinal":
            values = spec.get("vals")
            return len(values) if isinstance(values, list) and values else None
        case "int" | "double" | "log" as kind:
            count, step = finite_number(spec.get("count")), finite_number(spec.get("step"))
            low, high = finite_number(spec.get("minval")), finite_number(spec.get("maxval"))
            if (count is None and step is None) or (count or 1) < 1 or (step or 1) <= 0:
                return None
            if kind != "int" and step is None:
                return int(count or 1)
            if low is None or high is None or low >= high:
                return None
            if step is None:  # the integers of a range, however wide it is
                return min(int(count or 1), int(high) - int(low) + 1)
            steps = steps_of({"type": kind, "minval": low, "maxval": high, "step": step})
            return steps if steps is None or count is None else min(int(count), steps)
        case _:
            return None


def grid_size(raw: dict[str, Any]) -> Iterator[Problem]:
    """Refuse a grid of more than `MAX_GRID_POINTS` points, unless `max_trials` says how many are tried."""
    searcher = raw.get("searcher")
    if not isinstance(searcher, dict) or searcher.get("name") != "grid":
        return
    points = grid_points(raw.get("hyperparameters"))
    if points is not None and points > MAX_GRID_POINTS and not _capped(raw, searcher, points):
        shown = f"{points:,}" if points <= _LARGEST_SHOWN else "more than 10**30"
        message = f"the grid has {shown} points, each a trial; a grid may have {MAX_GRID_POINTS:,}"
        yield Problem("hyperparameters", message, "use a smaller `count`, or try some of them: `searcher.max_trials`")


def _capped(raw: dict[str, Any], searcher: dict[str, Any], points: int) -> bool:
    """Return whether only some points are tried, and the others need not even be counted one by one."""
    most = finite_number(searcher.get("max_trials"))
    if most is None or most > MAX_GRID_POINTS or points >= _INT_RANGE_LIMIT or searcher.get("require"):
        return False
    hyperparameters = raw.get("hyperparameters")
    return isinstance(hyperparameters, dict) and not has_conditions(hyperparameters)


def widths(raw: dict[str, Any]) -> Iterator[Problem]:
    """Every number of a range can be held: an int in 64 bits, a double and a log in a float."""
    for path, spec in visit_hyperparameters(raw.get("hyperparameters")):
        if not isinstance(spec, dict) or any(isinstance(part, int) for part in path):
            continue
        low, high = finite_number(spec.get("minval")), finite_number(spec.get("maxval"))
        if low is None or high is None or low >= high:
            continue
        message = _too_wide(spec, low, high)
        if message:
            yield Problem(render(path), message)


def names(raw: dict[str, Any]) -> Iterator[Problem]:
    """Refuse two hyperparameters with one dotted name: conditions, relations and results could not tell them apart."""
    seen: dict[str, Path] = {}
    for path, _ in visit_hyperparameters(raw.get("hyperparameters")):
        if any(isinstance(part, int) for part in path):
            continue
        name = ".".join(str(part) for part in path[1:])
        if name in seen:
            yield Problem(render(path), f"has the same dotted name as {render(seen[name])}", "rename one of them")
        seen.setdefault(name, path)


def exponents(raw: dict[str, Any]) -> Iterator[Problem]:
    """Warn of a log range whose ends are values, where Determined's configuration has exponents of `base`."""
    for path, spec in visit_hyperparameters(raw.get("hyperparameters")):
        if not isinstance(spec, dict) or spec.get("type") != "log" or any(isinstance(part, int) for part in path):
            continue
        base, low, high = (finite_number(spec.get(key)) for key in ("base", "minval", "maxval"))
        if base is None or low is None or high is None or base <= 1 or not 0 <= low < high:
            continue
        if _overflows(float(base), float(high)):
            continue  # refused by `widths`
        first, last = math.pow(base, low), math.pow(base, high)
        fraction = high < 1 if low == 0 else high <= 1 and high >= _WIDE * low
        if not fraction and last <= _HUGE:
            continue
        yield Problem(
            render(path),
            f"minval and maxval of a log are exponents: this searches from {first:g} to {last:g}",
            _in_exponents(base, low, high),
            "warning",
        )


def _in_exponents(base: float, low: float, high: float) -> str:
    """Return what to write for values from `low` to `high`; 0 has no exponent."""
    least = low or high / _FROM_ZERO
    meant = f"minval: {_exponent(least, base)}, maxval: {_exponent(high, base)}"
    written = f"for values from {least:g} to {high:g} write {{type: log, base: {base:g}, {meant}}}"
    return written if low else f"a log never reaches 0; {written}"


def _exponent(value: float, base: float) -> str:
    return f"{round(math.log(value, base), 4) + 0.0:g}"


def searched_choices(raw: dict[str, Any]) -> Iterator[Problem]:
    """Warn of a range inside a choice of a categorical: code gets it as it is written."""
    for path, spec in visit_hyperparameters(raw.get("hyperparameters")):
        if not isinstance(spec, dict) or spec.get("type") != "categorical" or not isinstance(spec.get("vals"), list):
            continue
        for where in _spaces_in(spec["vals"], (*path, "vals"), _DEEP):
            yield Problem(
                render(where),
                "is inside a choice of a categorical: it is passed to the code as it is written, not searched",
                "make it a hyperparameter beside the categorical, and have the code ignore it for other choices",
                "warning",
            )


def _spaces_in(value: object, path: Path, depth: int) -> Iterator[Path]:
    """Yield where a value holds a hyperparameter that would be searched anywhere else."""
    if isinstance(value, dict) and value.get("type") in TYPES and not {"minval", "maxval", "vals"}.isdisjoint(value):
        yield path
    elif depth and isinstance(value, dict):
        for key, inner in value.items():
            yield from _spaces_in(inner, (*path, str(key)), depth - 1)
    elif depth and isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _spaces_in(inner, (*path, index), depth - 1)


def _too_wide(spec: dict[str, Any], low: float, high: float) -> str | None:
    match spec.get("type"):
        case "int" if int(high) - int(low) >= _INT_RANGE_LIMIT:
            return "the range of an int must be below 2**63"
        case "double" | "log" if not math.isfinite(float(high) - float(low)):
            return f"the range from {low} to {high} is too large for a float"
        case "log":
            base = finite_number(spec.get("base"))
            for exponent in (low, high) if base is not None and base > 0 else ():
                if _overflows(float(base or 0), float(exponent)):
                    return f"{base}**{exponent} is too large for a float"
    return None


def _overflows(base: float, exponent: float) -> bool:
    try:
        return not math.isfinite(math.pow(base, exponent))
    except OverflowError:
        return True

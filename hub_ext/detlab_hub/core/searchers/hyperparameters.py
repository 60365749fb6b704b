"""Search spaces: sampling a point, or walking a grid.

A space is the `hyperparameters` block of the experiment config: a map from names to a bare value (a
constant), a map with a `type` (`const`, `int`, `double`, `log`, `categorical`), or a map without one
(nested).
Everything goes in sorted key order, nested maps too, so that a seed alone fixes every draw.
"""

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from detlab_hub.core.searchers.errors import SearcherConfigError
from detlab_hub.core.searchers.randomness import SearchRandom

_INT_RANGE_LIMIT = 2**63
_REQUIRED = {
    "const": ("val",),
    "int": ("minval", "maxval"),
    "double": ("minval", "maxval"),
    "log": ("base", "minval", "maxval"),
    "categorical": ("vals",),
}


def is_nested(spec: object) -> bool:
    """Whether a spec is a map of further hyperparameters."""
    return isinstance(spec, Mapping) and "type" not in spec


def check_space(space: Mapping[str, Any], path: str = "hyperparameters") -> None:
    """Check that every point of a space can be drawn.

    Raises:
        SearcherConfigError: With the path of the first spec that is unknown, incomplete or unusable.
    """
    for name, spec in space.items():
        here = f"{path}.{name}"
        if is_nested(spec):
            check_space(spec, here)
        elif isinstance(spec, Mapping):
            _check_typed(spec, here)


def _check_typed(spec: Mapping[str, Any], path: str) -> None:
    kind = spec["type"]
    if kind not in _REQUIRED:
        raise SearcherConfigError(f"{path}: unknown hyperparameter type {kind!r}")
    missing = [key for key in _REQUIRED[kind] if key not in spec]
    if missing:
        raise SearcherConfigError(f"{path}: {kind} needs {', '.join(missing)}")
    if kind == "categorical" and not spec["vals"]:
        raise SearcherConfigError(f"{path}: categorical needs at least one value in vals")
    if kind in ("int", "double", "log") and not spec["minval"] < spec["maxval"]:
        raise SearcherConfigError(f"{path}: minval {spec['minval']} must be below maxval {spec['maxval']}")
    if kind == "int" and spec["maxval"] - spec["minval"] >= _INT_RANGE_LIMIT:
        raise SearcherConfigError(f"{path}: the range of an int must be below 2**63")
    if kind == "double":
        _check_width(spec, path)
    if kind == "log":
        _check_log(spec, path)


def _check_log(spec: Mapping[str, Any], path: str) -> None:
    if not spec["base"] > 0:
        raise SearcherConfigError(f"{path}: base {spec['base']} must be above 0")
    try:
        for exponent in (spec["minval"], spec["maxval"]):
            math.pow(spec["base"], exponent)
    except OverflowError:
        raise SearcherConfigError(f"{path}: {spec['base']}**{exponent} is too large for a float") from None
    _check_width(spec, path)


def _check_width(spec: Mapping[str, Any], path: str) -> None:
    if not math.isfinite(float(spec["maxval"]) - float(spec["minval"])):
        raise SearcherConfigError(
            f"{path}: the range from {spec['minval']} to {spec['maxval']} is too large for a float"
        )


def sample(space: Mapping[str, Any], rng: SearchRandom) -> dict[str, Any]:
    """Draw one point of a space, a nested map recursively, in sorted key order."""
    return {name: _sample_one(space[name], rng) for name in sorted(space)}


def _sample_one(spec: Any, rng: SearchRandom) -> Any:
    if is_nested(spec):
        return sample(spec, rng)
    if not isinstance(spec, Mapping):
        return copy.deepcopy(spec)
    match spec["type"]:
        case "const":
            return copy.deepcopy(spec["val"])
        case "int":
            return int(spec["minval"]) + rng.below(int(spec["maxval"]) - int(spec["minval"]) + 1)
        case "double":
            return rng.uniform(float(spec["minval"]), float(spec["maxval"]))
        case "log":
            exponent = rng.uniform(float(spec["minval"]), float(spec["maxval"]))
            return math.pow(float(spec["base"]), exponent)
        case "categorical":
            return copy.deepcopy(spec["vals"][rng.below(len(spec["vals"]))])
        case kind:
            raise SearcherConfigError(f"unknown hyperparameter type {kind!r}")


@dataclass(frozen=True)
class _Axis:
    """One axis of a grid: how many values it has, and how to compute one."""

    route: tuple[str, ...]
    size: int
    value: Callable[[int], Any]


class Grid:
    """The points of a space, one per combination of its axes' values; the last sorted axis is fastest.

    Points are computed on demand, and so are the values of an axis: a grid costs as much memory as its space.

    Raises:
        SearcherConfigError: If an int, double or log has no `count`.
    """

    def __init__(self, space: Mapping[str, Any]) -> None:
        self._axes = tuple(_axes(space, ()))
        self.size = math.prod(axis.size for axis in self._axes)
        """Number of points; exact, however large (`len` cannot say more than 2**63 - 1)."""

    def point(self, index: int) -> dict[str, Any]:
        """Return point number `index`, 0 to `size - 1`; a space without axes has one empty point.

        Raises:
            IndexError: There is no point of that number.
        """
        if not 0 <= index < self.size:
            raise IndexError(f"grid has {self.size} points, asked for number {index}")
        chosen: list[tuple[tuple[str, ...], Any]] = []
        for axis in reversed(self._axes):
            index, place = divmod(index, axis.size)
            chosen.append((axis.route, axis.value(place)))
        result: dict[str, Any] = {}
        for route, value in reversed(chosen):
            level = result
            for name in route[:-1]:
                level = level.setdefault(name, {})
            level[route[-1]] = copy.deepcopy(value)
        return result


def _axes(space: Mapping[str, Any], route: tuple[str, ...]) -> Iterator[_Axis]:
    for name in sorted(space):
        spec = space[name]
        here = (*route, name)
        if is_nested(spec) and spec:
            yield from _axes(spec, here)
        else:
            yield _axis(spec, here)


def _axis(spec: Any, route: tuple[str, ...]) -> _Axis:
    if is_nested(spec):
        return _Axis(route, 1, lambda _: {})
    if not isinstance(spec, Mapping):
        return _Axis(route, 1, lambda _: spec)
    if spec["type"] == "const":
        return _Axis(route, 1, lambda _: spec["val"])
    if spec["type"] == "categorical":
        return _Axis(route, len(spec["vals"]), lambda place: spec["vals"][place])
    if spec.get("count") is None or spec["count"] < 1:
        path = ".".join(("hyperparameters", *route))
        raise SearcherConfigError(f"{path}: a grid needs count (1 or more) for {spec['type']}")
    count = int(spec["count"])
    if spec["type"] == "int":
        first, last = int(spec["minval"]), int(spec["maxval"])
        count = min(count, last - first + 1)
        return _Axis(route, count, lambda place: int_point(first, last, count, place))
    low, high = float(spec["minval"]), float(spec["maxval"])
    if spec["type"] == "double":
        return _Axis(route, count, lambda place: even_point(low, high, count, place))
    base = float(spec["base"])
    return _Axis(route, count, lambda place: math.pow(base, even_point(low, high, count, place)))


def int_point(low: int, high: int, count: int, place: int) -> int:
    """Point `place` of `count` evenly from `low` to `high`, rounded half away from zero, in exact arithmetic."""
    over, under = (low + high, 2) if count == 1 else (low * (count - 1) + place * (high - low), count - 1)
    rounded = (2 * abs(over) + under) // (2 * under)
    return rounded if over >= 0 else -rounded


def even_point(low: float, high: float, count: int, place: int) -> float:
    """Point `place` of `count` evenly from `low` to `high`; the ends are exact, and no step overflows."""
    if count == 1:
        middle = (low + high) / 2
        return middle if math.isfinite(middle) else low / 2 + high / 2
    if place == count - 1:
        return high
    way = place * (high - low)
    return low + (way / (count - 1) if math.isfinite(way) else (high - low) * (place / (count - 1)))

"""The grid of a space: how many points it has, and which."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from detlab.schemas.space.points import Flat, Space, SpaceError
from detlab.schemas.space.tree import Leaf
from detlab.schemas.space.values import CHOICES, at_step, size_of, steps_of

MAX_STATES = 100_000
"""Combinations of values that conditions name, up to which a grid is counted exactly."""
_MOST_STEPS = 5_000_000
"""Values of such combinations, over all axes, up to which it is counted."""


@dataclass(frozen=True)
class _Axis:
    """One axis of a grid: how many values it has, and how to compute one."""

    leaf: Leaf
    size: int
    value: Callable[[int], Any]


class Grid:
    """The points of a space, one per combination of its axes' values; the last sorted axis is fastest.

    An axis that a trial does not have, because its conditions do not hold, multiplies nothing. Points that break a
    relation are left out.

    Points are computed on demand, and so are the values of an axis: the grid of a space without conditions and
    relations costs as much memory as the space, any other one a few numbers for each point.

    Raises:
        SpaceError: An int, double or log has neither `count` nor `step`, or no point meets the relations.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self._axes = tuple(_axis(leaf) for leaf in space.ordered)
        self._points: list[tuple[int, ...]] | None = None
        self.size = math.prod(axis.size for axis in self._axes)
        """Number of points; exact, however large (`len` cannot say more than 2**63 - 1)."""
        if space.conditional or space.relations:
            self._points = [places for places, values in _places(self._axes) if space.meets(values)]
            self.size = len(self._points)
            if not self._points:
                raise SpaceError("searcher.require: no point of the grid meets it")

    def point(self, index: int) -> dict[str, Any]:
        """Return point number `index`, 0 to `size - 1`; a space without axes has one empty point.

        Raises:
            IndexError: There is no point of that number.
        """
        if not 0 <= index < self.size:
            raise IndexError(f"grid has {self.size} points, asked for number {index}")
        places = _divided(index, self._axes) if self._points is None else self._points[index]
        values: Flat = {}
        for axis, place in zip(self._axes, places, strict=True):
            if place >= 0:
                values[axis.leaf.name] = copy.deepcopy(axis.value(place))
        return self._space.tree(values)


def all_points(space: Space, most: int) -> list[dict[str, Any]] | None:
    """Return every point of a space without continuous ranges that meets the relations; None if there may be more."""
    axes = []
    for leaf in space.ordered:
        size = size_of(leaf.spec)
        if size is None or size > most:
            return None
        axes.append(_Axis(leaf, size, partial(_value_at, leaf.spec)))
    if math.prod(axis.size for axis in axes) > most:
        return None
    return [space.tree(dict(values)) for _, values in _places(axes) if space.meets(values)]


def _value_at(spec: Any, place: int) -> Any:
    """Return value `place`, from 0, of a hyperparameter that has so many."""
    if not isinstance(spec, Mapping) or "type" not in spec:
        return copy.deepcopy(spec) if not isinstance(spec, Mapping) else {}
    if spec["type"] == "const":
        return copy.deepcopy(spec["val"])
    return int(spec["minval"]) + place if steps_of(spec) is None else at_step(spec, place)


def _divided(index: int, axes: Sequence[_Axis]) -> tuple[int, ...]:
    places = []
    for axis in reversed(axes):
        index, place = divmod(index, axis.size)
        places.append(place)
    return tuple(reversed(places))


def _places(axes: Sequence[_Axis]) -> Iterator[tuple[tuple[int, ...], Flat]]:
    """Yield all points: for each axis the number of its value, -1 if it does not exist; and the flat point."""
    places, values, depth = [-1] * len(axes), Flat(), 0
    while True:
        for at in range(depth, len(axes)):
            axis = axes[at]
            places[at] = 0 if axis.leaf.active(values) else -1
            if places[at] == 0:
                values[axis.leaf.name] = axis.value(0)
        yield tuple(places), values
        depth = len(axes) - 1
        while depth >= 0 and not 0 <= places[depth] < axes[depth].size - 1:
            values.pop(axes[depth].leaf.name, None)
            depth -= 1
        if depth < 0:
            return
        places[depth] += 1
        values[axes[depth].leaf.name] = axes[depth].value(places[depth])
        depth += 1


def count_points(space: Space) -> int | None:
    """Count the points of a grid before relations leave some out; None if there are too many conditions to count them.

    Raises:
        SpaceError: An int, double or log has neither `count` nor `step`.
    """
    axes = [_axis(leaf) for leaf in space.ordered]
    if not space.conditional:
        return math.prod(axis.size for axis in axes)
    named = {condition.name for leaf in space.ordered for condition in leaf.conditions}
    states: dict[tuple[tuple[str, int], ...], tuple[Flat, int]] = {(): ({}, 1)}
    steps = 0
    for axis in axes:
        grown: dict[tuple[tuple[str, int], ...], tuple[Flat, int]] = {}
        for key, (values, points) in states.items():
            for found, more, many in _branches(axis, key, values, named):
                before = grown.get(found, (more, 0))[1]
                grown[found] = (more, before + points * many)
                steps += 1 + len(found)
                if len(grown) > MAX_STATES or steps > _MOST_STEPS:
                    return None
        states = grown
    return sum(points for _, points in states.values())


def _branches(
    axis: _Axis, key: tuple[tuple[str, int], ...], values: Flat, named: set[str]
) -> Iterator[tuple[tuple[tuple[str, int], ...], Flat, int]]:
    name = axis.leaf.name
    if not axis.leaf.active(values):
        yield key, values, 1
    elif name not in named:
        yield key, values, axis.size
    else:
        for place in range(min(axis.size, MAX_STATES + 1)):
            yield (*key, (name, place)), {**values, name: axis.value(place)}, 1


def _axis(leaf: Leaf) -> _Axis:
    spec = leaf.spec
    if not isinstance(spec, Mapping):
        return _Axis(leaf, 1, lambda _: spec)
    if "type" not in spec:
        return _Axis(leaf, 1, lambda _: {})
    if spec["type"] == "const":
        return _Axis(leaf, 1, lambda _: spec["val"])
    steps, count = steps_of(spec), spec.get("count")
    if steps is not None and (count is None or spec["type"] in CHOICES):
        return _Axis(leaf, steps, lambda place: at_step(spec, place))
    if count is None or count < 1:
        raise SpaceError(f"hyperparameters.{leaf.name}: a grid needs count (1 or more) for {spec['type']}")
    return _counted(leaf, spec, int(count), steps)


def _counted(leaf: Leaf, spec: Mapping[str, Any], count: int, steps: int | None) -> _Axis:
    """Return an axis of `count` values of a number, or of fewer if it has no more."""
    if steps is not None:
        count = min(count, steps)
        return _Axis(leaf, count, lambda place: at_step(spec, int_point(0, steps - 1, count, place)))
    if spec["type"] == "int":
        first, last = int(spec["minval"]), int(spec["maxval"])
        count = min(count, last - first + 1)
        if spec.get("log"):
            return _Axis(leaf, count, lambda place: log_int_point(first, last, count, place))
        return _Axis(leaf, count, lambda place: int_point(first, last, count, place))
    low, high = float(spec["minval"]), float(spec["maxval"])
    if spec["type"] == "double":
        return _Axis(leaf, count, lambda place: even_point(low, high, count, place))
    base = float(spec["base"])
    return _Axis(leaf, count, lambda place: math.pow(base, even_point(low, high, count, place)))


def int_point(low: int, high: int, count: int, place: int) -> int:
    """Point `place` of `count` evenly from `low` to `high`, rounded half away from zero, in exact arithmetic."""
    over, under = (low + high, 2) if count == 1 else (low * (count - 1) + place * (high - low), count - 1)
    rounded = (2 * abs(over) + under) // (2 * under)
    return rounded if over >= 0 else -rounded


def log_int_point(low: int, high: int, count: int, place: int) -> int:
    """Point `place` of `count` different ones from `low` to `high`, evenly by logarithms as far as they differ."""
    found = round(math.exp(even_point(math.log(low), math.log(high), count, place)))
    return min(max(found, low + place), high - (count - 1 - place))


def even_point(low: float, high: float, count: int, place: int) -> float:
    """Point `place` of `count` evenly from `low` to `high`; the ends are exact, and no step overflows."""
    if count == 1:
        middle = (low + high) / 2
        return middle if math.isfinite(middle) else low / 2 + high / 2
    if place == count - 1:
        return high
    way = place * (high - low)
    return low + (way / (count - 1) if math.isfinite(way) else (high - low) * (place / (count - 1)))

"""A search space as axes: what a sampler sees of it.

A point of the space is a tree of hyperparameters; for a sampler it is one coordinate for each hyperparameter that
varies: the value of an int or a double, the exponent of a log, the index of a choice or of a step.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from detlab.schemas.space import Leaf, Space, leaves_of
from detlab.schemas.space.tree import in_order
from detlab.schemas.space.values import at_step, place_of, steps_of
from detlab_hub.core.searchers.errors import SteeringRefused

Coordinate = float | int
"""On one axis."""


@dataclass(frozen=True)
class SearchAxis:
    """A hyperparameter that varies.

    Attributes:
        route: Its names, from the outermost.
        kind: Its type; `stepped` for an ordinal, and for a number with a `step`.
        low: Smallest coordinate.
        high: Largest coordinate.
        base: Of a log: the value is `base**coordinate`; else 0.
        choices: Of a categorical: its values.
        leaf: The hyperparameter in its space.
        log: Of an int: whether it is on a log scale.
    """

    route: tuple[str, ...]
    kind: Literal["int", "double", "log", "categorical", "stepped"]
    low: Coordinate
    high: Coordinate
    base: float = 0.0
    choices: Sequence[Any] = ()
    leaf: Leaf | None = None
    log: bool = False

    @property
    def name(self) -> str:
        """The route, as one text."""
        return ".".join(self.route)

    def value(self, coordinate: Coordinate) -> Any:
        """Return the hyperparameter at a coordinate."""
        match self.kind:
            case "int":
                return min(max(int(coordinate), int(self.low)), int(self.high))
            case "double":
                return min(max(float(coordinate), float(self.low)), float(self.high))
            case "log":
                return math.pow(self.base, min(max(float(coordinate), float(self.low)), float(self.high)))
            case "categorical":
                return copy.deepcopy(self.choices[int(coordinate)])
            case "stepped":
                return at_step(self._spec, min(max(int(coordinate), int(self.low)), int(self.high)))

    def span(self, margin: float = 0.0) -> tuple[float, float]:
        """Return where the axis begins and how wide it is, with a margin on both sides; on its scale."""
        first, last = float(self.low) - margin, float(self.high) + margin
        if self.log:
            return self.along(first), self.along(last) - self.along(first)
        return first, float(self.high) - float(self.low) + 2 * margin

    def along(self, coordinate: float) -> float:
        """Return where a coordinate is on the axis."""
        return math.log(max(coordinate, 0.5)) if self.log else coordinate

    def back(self, place: float) -> float:
        """Return the coordinate at a place of the axis."""
        return math.exp(place) if self.log else place

    @property
    def _spec(self) -> Mapping[str, Any]:
        assert self.leaf is not None  # a stepped axis is made from its hyperparameter
        spec: Mapping[str, Any] = self.leaf.spec
        return spec

    def coordinate(self, value: Any) -> Coordinate:
        """Return the coordinate of a hyperparameter.

        Raises:
            ValueError: The axis has no such value.
        """
        match self.kind:
            case "int":
                return int(value)
            case "double":
                return float(value)
            case "log":
                found = math.log(float(value)) / math.log(self.base)
                return min(max(found, float(self.low)), float(self.high))
            case "categorical":
                return self._place(next((at for at, one in enumerate(self.choices) if _same(one, value)), None), value)
            case "stepped":
                return self._place(place_of(self._spec, value), value)

    def _place(self, found: int | None, value: Any) -> int:
        if found is None:
            raise ValueError(f"{self.name} has no value {value!r}")
        return found


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def axes_of(space: Mapping[str, Any]) -> list[SearchAxis]:
    """Return the axes of a space; constants have none.

    They are in sorted order, but each comes after those that its conditions name.
    """
    return [axis for leaf in in_order(leaves_of(space)) if (axis := _axis(leaf)) is not None]


def alike(one: Sequence[SearchAxis], other: Sequence[SearchAxis]) -> bool:
    """Whether two spaces have the same axes, apart from bounds: coordinates mean the same on both."""
    return [_meaning(axis) for axis in one] == [_meaning(axis) for axis in other]


def with_new_bounds(axes: Sequence[SearchAxis], space: Mapping[str, Any], method: str) -> list[SearchAxis]:
    """Return the axes of an edited space.

    Args:
        axes: Those of the space until now.
        space: The edited `hyperparameters` block.
        method: Its name, for the error.

    Raises:
        SteeringRefused: Not only bounds were edited.
    """
    edited = axes_of(space)
    if not alike(axes, edited):
        raise SteeringRefused(f"{method} can take new bounds, but no other hyperparameters or choices")
    return edited


def _meaning(axis: SearchAxis) -> tuple[Any, ...]:
    places = (axis.low, axis.high, axis.leaf and axis.leaf.spec) if axis.kind == "stepped" else ()
    return (axis.name, axis.kind, axis.base, axis.log, list(axis.choices), places)


def _axis(leaf: Leaf) -> SearchAxis | None:
    spec, steps = leaf.spec, None if leaf.kind == "const" else steps_of(leaf.spec)
    if steps == 1:
        return None
    match leaf.kind:
        case "categorical":
            return SearchAxis(leaf.route, "categorical", 0, len(spec["vals"]) - 1, choices=spec["vals"], leaf=leaf)
        case "ordinal" | "int" | "double" | "log" if steps is not None:
            return SearchAxis(leaf.route, "stepped", 0, steps - 1, leaf=leaf)
        case "int":
            low, high = int(spec["minval"]), int(spec["maxval"])
            return SearchAxis(leaf.route, "int", low, high, leaf=leaf, log=bool(spec.get("log")))
        case "double":
            return SearchAxis(leaf.route, "double", float(spec["minval"]), float(spec["maxval"]), leaf=leaf)
        case "log":
            first, last = float(spec["minval"]), float(spec["maxval"])
            return SearchAxis(leaf.route, "log", first, last, float(spec["base"]), leaf=leaf)
    return None


def coordinates(axes: Sequence[SearchAxis], hparams: Mapping[str, Any]) -> list[Coordinate | None]:
    """Return the coordinates of a point; None on an axis that the point does not have."""
    return [None if (found := _at(hparams, axis.route)) is _ABSENT else axis.coordinate(found) for axis in axes]


_ABSENT = object()


def _at(hparams: Mapping[str, Any], route: Sequence[str]) -> Any:
    found: Any = hparams
    for name in route:
        if not isinstance(found, Mapping) or name not in found:
            return _ABSENT
        found = found[name]
    return found


class Points:
    """The points of a space by their coordinates.

    Args:
        space: The space.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self._axes = {axis.name: axis for axis in axes_of(space.block)}

    def build(self, coordinate: Callable[[SearchAxis], Coordinate]) -> dict[str, Any]:
        """Return the point whose coordinates are chosen one by one: only on the axes that it has.

        Args:
            coordinate: Chooses one on an axis; called after those on which its conditions depend.
        """
        values: dict[str, Any] = {}
        for leaf in self._space.ordered:
            if not leaf.active(values):
                continue
            axis = self._axes.get(leaf.name)
            values[leaf.name] = _only(leaf) if axis is None else axis.value(coordinate(axis))
        return self._space.tree(values)


def _only(leaf: Leaf) -> Any:
    """Return the value of a hyperparameter that has one."""
    if not isinstance(leaf.spec, Mapping):
        return copy.deepcopy(leaf.spec)
    if "type" not in leaf.spec:
        return {}
    return copy.deepcopy(leaf.spec["val"]) if leaf.kind == "const" else at_step(leaf.spec, 0)

"""A search space as axes: what a sampler sees of it.

A point of the space is a tree of hyperparameters; for a sampler it is one coordinate for each hyperparameter that
varies: the value of an int or a double, the exponent of a log, the index of a categorical's choice.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from detlab_hub.core.searchers.hyperparameters import is_nested

Coordinate = float | int
"""On one axis."""


@dataclass(frozen=True)
class Axis:
    """A hyperparameter that varies.

    Attributes:
        route: Its names, from the outermost.
        kind: Its type.
        low: Smallest coordinate.
        high: Largest coordinate.
        base: Of a log: the value is `base**coordinate`; else 0.
        choices: Of a categorical: its values.
    """

    route: tuple[str, ...]
    kind: Literal["int", "double", "log", "categorical"]
    low: Coordinate
    high: Coordinate
    base: float = 0.0
    choices: Sequence[Any] = ()

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
                return next(at for at, choice in enumerate(self.choices) if _same(choice, value))


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def axes_of(space: Mapping[str, Any]) -> list[Axis]:
    """Return the axes of a space in sorted order; constants have none."""
    return list(_walk(space, ()))


def _walk(space: Mapping[str, Any], route: tuple[str, ...]) -> Iterator[Axis]:
    for name in sorted(space):
        spec, here = space[name], (*route, name)
        if is_nested(spec):
            yield from _walk(spec, here)
        elif isinstance(spec, Mapping):
            match spec["type"]:
                case "int":
                    yield Axis(here, "int", int(spec["minval"]), int(spec["maxval"]))
                case "double":
                    yield Axis(here, "double", float(spec["minval"]), float(spec["maxval"]))
                case "log":
                    low, high = float(spec["minval"]), float(spec["maxval"])
                    yield Axis(here, "log", low, high, float(spec["base"]))
                case "categorical" if len(spec["vals"]) > 1:
                    yield Axis(here, "categorical", 0, len(spec["vals"]) - 1, choices=spec["vals"])


def coordinates(axes: Sequence[Axis], hparams: Mapping[str, Any]) -> list[Coordinate]:
    """Return the coordinates of a point."""
    return [axis.coordinate(_at(hparams, axis.route)) for axis in axes]


def _at(hparams: Mapping[str, Any], route: Sequence[str]) -> Any:
    found: Any = hparams
    for name in route:
        found = found[name]
    return found


def point(space: Mapping[str, Any], axes: Sequence[Axis], found: Sequence[Coordinate]) -> dict[str, Any]:
    """Return the point that has these coordinates."""
    values = {axis.route: axis.value(coordinate) for axis, coordinate in zip(axes, found, strict=True)}
    return _fill(space, (), values)


def _fill(space: Mapping[str, Any], route: tuple[str, ...], values: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name in sorted(space):
        spec, here = space[name], (*route, name)
        if here in values:
            made[name] = values[here]
        elif is_nested(spec):
            made[name] = _fill(spec, here, values)
        elif isinstance(spec, Mapping):
            made[name] = copy.deepcopy(spec["val"] if spec["type"] == "const" else spec["vals"][0])
        else:
            made[name] = copy.deepcopy(spec)
    return made

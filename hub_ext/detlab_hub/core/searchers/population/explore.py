"""How the hyperparameters of a clone differ from its parent's.

Jaderberg et al., "Population Based Training of Neural Networks" (2017), section 4.1: each one is drawn again, or
perturbed.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from detlab.schemas.space import Leaf, Space
from detlab.schemas.space.values import CHOICES, at_step, draw, place_of, steps_of
from detlab_hub.core.searchers.randomness import SearchRandom


@dataclass(frozen=True)
class Explore:
    """The settings of `explore_function`.

    Attributes:
        resample: Probability that a hyperparameter is drawn again.
        factor: A number is multiplied by 1 - this or 1 + this; an ordinal moves by one place.
    """

    resample: float
    factor: float

    def changed(self, space: Mapping[str, Any], hparams: Mapping[str, Any], rng: SearchRandom) -> dict[str, Any]:
        """Return a point beside another; what that one lacks is drawn, what the space no longer has is left out."""
        points = Space(space)
        given = points.flat(hparams)
        values: dict[str, Any] = {}
        for leaf in points.ordered:
            if leaf.active(values):
                values[leaf.name] = self._one(leaf, given, rng)
        return points.tree(values)

    def _one(self, leaf: Leaf, given: Mapping[str, Any], rng: SearchRandom) -> Any:
        if leaf.kind == "const" or leaf.name not in given or rng.uniform(0.0, 1.0) < self.resample:
            return draw(leaf.spec, rng)
        value = given[leaf.name]
        if not _is_of(leaf, value):  # the space has been edited since
            return draw(leaf.spec, rng)
        if leaf.kind == "categorical":
            return copy.deepcopy(value)
        if leaf.kind != "ordinal" and (isinstance(value, bool) or not isinstance(value, int | float)):
            return draw(leaf.spec, rng)  # a choice before the bounds were edited
        smaller = rng.below(2) == 0
        if leaf.kind == "ordinal":
            return _moved(leaf.spec, value, -1 if smaller else 1)
        return _scaled(leaf.spec, value, 1 - self.factor if smaller else 1 + self.factor)


def _is_of(leaf: Leaf, value: Any) -> bool:
    """Whether a value can be perturbed: one of the choices, or a number, which may lie outside of the range."""
    if leaf.kind in CHOICES:
        return place_of(leaf.spec, value) is not None
    return isinstance(value, int | float) and not isinstance(value, bool)


def _moved(spec: Any, value: Any, by: int) -> Any:
    place = place_of(spec, value)
    return copy.deepcopy(value) if place is None else at_step(spec, min(max(place + by, 0), (steps_of(spec) or 1) - 1))


def _scaled(spec: Any, value: float, by: float) -> float | int:
    """Multiply a number, so that small integers change too; keep it in its range and on a step."""
    low, high = spec["minval"], spec["maxval"]
    scaled: float | int
    if spec["type"] == "int":
        found = math.floor(value * by) if by < 1 else math.ceil(value * by)
        scaled = min(max(found, int(low)), int(high))
    elif spec["type"] == "log":
        ends = sorted(math.pow(float(spec["base"]), float(exponent)) for exponent in (low, high))
        scaled = min(max(value * by, ends[0]), ends[1])
    else:
        scaled = min(max(value * by, float(low)), float(high))
    return _on_step(spec, scaled) if spec.get("step") is not None else scaled


def _on_step(spec: Any, value: float | int) -> float | int:
    """Return the step next to a value."""
    steps = steps_of(spec) or 1
    if spec["type"] == "log":
        way = (math.log(value) / math.log(float(spec["base"])) - spec["minval"]) / spec["step"]
    else:
        way = (value - spec["minval"]) / spec["step"]
    found: float | int = at_step(spec, min(max(round(way), 0), steps - 1))
    return found

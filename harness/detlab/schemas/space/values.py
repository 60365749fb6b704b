"""The values of one hyperparameter: how many it has, which they are, and how one is drawn."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from detlab.schemas.space.tree import same

NUMBERS = ("int", "double", "log")
CHOICES = ("categorical", "ordinal")
_TOLERANCE = 1e-9
MOST_STEPS = 2**53
"""Of a stepped number: beyond, floats do not tell its values apart."""
_DEVIATIONS = 6.0
"""Widths of the normal distribution around a prior's center in the range of a number."""


class Draws(Protocol):
    """Where random numbers come from."""

    def below(self, n: int) -> int:
        """Draw an integer in [0, n)."""

    def uniform(self, low: float, high: float) -> float:
        """Draw a float in [low, high)."""


def steps_of(spec: Mapping[str, Any]) -> int | None:
    """Return how many values a stepped number or a choice has; None for a number without a step, or with too many."""
    if spec["type"] in CHOICES:
        return len(spec["vals"])
    if spec["type"] not in NUMBERS or spec.get("step") is None:
        return None
    steps = (spec["maxval"] - spec["minval"]) / spec["step"] + _TOLERANCE
    return math.floor(steps) + 1 if steps < MOST_STEPS else None


def at_step(spec: Mapping[str, Any], place: int) -> Any:
    """Return value `place`, from 0, of a stepped number or a choice; a log has steps of its exponent."""
    match spec["type"]:
        case "categorical" | "ordinal":
            return copy.deepcopy(spec["vals"][place])
        case "int":
            return int(spec["minval"]) + place * int(spec["step"])
        case "double":
            return _clean(float(spec["minval"]) + place * float(spec["step"]))
        case _:
            return math.pow(float(spec["base"]), _clean(float(spec["minval"]) + place * float(spec["step"])))


def _clean(value: float) -> float:
    """Take away what binary fractions add: 0.1 + 2 * 0.1 is 0.3."""
    return float(f"{value:.12g}")


def size_of(spec: Any) -> int | None:
    """Return how many values a hyperparameter has; None for one that is not counted: a number without steps."""
    if not isinstance(spec, Mapping) or "type" not in spec or spec["type"] == "const":
        return 1
    steps = steps_of(spec)
    if steps is None and spec["type"] == "int":
        return int(spec["maxval"]) - int(spec["minval"]) + 1
    return steps


def log_ends(spec: Mapping[str, Any]) -> tuple[float, float]:
    """Return the logarithms between which an int on a log scale lies; each whole number owns half a unit around it."""
    return math.log(float(spec["minval"]) - 0.5), math.log(float(spec["maxval"]) + 0.5)


def whole(spec: Mapping[str, Any], logarithm: float) -> int:
    """Return the whole number of an int on a log scale whose logarithm is nearest."""
    return min(max(round(math.exp(logarithm)), int(spec["minval"])), int(spec["maxval"]))


def weighted(weights: Sequence[float], part: float) -> int:
    """Return which choice is at a part, 0 to 1, of the sum of all weights."""
    left = part * math.fsum(weights)
    for place, weight in enumerate(weights):
        left -= weight
        if left < 0:
            return place
    return len(weights) - 1


def draw(spec: Any, rng: Draws) -> Any:
    """Draw a value of a hyperparameter: uniformly, or near the center of its prior."""
    if not isinstance(spec, Mapping):
        return copy.deepcopy(spec)
    if "type" not in spec:
        return {}
    if spec.get("prior") and rng.uniform(0.0, 1.0) < float(spec["prior"].get("confidence", 0.5)):
        return _near(spec, spec["prior"]["center"], rng)
    steps = steps_of(spec)
    if spec.get("weights"):
        return at_step(spec, weighted(spec["weights"], rng.uniform(0.0, 1.0)))
    if steps is not None:
        return at_step(spec, rng.below(steps))
    match spec["type"]:
        case "const":
            return copy.deepcopy(spec["val"])
        case "int" if spec.get("log"):
            return whole(spec, rng.uniform(*log_ends(spec)))
        case "int":
            return int(spec["minval"]) + rng.below(int(spec["maxval"]) - int(spec["minval"]) + 1)
        case "double":
            return rng.uniform(float(spec["minval"]), float(spec["maxval"]))
        case _:
            return math.pow(float(spec["base"]), rng.uniform(float(spec["minval"]), float(spec["maxval"])))


def _near(spec: Mapping[str, Any], center: Any, rng: Draws) -> Any:
    """Draw from a normal distribution around a center, cut off at the ends of the range; a categorical's is the center.

    Its standard deviation is a sixth of the range, in the exponent for a log.
    """
    steps = steps_of(spec)
    if spec["type"] == "categorical":
        return copy.deepcopy(center)
    if steps is not None:
        place = place_of(spec, center)
        return at_step(spec, round(_cut_normal(0 if place is None else place, -0.5, steps - 0.5, rng, steps - 1)))
    low, high = float(spec["minval"]), float(spec["maxval"])
    match spec["type"]:
        case "int" if spec.get("log"):
            first, last = log_ends(spec)
            return whole(spec, _cut_normal(math.log(float(center)), first, last, rng, last))
        case "int":
            return round(_cut_normal(float(center), low - 0.5, high + 0.5, rng, high))
        case "double":
            return _cut_normal(float(center), low, high, rng, high)
        case _:
            return math.pow(float(spec["base"]), _cut_normal(exponent_of(spec, center), low, high, rng, high))


def _cut_normal(center: float, low: float, high: float, rng: Draws, most: float) -> float:
    from statistics import NormalDist  # takes milliseconds to import

    deviation = (high - low) / _DEVIATIONS
    if not deviation > 0:  # floats do not tell the ends apart
        return min(center, most)
    normal = NormalDist(center, deviation)
    first, last = normal.cdf(low), normal.cdf(high)
    part = min(max(rng.uniform(first, last), 1e-12), 1 - 1e-12)
    return min(max(normal.inv_cdf(part), math.ceil(low) if low % 1 == 0.5 else low), most)


def exponent_of(spec: Mapping[str, Any], value: Any) -> float:
    """Return the exponent of a value of a log, within its range."""
    scale = math.log(float(spec["base"]))
    found = math.log(float(value)) / scale if scale else 0.0  # every power of 1 is 1
    return min(max(found, float(spec["minval"])), float(spec["maxval"]))


def place_of(spec: Mapping[str, Any], value: Any) -> int | None:
    """Return which of its steps a value is, from 0; None if it is none of them."""
    if spec["type"] in CHOICES:
        return next((at for at, one in enumerate(spec["vals"]) if same(one, value)), None)
    steps = steps_of(spec)
    if steps is None or isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if spec["type"] == "log" and not value > 0:
        return None
    at = exponent_of(spec, value) if spec["type"] == "log" else float(value)
    place = round((at - spec["minval"]) / spec["step"])
    if not 0 <= place < steps:
        return None
    return place if math.isclose(float(at_step(spec, place)), float(value), rel_tol=_TOLERANCE, abs_tol=1e-12) else None


def objection(spec: Any, value: Any) -> str | None:
    """Return why a value is none of a hyperparameter's, in a few words; None if it is one."""
    kind = spec.get("type") if isinstance(spec, Mapping) else None
    if kind is None or kind == "const":
        fixed = spec["val"] if kind else spec
        return None if same(fixed, value) else f"is {value!r:.60}, but it is fixed at {fixed!r:.60}"
    if kind in CHOICES:
        return None if place_of(spec, value) is not None else f"is {value!r:.60}, not one of {spec['vals']!r:.200}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"is {value!r:.60}, not a number"
    if kind == "int" and not (isinstance(value, int) or value.is_integer()):
        return f"is {value}, not a whole number"
    low, high = ends(spec)
    slack = _TOLERANCE * max(abs(low), abs(high)) if kind != "int" else 0
    if not low - slack <= value <= high + slack:
        return f"is {value}, not from {low:g} to {high:g}"
    if spec.get("step") is not None and place_of(spec, value) is None:
        return f"is {value}, which is no step of {spec['step']} from {low:g}"
    return None


def ends(spec: Mapping[str, Any]) -> tuple[float, float]:
    """Return the smallest and the largest value of a number."""
    low, high = spec["minval"], spec["maxval"]
    if spec["type"] != "log":
        return low, high
    one, other = math.pow(float(spec["base"]), float(low)), math.pow(float(spec["base"]), float(high))
    return min(one, other), max(one, other)

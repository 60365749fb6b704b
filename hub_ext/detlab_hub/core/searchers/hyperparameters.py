"""Search spaces as the master uses them: checked again, drawn from, walked as a grid.

A space is the `hyperparameters` block of the experiment config: a map from names to a bare value (a constant), a map
with a `type`, or a map without one (nested). `detlab.schemas.space` draws; everything goes in sorted key order, nested
maps too, so that a seed alone fixes every draw.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from detlab.schemas import space as spaces
from detlab.schemas.space import Space, SpaceError, is_condition, is_group, leaves_of
from detlab.schemas.space.grid import even_point, int_point
from detlab_hub.core.searchers.errors import SearcherConfigError
from detlab_hub.core.searchers.randomness import SearchRandom

__all__ = ["SpaceGrid", "check_space", "even_point", "int_point", "make_space", "sample", "unlike"]

_INT_RANGE_LIMIT = 2**63
_REQUIRED = {
    "const": ("val",),
    "int": ("minval", "maxval"),
    "double": ("minval", "maxval"),
    "log": ("base", "minval", "maxval"),
    "categorical": ("vals",),
    "ordinal": ("vals",),
}

_FAMILY = {"int": "number", "double": "number", "log": "number", "categorical": "choice", "ordinal": "order"}


def check_space(space: Mapping[str, Any], path: str = "hyperparameters") -> None:
    """Check that every point of a space can be drawn.

    Raises:
        SearcherConfigError: With the path of the first spec that is unknown, incomplete or unusable.
    """
    for name, spec in space.items():
        here = f"{path}.{name}"
        if is_group(spec):
            if not is_condition(name, spec, path.count(".")):
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
    if kind in ("categorical", "ordinal") and not spec["vals"]:
        raise SearcherConfigError(f"{path}: {kind} needs at least one value in vals")
    if kind in ("int", "double", "log") and not spec["minval"] < spec["maxval"]:
        raise SearcherConfigError(f"{path}: minval {spec['minval']} must be below maxval {spec['maxval']}")
    if kind == "int" and spec["maxval"] - spec["minval"] >= _INT_RANGE_LIMIT:
        raise SearcherConfigError(f"{path}: the range of an int must be below 2**63")
    if kind == "int" and spec.get("log") and (spec["minval"] < 1 or spec.get("step") is not None):
        raise SearcherConfigError(f"{path}: an int on a log scale begins at 1 or more, and has no step")
    if kind == "categorical" and spec.get("weights"):
        _check_weights(spec, path)
    if kind in ("int", "double", "log") and spec.get("step") is not None and not spec["step"] > 0:
        raise SearcherConfigError(f"{path}: step {spec['step']} must be above 0")
    if kind == "double":
        _check_width(spec, path)
    if kind == "log":
        _check_log(spec, path)


def _check_weights(spec: Mapping[str, Any], path: str) -> None:
    weights = spec["weights"]
    if (
        len(weights) != len(spec["vals"])
        or not all(0 < one < math.inf for one in weights)
        or not sum(weights) < math.inf
    ):
        raise SearcherConfigError(f"{path}: weights must be one finite number above 0 for each of vals")


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


def make_space(block: Mapping[str, Any], require: Sequence[str] = ()) -> Space:
    """Make the space of a `hyperparameters` block, which `check_space` has checked, and of its relations.

    Raises:
        SearcherConfigError: Its conditions or relations are wrong.
    """
    try:
        return Space(block, require)
    except SpaceError as error:
        raise SearcherConfigError(str(error)) from error


def unlike(space: Mapping[str, Any], edited: Mapping[str, Any]) -> list[str]:
    """Return why an edited block is not one of the same hyperparameters; one sentence for each that differs.

    The code of the trials, and the points that a method has kept, are made for the old one: each hyperparameter must
    remain, numbers as numbers and choices as choices. A hyperparameter may become a constant, or a constant one.
    """
    before, after = ({leaf.name: leaf for leaf in leaves_of(block)} for block in (space, edited))
    wrong = []
    for name, leaf in before.items():
        now = after.get(name)
        if now is None and leaf.kind != "const":
            wrong.append(f"{name}: is not in the new block, but the code of the trials may need it")
        elif (
            now is not None and _FAMILY.get(now.kind) != _FAMILY.get(leaf.kind) and "const" not in (now.kind, leaf.kind)
        ):
            wrong.append(f"{name}: was {leaf.kind} and cannot become {now.kind}")
    new = [leaf for leaf in after.values() if leaf.name not in before and leaf.kind != "const"]
    return wrong + [f"{leaf.name}: is new, and only hyperparameters that the search has can be edited" for leaf in new]


def sample(space: Mapping[str, Any], rng: SearchRandom) -> dict[str, Any]:
    """Draw one point of a space, a nested map recursively, in sorted key order."""
    return make_space(space).sample(rng)


class SpaceGrid(spaces.Grid):
    """The points of a space, from its block.

    Raises:
        SearcherConfigError: An int, double or log has neither `count` nor `step`, or no point meets the relations.
    """

    def __init__(self, block: Mapping[str, Any], require: Sequence[str] = ()) -> None:
        try:
            super().__init__(make_space(block, require))
        except SpaceError as error:
            raise SearcherConfigError(str(error)) from error

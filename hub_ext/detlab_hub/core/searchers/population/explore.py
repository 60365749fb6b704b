"""How the hyperparameters of a clone differ from its parent's.

Jaderberg et al., "Population Based Training of Neural Networks" (2017), section 4.1: each one is drawn anew, or
perturbed.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from detlab_hub.core.searchers.hyperparameters import is_nested, sample
from detlab_hub.core.searchers.randomness import SearchRandom


@dataclass(frozen=True)
class Explore:
    """The settings of `explore_function`.

    Attributes:
        resample: How likely it is that a hyperparameter is drawn anew.
        factor: A number is multiplied by 1 - this or 1 + this.
    """

    resample: float
    factor: float

    def changed(self, space: Mapping[str, Any], hparams: Mapping[str, Any], rng: SearchRandom) -> dict[str, Any]:
        """Return a point beside another, in sorted key order; what the space no longer has is left out."""
        return {name: self._one(space[name], hparams, name, rng) for name in sorted(space)}

    def _one(self, spec: Any, hparams: Mapping[str, Any], name: str, rng: SearchRandom) -> Any:
        if is_nested(spec):
            inner = hparams.get(name)
            return self.changed(spec, inner if isinstance(inner, Mapping) else {}, rng)
        if not isinstance(spec, Mapping) or spec["type"] == "const":
            return sample({name: spec}, rng)[name]
        if rng.uniform(0.0, 1.0) < self.resample or name not in hparams:
            return sample({name: spec}, rng)[name]
        if spec["type"] not in ("int", "double", "log"):
            return copy.deepcopy(hparams[name])
        smaller = rng.below(2) == 0
        return _scaled(spec, hparams[name], 1 - self.factor if smaller else 1 + self.factor)


def _scaled(spec: Mapping[str, Any], value: float, by: float) -> float | int:
    """Multiply a number, away from what it was even if it is a small integer, and keep it in its range."""
    low, high = spec["minval"], spec["maxval"]
    if spec["type"] == "int":
        scaled = math.floor(value * by) if by < 1 else math.ceil(value * by)
        return min(max(scaled, int(low)), int(high))
    if spec["type"] == "log":
        ends = sorted(math.pow(float(spec["base"]), float(exponent)) for exponent in (low, high))
        return min(max(value * by, ends[0]), ends[1])
    return min(max(value * by, float(low)), float(high))

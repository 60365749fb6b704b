"""`sobol`: points of a Sobol sequence, which fill the space more evenly than independent ones.

The sequence is computed here, so that a journal replays whatever version of a library is installed. Each dimension is
shifted by random bits of the search's seed, which keeps its evenness (Owen, "Scrambled net variance", 1997, section 3;
Cranley and Patterson, 1976, shift by a sum instead).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import Any, ClassVar, Self

from detlab.schemas.expconf import SearcherBlock, SobolConfig
from detlab.schemas.space import Space
from detlab.schemas.space.values import log_ends, weighted, whole
from detlab_hub.core.searchers.events import CreateTrial
from detlab_hub.core.searchers.fields import Fields
from detlab_hub.core.searchers.method import TrialFactory
from detlab_hub.core.searchers.model_based.axes import Coordinate, Points, SearchAxis, axes_of
from detlab_hub.core.searchers.sweep import RandomSearch

BITS = 30
_TRIES = 100
"""Points of the sequence that are looked at for one that is new and meets the relations; then one is drawn."""
_NUMBERS = """
    3:1 7:1,3 11:1,3,1 13:1,1,1 19:1,1,3,3 25:1,3,5,13 37:1,1,5,5,17 41:1,1,5,5,5 47:1,1,7,11,19 55:1,1,5,1,1
    59:1,1,1,3,11 61:1,3,5,5,31 67:1,3,3,9,7,49 91:1,1,1,15,21,21 97:1,3,1,13,27,49 103:1,1,1,15,7,5
    109:1,3,1,15,13,25 115:1,1,5,5,19,61 131:1,3,7,11,23,15,103 137:1,3,7,13,13,15,69 143:1,1,3,13,7,35,63
    145:1,3,5,9,1,25,53 157:1,3,1,13,9,35,107 167:1,3,1,5,27,61,31 171:1,1,5,11,19,41,61 185:1,3,5,3,3,13,69
    191:1,1,7,13,1,19,1 193:1,3,7,5,13,19,59 203:1,1,3,9,25,29,41 211:1,3,5,13,23,1,55 213:1,3,7,3,13,59,17
    229:1,3,1,3,5,53,69 239:1,1,5,5,23,33,13 241:1,1,7,7,1,61,123 247:1,1,7,9,13,61,49 253:1,3,3,5,3,55,33
    285:1,3,1,15,31,13,49,245 299:1,3,5,15,31,59,63,97 301:1,3,1,11,11,11,77,249 333:1,3,1,11,27,43,71,9
    351:1,1,7,15,21,11,81,45 355:1,3,7,3,25,31,65,79 357:1,3,1,1,19,11,3,205 361:1,1,5,9,19,21,29,157
    369:1,3,7,11,1,33,89,185 391:1,3,3,3,15,9,79,71 397:1,3,7,11,15,39,119,27 425:1,1,3,1,11,31,97,225
    451:1,1,1,3,23,43,57,177 463:1,3,7,7,17,17,37,71 487:1,3,1,5,27,63,123,213 501:1,1,3,5,11,43,53,133
    529:1,3,5,5,29,17,47,173,479 539:1,3,3,11,3,1,109,9,69 545:1,1,1,5,17,39,23,5,343 557:1,3,1,5,25,15,31,103,499
    563:1,1,1,11,11,17,63,105,183 601:1,1,5,11,9,29,97,231,363 607:1,1,5,15,19,45,41,7,383
    617:1,3,7,7,31,19,83,137,221 623:1,1,1,3,23,15,111,223,83 631:1,1,5,13,31,15,55,25,161
    637:1,1,3,13,25,47,39,87,257
"""
"""Of each dimension from the second on: its primitive polynomial, and the first direction numbers.

Joe and Kuo, "Constructing Sobol sequences with better two-dimensional projections", SIAM J. Sci. Comput. 30, 2008.
"""


class SobolSearch(RandomSearch):
    """`max_trials` points of a Sobol sequence, shifted at random.

    Args:
        max_trials: Trials whose hyperparameters turned out valid.
        max_concurrent: Trials at a time; 0 for no limit.
    """

    name = "sobol"
    draws_anew = False
    Config: ClassVar[type[SearcherBlock]] = SobolConfig

    def __init__(self, max_trials: int, max_concurrent: int) -> None:
        super().__init__(max_trials, max_concurrent)
        self._place = 0
        self._shifts: list[int] = []
        """Of each dimension, drawn when it is first needed."""

    @classmethod
    def from_config(cls, fields: Fields, space: Mapping[str, Any]) -> Self:
        """As `searcher` says."""
        return cls(fields.count("max_trials"), fields.max_concurrent)

    def create(self, factory: TrialFactory) -> CreateTrial:
        """Create a trial at a point that was given, or else at the next one of the sequence."""
        if factory.enqueued:
            return factory.draw()
        axes, points = axes_of(factory.space), Points(Space(factory.space))
        self._shifts += [factory.rng.below(1 << BITS) for _ in range(len(self._shifts), len(axes))]
        for _ in range(_TRIES):
            parts = {axis.name: self._part(factory, place) for place, axis in enumerate(axes)}
            self._place += 1
            found = points.build(partial(_coordinate, parts))
            if factory.is_fresh(found):
                return factory.at(found)
        return factory.at(factory.point())

    def _part(self, factory: TrialFactory, dimension: int) -> float:
        """Return where the next point is in a dimension, 0 to 1; at random in those that the table does not have."""
        if dimension >= dimensions():
            return factory.rng.uniform(0.0, 1.0)
        return (element(self._place, dimension) ^ self._shifts[dimension]) / (1 << BITS)

    def notes(self) -> list[str]:
        """Say that some hyperparameters are drawn at random."""
        if len(self._shifts) <= dimensions():
            return []
        return [f"searcher sobol: only the first {dimensions()} hyperparameters are of the sequence, the others random"]

    def state(self) -> dict[str, Any]:
        """Return the place in the sequence, too."""
        return super().state() | {"place": self._place, "shifts": self._shifts}


def _coordinate(parts: Mapping[str, float], axis: SearchAxis) -> Coordinate:
    return at_part(axis, parts[axis.name])


def at_part(axis: SearchAxis, part: float) -> Coordinate:
    """Return the coordinate at a part, 0 to 1, of an axis; choices have as much of it as their weights say."""
    spec = axis.leaf.spec if axis.leaf is not None else {}
    if axis.kind in ("double", "log"):
        return float(axis.low) + part * (float(axis.high) - float(axis.low))
    if axis.log:
        first, last = log_ends(spec)
        return whole(spec, first + part * (last - first))
    if spec.get("weights"):
        return weighted(spec["weights"], part)
    low, high = int(axis.low), int(axis.high)
    return min(low + int(part * (high - low + 1)), high)


def element(place: int, dimension: int) -> int:
    """Return a coordinate of a point of the sequence, in units of 2**-30; in the order of Gray's code."""
    found, gray = 0, place ^ (place >> 1)
    for bit, direction in enumerate(_directions(dimension)):
        if gray >> bit & 1:
            found ^= direction
    return found


@cache
def dimensions() -> int:
    """Return how many dimensions the table has."""
    return 1 + len(_NUMBERS.split())


@cache
def _directions(dimension: int) -> tuple[int, ...]:
    if dimension == 0:
        return tuple(1 << (BITS - 1 - bit) for bit in range(BITS))
    first, _, given = _NUMBERS.split()[dimension - 1].partition(":")
    polynomial, numbers = int(first), [int(one) for one in given.split(",")]
    degree = len(numbers)
    for at in range(degree, BITS):
        found = numbers[at - degree] ^ (numbers[at - degree] << degree)
        for term in range(1, degree):
            if polynomial >> (degree - term) & 1:
                found ^= numbers[at - term] << term
        numbers.append(found)
    return tuple(one << (BITS - 1 - bit) for bit, one in enumerate(numbers))

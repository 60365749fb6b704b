"""Rungs of successive halving: the levels at which trials are compared, and how units and trials divide over them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from detlab.schemas.expconf.rungs import exact, rungs_within, shares_within
from detlab_hub.core.searchers.fronts import Fronts
from detlab_hub.core.searchers.objectives import Score
from detlab_hub.core.searchers.scores import fronts_of, insert


@dataclass
class Rung:
    """One level of a bracket.

    Attributes:
        units_needed: Value of the time metric from which a report counts here.
        entries: What each trial scored, best first, with its request id.
    """

    units_needed: int
    entries: list[tuple[Score, str]] = field(default_factory=list)
    _fronts: Fronts | None = field(default=None, repr=False, compare=False)
    """Those of the entries, if they have several losses; None: to be computed."""

    def insert(self, request_id: str, score: Score) -> int:
        """Insert before equal scores, diverged ones (NaN, -inf) after everything; return the place, 0 for the best."""
        if self._fronts is None and len(score.losses) > 1:
            self._fronts = fronts_of([known for known, _ in self.entries], len(score.losses))
        return insert(self.entries, score, request_id, self._fronts)

    def remove(self, request_id: str) -> None:
        """Remove a trial's score from the rung."""
        left = [entry for entry in self.entries if entry[1] != request_id]
        if len(left) < len(self.entries):
            self.entries, self._fronts = left, None

    def state(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {"units_needed": self.units_needed, "entries": [[*score, name] for score, name in self.entries]}


@dataclass(frozen=True)
class Powers:
    """The powers of a divisor, by which units and trials divide over rungs.

    Attributes:
        divisor: One trial in so many continues beyond a rung.
        exact: Whether they are exact. The searches of journals from before `EXACT_RUNGS` divide by floats: a rung may
            be missing or be a unit off, and they are to be replayed as they were.
    """

    divisor: float
    exact: bool = True

    def power(self, exponent: int) -> Fraction | float:
        """Return one of them."""
        return exact(self.divisor) ** exponent if self.exact else math.pow(self.divisor, exponent)

    def within(self, limit: int, most: int, slack: float = 0.0) -> int:
        """Return how many rungs fit below a limit of units or trials, `most` at most.

        Args:
            limit: Units at the top rung, or trials at the first.
            most: Rungs at most.
            slack: What a logarithm of floats is raised by; not used if they are exact.
        """
        if self.exact:
            return rungs_within(limit, self.divisor, most)
        return min(most, int(math.log(limit) / math.log(self.divisor) + slack) + 1)

    def shares(self, ordered: Sequence[int], trials: int) -> list[int]:
        """Divide trials over brackets by their rungs so that they cost about the same, rounded down."""
        if self.exact:
            return shares_within(ordered, trials, self.divisor)
        weights = [math.pow(self.divisor, rungs - 1) / rungs for rungs in ordered]
        total = 0.0
        for weight in weights:  # not `sum`, which compensates rounding from Python 3.12 on: a share must not change
            total += weight
        return [int(weight / total * trials) for weight in weights]


def rung_units(num_rungs: int, divisor: float, max_time: int, *, exact: bool = True) -> list[int]:
    """Units of the time metric at which each rung decides, first to last."""
    powers = Powers(divisor, exact)
    return [max(1, int(max_time / powers.power(num_rungs - 1 - level))) for level in range(num_rungs)]

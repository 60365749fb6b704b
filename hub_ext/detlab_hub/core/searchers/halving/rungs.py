"""Rungs of successive halving: the levels at which trials are compared."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from detlab_hub.core.searchers.objectives import Score
from detlab_hub.core.searchers.scores import insert


@dataclass
class Rung:
    """One level of a bracket.

    Attributes:
        units_needed: Value of the time metric from which a report counts here.
        entries: What each trial scored, best first, with its request id.
    """

    units_needed: int
    entries: list[tuple[Score, str]] = field(default_factory=list)

    def insert(self, request_id: str, score: Score) -> int:
        """Insert before equal scores, diverged ones (NaN, -inf) after everything; return the place, 0 for the best."""
        return insert(self.entries, score, request_id)

    def remove(self, request_id: str) -> None:
        """Remove a trial's score from the rung."""
        self.entries = [entry for entry in self.entries if entry[1] != request_id]

    def state(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {"units_needed": self.units_needed, "entries": [[*score, name] for score, name in self.entries]}


def rung_units(num_rungs: int, divisor: float, max_time: int) -> list[int]:
    """Units of the time metric at which each rung decides, first to last."""
    return [max(1, int(max_time / math.pow(divisor, num_rungs - 1 - level))) for level in range(num_rungs)]

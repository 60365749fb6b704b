"""What a search is about: the metrics that rank its trials, and the constraints that they must keep.

Each report is judged once, here, and becomes losses (smaller is better) and a violation. Deb's rule ranks with both
(Deb, "An efficient constraint handling method for genetic algorithms", 2000): a feasible trial comes before an
infeasible one, infeasible ones by how far they are off, feasible ones by their losses.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from detlab_hub.core.searchers.errors import SearcherInputError
from detlab_hub.core.searchers.events import RULES, SCALED


class Score(NamedTuple):
    """The score of a report; with several losses it is comparable only through `scores.order`.

    Attributes:
        violation: By how much it breaks the constraints; 0 if it keeps them all.
        losses: One number for each objective, smaller is better; may be NaN or infinite.
    """

    violation: float
    losses: tuple[float, ...]


@dataclass(frozen=True)
class MetricBound:
    """The range that a constrained metric must keep."""

    name: str
    low: float = -math.inf
    high: float = math.inf

    def violation(self, value: float, *, scaled: bool = False) -> float:
        """By how much a value is outside; NaN is outside by an infinite amount.

        Args:
            value: Of the metric.
            scaled: In units of the range, or of the bound if there is one alone: metrics of any unit can be added up.
        """
        if math.isnan(value):
            return math.inf
        outside = max(self.low - value, value - self.high, 0.0)
        if not scaled or outside == 0:
            return outside
        # Of numbers at the ends of what a float holds, too: outside is never inside, and not as bad as NaN.
        return min(max(outside / self._unit(value), sys.float_info.min), sys.float_info.max)

    def _unit(self, value: float) -> float:
        width = self.high - self.low
        if 0 < width < math.inf:
            return width
        bound = abs(self.low if value < self.low else self.high)
        return bound if 0 < bound < math.inf else 1.0


@dataclass(frozen=True)
class Objectives:
    """The metrics of a search.

    Attributes:
        sign: 1 if a smaller searcher metric is better, else -1.
        others: Further objectives: name and sign.
        bounds: The constraints.
        scaled: Whether what breaks one is relative to it; searches of earlier versions add up raw numbers.
    """

    sign: float = 1.0
    others: tuple[tuple[str, float], ...] = ()
    bounds: tuple[MetricBound, ...] = ()
    scaled: bool = True

    @classmethod
    def from_config(cls, searcher: Mapping[str, Any], rules: int = RULES) -> Self:
        """Read them from a `searcher` block; the first of `metrics` is the searcher metric."""
        metrics = searcher.get("metrics") or [searcher]
        signs = [1.0 if one.get("smaller_is_better", True) else -1.0 for one in metrics]
        others = tuple((str(one["name"]), sign) for one, sign in zip(metrics[1:], signs[1:], strict=True))
        bounds = tuple(
            MetricBound(
                name,
                -math.inf if one.get("min") is None else float(one["min"]),
                math.inf if one.get("max") is None else float(one["max"]),
            )
            for name, one in (searcher.get("constraints") or {}).items()
        )
        return cls(signs[0], others, bounds, rules >= SCALED)

    @property
    def names(self) -> list[str]:
        """The metrics that a report must carry beside the searcher metric."""
        return list(dict.fromkeys([name for name, _ in self.others] + [bound.name for bound in self.bounds]))

    def judge(self, metric: float, values: Mapping[str, float]) -> Score:
        """Return the score of a report.

        Raises:
            SearcherInputError: A metric is missing.
        """
        missing = [name for name in self.names if name not in values]
        if missing:
            listed = ", ".join(repr(name) for name in missing)
            raise SearcherInputError(f"a validation report must carry every metric of the search; it lacks {listed}")
        losses = (self.sign * metric, *(sign * values[name] for name, sign in self.others))
        broken = (bound.violation(values[bound.name], scaled=self.scaled) for bound in self.bounds)
        return Score(sum(broken, 0.0), losses)

    def worst(self, loss: float) -> Score:
        """Return a score for a trial without one: this loss in each objective, and behind all infeasible ones."""
        return Score(math.inf if self.bounds else 0.0, (loss,) * (1 + len(self.others)))


def time_of(name: str, time: float | None, request_id: str, purpose: str = "") -> float:
    """Return the value of the time metric in a report.

    Args:
        name: The searcher's `time_metric`.
        time: Its value; None if the report has none.
        request_id: The reporting trial.
        purpose: Why it is needed, if the method itself does not need it.

    Raises:
        SearcherInputError: It is missing or not finite.
    """
    if time is not None and math.isfinite(time):
        return time
    given = "has none" if time is None else f"has {time}"
    wanted = f"a validation report must carry the searcher's time_metric {name!r} as a finite number{purpose}"
    raise SearcherInputError(f"{wanted}; the report of trial {request_id} {given}")

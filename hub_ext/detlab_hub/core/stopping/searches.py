"""When a whole search ends before its trials are used up: a goal is reached, or no trial is better any longer. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

from detlab_hub.core.stopping.policy import shown


class SearchEnd:
    """`searcher.goal`, `searcher.patience` and `searcher.min_improvement`.

    Losses are of points: with `seeds` they are means. Those that break a constraint do not count as results.

    Args:
        metric: Name of the searcher's metric.
        sign: 1 if a smaller metric is better, else -1.
        goal: The metric at which the search ends.
        patience: So many ended trials in a row without an improvement end it.
        min_improvement: By how much a trial must be better than the best one before to count.
    """

    def __init__(
        self, metric: str, sign: float, goal: float | None, patience: int | None, min_improvement: float = 0.0
    ) -> None:
        self._metric = metric
        self._sign = sign
        self._goal = goal
        self._patience = patience
        self._min_improvement = min_improvement
        self._of_trial: dict[str, float] = {}
        """By trial that has not ended: its smallest loss."""
        self._best = math.inf
        """Smallest loss of the ended trials that counted as an improvement."""
        self._in_vain = 0
        """Trials that have ended since then."""
        self.notes: list[str] = []
        """Why the search has ended, for people."""

    @classmethod
    def from_config(cls, searcher: Mapping[str, Any], sign: float) -> Self:
        """Read it from a `searcher` block."""
        goal, patience = searcher.get("goal"), searcher.get("patience")
        return cls(
            str(searcher.get("metric") or "the metric"),
            sign,
            None if goal is None else float(goal),
            None if patience is None else int(patience),
            float(searcher.get("min_improvement") or 0.0),
        )

    @property
    def counts(self) -> bool:
        """Whether it has to see every report, so that each is journaled."""
        return self._patience is not None

    def reported(self, request_id: str, loss: float, *, feasible: bool = True) -> str | None:
        """Take a report; return why the search ends with it, None if it goes on."""
        if not feasible or math.isnan(loss) or loss == -math.inf:
            return None
        if self._patience is not None:
            self._of_trial[request_id] = min(loss, self._of_trial.get(request_id, math.inf))
        if self._goal is None or loss > self._sign * self._goal:
            return None
        return self._noted(
            f"{self._metric} has reached the goal of {shown(self._goal)}: it is {shown(self._sign * loss)}"
        )

    def ended(self, request_id: str, *, counts: bool = True) -> str | None:
        """Take a trial's end; return why the search ends with it, None if it goes on.

        Args:
            request_id: The trial.
            counts: Whether it says anything of the search: not if its point was invalid, or a user canceled it.
        """
        loss = self._of_trial.pop(request_id, math.inf)
        if self._patience is None or not counts:
            return None
        if loss < self._best - self._min_improvement or (math.isinf(self._best) and loss < math.inf):
            self._best, self._in_vain = loss, 0
            return None
        self._in_vain += 1
        if math.isinf(self._best) or self._in_vain < self._patience:
            return None
        found = shown(self._sign * self._best)
        more = f" by more than {shown(self._min_improvement)}" if self._min_improvement else ""
        return self._noted(f"the last {self._in_vain} trials have not improved {self._metric} beyond {found}{more}")

    def _noted(self, why: str) -> str:
        if not self.notes:
            self.notes.append(f"the search has ended early: {why}")
        return self.notes[0]

    def state(self) -> Any:
        """Return the whole state as JSON values, for fingerprints."""
        return [self._of_trial, repr(self._best), self._in_vain]

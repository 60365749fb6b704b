"""Searches on a simulated clock: workers train points of a table, one result each. Needs no package."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass
from typing import Any, Protocol

from quality.tables import Table


class Tuner(Protocol):
    """Asks and tells, one result each."""

    def ask(self) -> tuple[Any, dict[str, Any]] | None:
        """Return a handle and a point; None if the budget is spent."""

    def tell(self, handle: Any, loss: float) -> None:
        """Take a result."""


@dataclass(frozen=True)
class Ended:
    """A trial that has ended: when on the simulated clock, and the regret of its point by its mean loss."""

    clock: float
    regret: float


def run(tuner: Tuner, table: Table, workers: int, seed: int, trials: int) -> list[Ended]:
    """Run a search to the end of its budget, or of so many trials; return them in the order of their ends."""
    rng = random.Random(seed)
    busy: list[tuple[float, int, Any, dict[str, Any], float]] = []
    clock, number, ended = 0.0, 0, []
    while True:
        while len(busy) < workers and (asked := tuner.ask()) is not None:
            handle, hparams = asked
            loss, seconds = table.draw(hparams, rng)
            heapq.heappush(busy, (clock + seconds, number, handle, hparams, loss))
            number += 1
        if not busy or len(ended) == trials:
            return ended
        clock, _, handle, hparams, loss = heapq.heappop(busy)
        ended.append(Ended(clock, table.regret(table.mean_loss(hparams))))
        tuner.tell(handle, loss)


def best_so_far(values: list[float]) -> list[float]:
    """Return the smallest value up to each."""
    best, found = float("inf"), []
    for value in values:
        best = min(best, value)
        found.append(best)
    return found


def as_row(ended: list[Ended]) -> dict[str, list[float]]:
    """Return what is kept of a search: when each trial ended, and the least regret by then."""
    return {
        "clock": [round(one.clock, 2) for one in ended],
        "regret": [round(regret, 5) for regret in best_so_far([one.regret for one in ended])],
    }

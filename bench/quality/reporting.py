"""Peers with rungs on learning curves: eight workers on a simulated clock. Needs none of detlab's packages."""

from __future__ import annotations

import heapq
import math
from typing import Any, Protocol

from quality.curves import CurveTask

WORKERS = 8


class Reported(Protocol):
    """Asks for trials, and hears of each report whether to stop."""

    def ask(self) -> tuple[Any, dict[str, Any]]:
        """Return a handle and a point."""

    def report(self, handle: Any, units: int, loss: float) -> bool:
        """Take a report; say whether the trial is to be stopped."""

    def end(self, handle: Any, loss: float, *, stopped: bool) -> None:
        """Take the end of a trial, with its last loss."""


def run(tuner: Reported, task: CurveTask) -> dict[str, Any]:
    """Train trials until the budget is spent; return what is kept of the search, as `rungs.search` does."""
    busy: list[tuple[float, int, Any, list[tuple[int, float]], int]] = []
    clock, number, spent, least = 0.0, 0, 0.0, math.inf
    improved: list[tuple[float, float]] = []
    while spent < task.budget:
        while len(busy) < WORKERS:
            handle, hparams = tuner.ask()
            curve = task.curve(hparams)
            heapq.heappush(busy, (clock + curve[0][0], number, handle, curve, 0))
            number += 1
        clock, place, handle, curve, at = heapq.heappop(busy)
        units, loss = curve[at]
        spent += units - (curve[at - 1][0] if at else 0)
        if loss < least:
            least = loss
            improved.append((spent, round(task.regret(loss), 5)))
        stopped = tuner.report(handle, units, loss)
        if stopped or at + 1 == len(curve):
            tuner.end(handle, loss, stopped=stopped)
        else:
            heapq.heappush(busy, (clock + curve[at + 1][0] - units, place, handle, curve, at + 1))
    return {
        "spent": [round(part / task.budget, 5) for part, _ in improved],
        "regret": [regret for _, regret in improved],
        "total": round(spent / task.budget, 5),
    }

"""The best reports of a search with constraints are those that a comparison of every report finds, at both ends."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import pytest

from detlab_hub.store import Store
from detlab_hub.store.queries.metrics import curves, feasible
from detlab_hub.store.tables import TrialRow
from testbed.databases.store_rows import add_experiment, add_trial

V = "validation"
INF = math.inf
RANGES = [(-INF, 3.0), (3.0, INF), (2.0, 3.0), (3.0, 3.0), (-INF, INF), (9.0, INF), (-INF, -9.0)]
VALUES = [1.0, 2.0, math.nextafter(3.0, 0), 3.0, math.nextafter(3.0, 4), 4.0, math.nan]
Report = tuple[int, int, float, float]
"""(trial, step, loss, memory)"""


def fill(s: Any, drawn: random.Random) -> tuple[int, list[Report]]:
    """Write trials with reports of a loss and of a constrained metric; some lack the latter."""
    experiment = add_experiment(s)
    reports: list[Report] = []
    for _ in range(4):
        trial = add_trial(s, experiment)
        for step in range(1, 5):
            loss, memory = float(drawn.randint(0, 4)), drawn.choice(VALUES)
            values = {"loss": loss, "memory": memory} if drawn.random() < 0.9 else {"loss": loss}
            curves.insert_report(s, trial, 1, V, step, float(step), values)
            reports.append((trial, step, loss, values.get("memory", math.nan)))
    return experiment, reports


def best(reports: list[Report], low: float, high: float, *, smaller: bool) -> Report | None:
    """The best that keeps the range, the first of equal ones."""
    kept = [one for one in reports if low <= one[3] <= high]
    return min(kept, key=lambda one: (one[2] if smaller else -one[2], one[0], one[1]), default=None)


@pytest.mark.parametrize("seed", range(3))
def test_the_best_within_bounds_is_found_whichever_end_binds(store: Store, seed: int) -> None:
    experiment, reports = store.write_sync(lambda s: fill(s, random.Random(seed)))

    def compare(s: Any) -> int:
        found_some = 0
        for (low, high), smaller in itertools.product(RANGES, [True, False]):
            goal = feasible.Goal(V, "loss", smaller, {"memory": (low, high)})
            for trial in {one[0] for one in reports}:
                wanted = best([one for one in reports if one[0] == trial], low, high, smaller=smaller)
                assert feasible.trial_best(s, trial, goal) == (None if wanted is None else wanted[1:3])
                s.get_one(TrialRow, trial).best_validation = None if wanted is None else wanted[2]
            s.flush()
            wanted = best(reports, low, high, smaller=smaller)
            assert feasible.experiment_best(s, experiment, goal) == (None if wanted is None else wanted[:3])
            for until in (0.5, 2.0, 9.0):
                wanted = best([one for one in reports if one[1] <= until], low, high, smaller=smaller)
                given = feasible.best_until(s, experiment, goal, until)
                assert given == (None if wanted is None else wanted[:3]), (low, high, smaller, until)
                found_some += wanted is not None
        return found_some

    assert store.write_sync(compare) > 15

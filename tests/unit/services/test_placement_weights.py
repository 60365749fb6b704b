"""What a config may say of a weight never stops the scheduling of everybody."""

from __future__ import annotations

import math

import pytest

from detlab_hub.core.scheduling import Agent, Job, Pool, Scheduler, SchedulerTask, Snapshot, schedule
from detlab_hub.services.placement.snapshots import _weight


@pytest.mark.parametrize("scheduler", list(Scheduler))
@pytest.mark.parametrize("weight", [0.0, 5e-324, 1.0, 1e308, math.inf, -math.inf, math.nan])
def test_any_weight_can_be_counted_with(scheduler: Scheduler, weight: float) -> None:
    jobs = {name: Job(name, weight=_weight(given)) for name, given in (("a", weight), ("b", weight), ("c", 1.0))}
    tasks = tuple(SchedulerTask(f"{name}{number}", name) for name in jobs for number in range(3))
    decision = schedule(Snapshot(Pool(scheduler), (Agent("n1", 4),), jobs, tasks))
    assert len(decision.allocate) == 4

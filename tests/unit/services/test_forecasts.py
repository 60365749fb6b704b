"""Estimated starts are found out once for a pool that stays as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from detlab_hub.core.scheduling import Agent, Job, Pool, SchedulerTask, Snapshot, TaskState, schedule
from detlab_hub.core.scheduling.estimates import estimated_starts
from detlab_hub.services.queue import start_estimates
from detlab_hub.services.queue.start_estimates import FRESH_SECONDS, Forecasts

RUNS = SchedulerTask("r", "j", 1, TaskState.RUNNING, on={"a": 1}, max_time=100.0)
POOL = Snapshot(Pool(), (Agent("a", 1),), {"j": Job("j")}, (RUNS, SchedulerTask("t", "j", 1)))


def later(seconds: float) -> Snapshot:
    """The same pool some time later."""
    return replace(POOL, tasks=(replace(RUNS, max_time=100.0 - seconds), POOL.tasks[1]))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Snapshot]:
    """The pools that the scheduler was asked about."""
    found: list[Snapshot] = []

    def counted(snapshot: Snapshot, how: object, observed: Mapping[str, float] | None, now: float) -> object:
        found.append(snapshot)
        return estimated_starts(snapshot, schedule, observed, now)

    monkeypatch.setattr(start_estimates, "estimated_starts", counted)
    return found


def test_an_answer_is_used_again_and_goes_on_with_the_time(asked: list[Snapshot]) -> None:
    known = Forecasts()
    assert known.starts("p", POOL, 1000.0) == {"t": 100.0}
    assert known.starts("p", later(2.0), 1002.0) == {"t": 98.0}
    assert len(asked) == 1
    assert known.starts("p", later(FRESH_SECONDS), 1000.0 + FRESH_SECONDS) == {"t": 95.0}
    assert len(asked) == 2
    assert known.starts("other", POOL, 1001.0) == {"t": 100.0}
    assert len(asked) == 3


@pytest.mark.parametrize(
    "changed",
    [
        replace(POOL, tasks=(replace(RUNS, leaving=True), POOL.tasks[1])),
        replace(POOL, tasks=(*POOL.tasks, SchedulerTask("u", "j", 1))),
        replace(POOL, jobs={"j": Job("j", 7)}),
        replace(POOL, agents=(Agent("a", 2),)),
        replace(POOL, agents=(Agent("a", 1, labels={"rack": "r"}),)),
        replace(POOL, pool=Pool(preemption=True)),
    ],
)
def test_what_changes_the_queue_is_asked_anew(changed: Snapshot, asked: list[Snapshot]) -> None:
    known = Forecasts()
    known.starts("p", POOL, 1000.0)
    known.starts("p", changed, 1000.0)
    assert len(asked) == 2

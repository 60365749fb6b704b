"""Without preemption, what passes by tasks that wait makes none of them wait longer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from pool_snapshots import after, pool_of, random_snapshot

from detlab_hub.core.scheduling import ReasonCode, Scheduler, SchedulerTask, Snapshot, TaskState, schedule
from detlab_hub.core.scheduling.fit.fitting import FreeCapacity

JOBS = {"head": {"priority": 10}, "second": {"priority": 10}, "low": {"priority": 50}, "runs": {"priority": 1}}


def runs(name: str, agent: str, slots: int, max_time: float | None = None) -> SchedulerTask:
    """A task that holds slots."""
    return SchedulerTask(name, "runs", slots, TaskState.RUNNING, on={agent: slots}, max_time=max_time)


def waiting(second: SchedulerTask, fill: SchedulerTask, *more: SchedulerTask) -> Snapshot:
    """On `a` one slot is free, another one in 100 seconds, two in 1,000: for a task of 4 slots that comes first."""
    running = {task.id: task for task in (runs("short", "a", 1, 100), runs("long", "a", 2, 1000), *more)}
    pending = {"head": SchedulerTask("head", "head", 4, blocked_nodes=frozenset("b")), "second": second, "fill": fill}
    return pool_of({"a": 4, "b": 2}, JOBS, pending, running)


@pytest.mark.parametrize(("max_time", "starts"), [(900, False), (100, False), (99, True), (None, False)])
def test_what_passes_the_first_does_not_delay_the_second_of_that_priority(max_time: float | None, starts: bool) -> None:
    """It ended before the first could start, but long after the second could have."""
    second = SchedulerTask("second", "second", 2, blocked_nodes=frozenset("b"))
    fill = SchedulerTask("fill", "low", 1, max_time=max_time, blocked_nodes=frozenset("b"))
    assert ("fill" in schedule(waiting(second, fill)).allocate) is starts


def test_what_ends_before_the_first_can_start_passes_where_the_second_could_never_run() -> None:
    second = SchedulerTask("second", "second", 2, blocked_nodes=frozenset("a"))
    fill = SchedulerTask("fill", "low", 1, max_time=900)
    decision = schedule(waiting(second, fill, runs("soon", "b", 1, 10)))
    assert dict(decision.allocate) == {"fill": {"a": 1}}


def test_nothing_passes_one_of_which_nobody_knows_when_it_can_start_where_that_could_run() -> None:
    second = SchedulerTask("second", "second", 2, blocked_nodes=frozenset("a"))
    fill = SchedulerTask("fill", "low", 1, max_time=1, blocked_nodes=frozenset("a"))
    assert dict(schedule(waiting(second, fill, runs("endless", "b", 1))).allocate) == {}


def test_in_random_pools_nothing_that_passes_makes_a_higher_priority_wait_longer() -> None:
    passed = 0
    for seed in range(800):
        snapshot = unlimited(seed)
        decision = schedule(snapshot)
        assert delayed(snapshot) == [], seed
        numbers = [snapshot.jobs[task.job].priority for task in snapshot.tasks if task.id in decision.waiting]
        starts = [snapshot.jobs[task.job].priority for task in snapshot.tasks if task.id in decision.allocate]
        passed += bool(numbers and starts) and min(numbers) < max(starts)
    assert passed > 20


def unlimited(seed: int) -> Snapshot:
    """A random pool without limits, where nobody has waited for too long and most know when they end."""
    found = random_snapshot(seed, preemption=False, scheduler=Scheduler.PRIORITY)
    jobs = {name: replace(job, max_slots=None, weight=1.0) for name, job in found.jobs.items()}
    times = (10.0, 100.0, 30.0, 50.0)
    tasks = [
        replace(task, aged=False, max_time=task.max_time or times[n % 4] + seed % 7)
        for n, task in enumerate(found.tasks)
    ]
    return replace(found, jobs=jobs, tasks=tuple(tasks), quotas=())


def delayed(snapshot: Snapshot) -> list[str]:
    """Who has room later, alone, than if nothing of a lower priority had started in the pass."""
    decision, jobs = schedule(snapshot), snapshot.jobs
    kinds = (ReasonCode.NO_FREE_SLOTS, ReasonCode.FRAGMENTED, ReasonCode.NO_FREE_RESOURCES)
    holding = [task for task in after(snapshot, decision).tasks if task.on]
    found = []
    for task in snapshot.tasks:
        if task.id not in decision.waiting or decision.waiting[task.id].code not in kinds:
            continue
        before = [
            one
            for one in holding
            if one.id not in decision.allocate or jobs[one.job].priority <= jobs[task.job].priority
        ]
        if room_in(snapshot, task, holding) > room_in(snapshot, task, before):
            found.append(task.id)
    return found


def room_in(snapshot: Snapshot, task: SchedulerTask, holding: Sequence[SchedulerTask]) -> float:
    """In how many seconds a task has room, alone, if those that hold slots take their maximum times."""
    for time in sorted({0.0, *(one.max_time for one in holding if one.max_time is not None)}):
        capacity = FreeCapacity(snapshot.pool, snapshot.agents)
        for one in holding:
            if one.max_time is None or one.max_time > time:
                capacity.place(one, one.on)
        if capacity.fit(task) is not None:
            return time
    return math.inf


@pytest.mark.parametrize(("slots", "max_time", "starts"), [
    (70, 69.5, True), (70, 70, False), (1, 0.5, True), (1, 1, False), (64, 64, False), (65, 64.5, True),
    (100, 99.5, True), (100, 100, False),
])  # fmt: skip
def test_when_a_task_can_start_is_known_to_the_second_however_many_run(
    slots: int, max_time: float, starts: bool
) -> None:
    """It is not looked for room after each end: only among those after which there is some."""
    agents = {f"a{number}": 1 for number in range(100)}
    running = {f"r{number}": runs(f"r{number}", f"a{number}", 1, number + 1.0) for number in range(100)}
    pending = {
        "head": SchedulerTask("head", "head", slots),
        "fill": SchedulerTask("fill", "low", 0, max_time=max_time, millicpus=1),
    }
    assert ("fill" in schedule(pool_of(agents, JOBS, pending, running)).allocate) is starts

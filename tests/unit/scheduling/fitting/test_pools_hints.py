"""What would let a waiting task start now: each hint is true when it is followed."""

from __future__ import annotations

import random
from dataclasses import replace

from pool_snapshots import pool_of

from detlab_hub.core.scheduling import Agent, Quota, ReasonCode, SchedulerTask, Snapshot, TaskState, schedule
from detlab_hub.core.scheduling.hints import Change, hints


def said(snapshot: Snapshot, task: str, **others: Snapshot) -> list[str]:
    return [hint.text for hint in hints(snapshot, task, schedule, others)]


def test_fewer_slots() -> None:
    busy = pool_of({"a1": 8}, {"j1": {}, "j2": {}}, {"t2": ("j2", 8)}, {"t1": ("j1", {"a1": 4})})
    assert said(busy, "t2") == ["would start now with 4 slots"]


def test_nothing_for_one_that_starts_or_where_nothing_helps() -> None:
    free = pool_of({"a1": 4}, {"j1": {}}, {"t1": ("j1", 4)})
    full = pool_of({"a1": 4}, {"j1": {}, "j2": {}}, {"t2": ("j2", 2)}, {"t1": ("j1", {"a1": 4})})
    assert said(free, "t1") == []
    assert said(full, "t2") == []
    assert said(pool_of({}, {"j1": {}}, {"t1": ("j1", 4)}), "t1") == []


def test_nothing_while_slots_are_being_taken_for_it() -> None:
    snapshot = pool_of(
        {"a1": 4}, {"low": {"priority": 60}, "high": {"priority": 1}}, {"t2": ("high", 4)},
        {"t1": ("low", {"a1": 2})}, preemption=True,
    )  # fmt: skip
    assert said(snapshot, "t2") == []


def test_without_the_jobs_own_limit() -> None:
    snapshot = pool_of(
        {"a1": 8}, {"j1": {"max_slots": 5}}, {"t2": ("j1", 4)}, {"t1": ("j1", {"a1": 4})}
    )  # fmt: skip
    assert said(snapshot, "t2") == ["would start now with 1 slot", "would start now without max_slots 5 of its job"]


def test_under_a_quota_what_it_leaves() -> None:
    waits = SchedulerTask("t2", "j2", 6, user="ada", requested=2)
    runs = SchedulerTask("t1", "j1", 3, user="ada", on={"a1": 3})
    snapshot = pool_of({"a1": 16}, {"j1": {}, "j2": {}}, {"t2": waits}, quotas=(Quota(8, user="ada"),))
    running = replace(runs, state=type(runs.state).RUNNING)
    snapshot = replace(snapshot, tasks=(running, waits))
    assert said(snapshot, "t2") == ["would start now with 5 slots"]


def test_under_the_quota_of_its_workspace_what_it_leaves() -> None:
    waits = SchedulerTask("t2", "j2", 6, user="ada", requested=2, workspace=7)
    runs = SchedulerTask("t1", "j1", 3, user="bob", on={"a1": 3}, workspace=7)
    other = SchedulerTask("t3", "j1", 2, user="ada", on={"a1": 2}, workspace=8)
    snapshot = pool_of({"a1": 16}, {"j1": {}, "j2": {}}, {"t2": waits}, quotas=(Quota(8, workspace=7),))
    running = [replace(one, state=type(one.state).RUNNING) for one in (runs, other)]
    assert said(replace(snapshot, tasks=(*running, waits)), "t2") == ["would start now with 5 slots"]


def test_another_pool() -> None:
    full = pool_of({"a1": 4}, {"j1": {}, "j2": {}}, {"t2": ("j2", 2)}, {"t1": ("j1", {"a1": 4})})
    free = pool_of({"b1": 2}, {}, {})
    small = pool_of({"c1": 1}, {}, {})
    assert said(full, "t2", free=free, small=small) == ["would start now in the pool free"]
    assert said(pool_of({}, {"j1": {}}, {"t1": ("j1", 2)}), "t1", free=free) == ["would start now in the pool free"]


def test_every_hint_holds_when_it_is_followed() -> None:
    draw = random.Random(11)
    told = 0
    for _ in range(50):
        agents = {f"a{number}": draw.choice([2, 4, 8]) for number in range(draw.randint(1, 3))}
        jobs = {
            f"j{n}": {"max_slots": draw.choice([None, None, 4]), "priority": draw.choice([10, 42])} for n in range(4)
        }
        running = {f"r{n}": ("j0", {name: draw.randint(1, size)}) for n, (name, size) in enumerate(agents.items())}
        pending = {f"p{n}": (f"j{draw.randint(1, 3)}", draw.choice([1, 2, 4, 8, 12])) for n in range(5)}
        snapshot = pool_of(agents, jobs, pending, running, preemption=draw.random() < 0.3)
        other = pool_of({"b1": draw.choice([1, 4, 16])}, {}, {})
        for name in pending:
            task = next(one for one in snapshot.tasks if one.id == name)
            job = snapshot.jobs[task.job]
            for hint in hints(snapshot, name, schedule, {"other": other}):
                told += 1
                match hint.change:
                    case Change.SLOTS:
                        assert int(hint.value) < task.slots
                        changed = [
                            replace(one, slots=int(hint.value)) if one is task else one for one in snapshot.tasks
                        ]
                        followed = replace(snapshot, tasks=tuple(changed))
                    case Change.MAX_SLOTS:
                        followed = replace(snapshot, jobs={**snapshot.jobs, job.id: replace(job, max_slots=None)})
                    case Change.CPUS | Change.MEMORY:
                        raise AssertionError("nobody asked for any")
                    case Change.POOL:
                        followed = replace(other, jobs={job.id: job}, tasks=(task,))
                assert name in schedule(followed).allocate
    assert told > 20


def test_less_memory_and_fewer_cpus_are_told_and_hold() -> None:
    agents = {
        "a": Agent("a", 8, millicpus=8000, host_memory=32 << 30),
        "b": Agent("b", 8, millicpus=8000, host_memory=16 << 30),
    }
    running = {"r": SchedulerTask("r", "j", 2, TaskState.RUNNING, on={"a": 2}, millicpus=6500, memory=24 << 30)}
    pending = {"p": SchedulerTask("p", "j", 4, single_node=True, millicpus=8000, memory=32 << 30)}
    snapshot = pool_of(agents, {"j": {}}, pending, running)
    found = hints(snapshot, "p", schedule)
    assert [(hint.change, hint.value, hint.text) for hint in found] == [
        (Change.MEMORY, "16 GiB", "would start now with memory 16 GiB")
    ], "with fewer CPUs it would not: the agent with the memory is in use"
    reason = schedule(snapshot).waiting["p"]
    assert reason.code is ReasonCode.NO_FREE_RESOURCES
    assert reason.detail == (
        "waits for 8 CPUs and 32 GiB of memory on one agent: an agent with room for its slots has at most 8 CPUs"
        " and at most 16 GiB free; would start now with memory 16 GiB"
    )

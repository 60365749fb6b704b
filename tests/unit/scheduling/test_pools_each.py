"""What holds under each scheduler by itself: quotas of groups, and no victim that was not needed, however many wait."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from pool_snapshots import after, over_allocated, random_snapshot

from detlab_hub.core.scheduling import (
    Agent,
    Fitting,
    Job,
    Pool,
    Quota,
    ReasonCode,
    Scheduler,
    SchedulerTask,
    Snapshot,
    TaskState,
    schedule,
)
from detlab_hub.core.scheduling.fit.fitting import FreeCapacity
from detlab_hub.core.scheduling.order import in_order
from detlab_hub.core.scheduling.preemption.redundant import all_fit

GROUPS = ("vision", "speech")


def of_groups(seed: int, scheduler: Scheduler) -> Snapshot:
    """A random pool whose users are in groups with quotas, part of which is held elsewhere."""
    snapshot = random_snapshot(seed, scheduler=scheduler)
    quotas = tuple(Quota(4 + (seed + n) % 5, group=name, elsewhere=seed % 3) for n, name in enumerate(GROUPS))
    tasks = [
        replace(task, groups=frozenset(name for n, name in enumerate(GROUPS) if (number + seed) >> n & 1))
        for number, task in enumerate(snapshot.tasks)
    ]
    return replace(snapshot, tasks=tuple(tasks), quotas=(*quotas, Quota(6, user="bob")))


@pytest.mark.parametrize("scheduler", list(Scheduler))
def test_no_quota_of_a_group_or_user_is_passed(scheduler: Scheduler) -> None:
    seen = 0
    for seed in range(200):
        snapshot = of_groups(seed, scheduler)
        decision = schedule(snapshot)
        for quota in snapshot.quotas:
            under = [one for one in snapshot.tasks if quota.user == one.user or quota.group in one.groups]
            starts = sum(one.slots for one in under if one.id in decision.allocate)
            held = sum(one.slots for one in under if one.on) + quota.elsewhere
            assert not starts or held + starts <= quota.slots, (seed, quota)
        seen += sum(why.code is ReasonCode.AT_QUOTA for why in decision.waiting.values())
    assert seen > 20, "quotas were in the way"


def unnecessary(snapshot: Snapshot) -> list[str]:
    """Victims without which all who wait for slots that are released would find room all the same."""
    decision = schedule(snapshot)
    wait = [name for name, why in decision.waiting.items() if why.code is ReasonCode.RELEASING]
    served = [task for task in queued(snapshot) if task.id in wait]
    found = []
    for redundant_victims in decision.release:
        capacity = FreeCapacity(snapshot.pool, snapshot.agents)
        for task in snapshot.tasks:
            if task.id in decision.allocate:
                capacity.place(task, decision.allocate[task.id])
            elif task.on and not task.leaving and (task.id == redundant_victims or task.id not in decision.release):
                capacity.place(task, task.on)
        if all_fit(capacity, served):
            found.append(redundant_victims)
    return found


def queued(snapshot: Snapshot) -> list[SchedulerTask]:
    """Who waits, in the order in which the scheduler looks at them."""
    waiting = [task for task in in_order(snapshot.tasks, snapshot.jobs) if task.state is TaskState.PENDING]
    if snapshot.pool.scheduler is Scheduler.PRIORITY:
        waiting.sort(key=lambda task: snapshot.jobs[task.job].priority)
    return waiting


@pytest.mark.parametrize("scheduler", [Scheduler.PRIORITY, Scheduler.FAIR_SHARE])
def test_no_victim_is_needless_however_many_wait(scheduler: Scheduler) -> None:
    several = 0
    for seed in range(150):
        snapshot = crowded(seed, scheduler)
        several += len(schedule(snapshot).release) > 1
        assert unnecessary(snapshot) == [], seed
    assert several > 50


@pytest.mark.parametrize("scheduler", [Scheduler.PRIORITY, Scheduler.FAIR_SHARE])
def test_of_those_chosen_to_leave_no_more_are_spared_than_all_who_wait_can_do_without(scheduler: Scheduler) -> None:
    """Each may be unnecessary by itself, and one of them needed all the same."""
    several = 0
    for seed in range(300):
        snapshot = crowded(seed, scheduler)
        # Any free slots will do for anybody: in which order they are looked at does not decide whether all fit.
        snapshot = replace(snapshot, pool=replace(snapshot.pool, heterogeneous=True))
        decision = schedule(snapshot)
        wait = [name for name, why in decision.waiting.items() if why.code is ReasonCode.RELEASING]
        served = [task for task in queued(snapshot) if task.id in wait]
        capacity = FreeCapacity(snapshot.pool, snapshot.agents)
        for task in after(snapshot, decision).tasks:
            if task.on:
                capacity.place(task, task.on)
        assert all_fit(capacity, served), seed
        several += len(served) > 1
    assert several > 50


@pytest.mark.parametrize("scheduler", [Scheduler.PRIORITY, Scheduler.FAIR_SHARE])
def test_no_victim_is_needless_on_many_agents_either(scheduler: Scheduler) -> None:
    """Where victims by who waits for them were more than 3,000 it was not looked whether any could be spared."""
    many = 0
    for seed, size in enumerate((50, 60, 70, 80, 90, 100)):
        snapshot = crowded(seed, scheduler, agents=size, waiting=size)
        many += len(schedule(snapshot).release) * size > 3000
        assert unnecessary(snapshot) == [], seed
    assert many > 3


def crowded(seed: int, scheduler: Scheduler, *, agents: int = 3, waiting: int = 4) -> Snapshot:
    """A full pool of which one job has all, and several of others wait."""
    draw = random.Random(seed)
    nodes = tuple(Agent(f"a{n}", 4) for n in range(agents))
    jobs = {"first": Job("first", 80)} | {f"j{n}": Job(f"j{n}", 10 + n, submitted=1.0 + n) for n in range(3)}
    tasks = []
    for agent in nodes:
        left = agent.slots
        while left:
            slots = draw.randint(1, left)
            name, kept = f"r{len(tasks)}", draw.random() < 0.1
            held = SchedulerTask(name, "first", slots, TaskState.RUNNING, requested=draw.random(), preemptible=not kept)
            tasks.append(replace(held, on={agent.id: slots}))
            left -= slots
    tasks += [
        SchedulerTask(f"w{n}", f"j{n % 3}", draw.choice([1, 1, 2, 3, 4, 6]), requested=float(n)) for n in range(waiting)
    ]
    return Snapshot(Pool(scheduler, preemption=True, heterogeneous=draw.random() < 0.5), nodes, jobs, tuple(tasks))


def test_who_makes_room_for_the_second_makes_it_for_the_first_too() -> None:
    """Fair share took slots for each by itself: of a task of one slot for the first, of one of three for the second."""
    snapshot = random_snapshot(606, preemption=True, scheduler=Scheduler.FAIR_SHARE)
    decision = schedule(snapshot)
    assert decision.release == ("t8",)
    assert decision.waiting["t9"].detail == "waits for t8 to release their slots"
    assert decision.waiting["t2"].code is ReasonCode.RELEASING


def test_what_is_being_released_is_given_to_no_command_either() -> None:
    """A command that came after one that waits for CPUs started, under fair share, on CPUs that were still held."""
    jobs = {name: Job(name, submitted=float(place)) for place, name in enumerate(("one", "two"))}
    tasks = (
        SchedulerTask("goes", "one", 2, TaskState.RUNNING, on={"a": 2}, millicpus=6000),
        SchedulerTask("stays", "one", 2, TaskState.RUNNING, on={"a": 2}, requested=1.0),
        SchedulerTask("waits", "two", 2, requested=5.0, millicpus=1000, aged=True),
        SchedulerTask("command", "two", 0, requested=6.0, millicpus=5000),
        SchedulerTask("small", "two", 0, requested=7.0, millicpus=2000),
    )
    snapshot = Snapshot(Pool(Scheduler.FAIR_SHARE), (Agent("a", 4, millicpus=8000),), jobs, tasks)
    decision = schedule(snapshot)
    assert decision.release == ("goes",)
    assert dict(decision.allocate) == {"small": {"a": 0}}
    assert decision.waiting["command"].code is ReasonCode.NO_FREE_RESOURCES
    assert over_allocated(snapshot, decision) == []


def test_what_comes_later_goes_where_nobody_waits_if_its_first_place_is_only_being_released() -> None:
    """The second place that was looked for was kept for one that waits for CPUs: it waited, with a third one free."""
    weights = {"two": 9.0, "three": 9.0, "one": 1.0, "four": 1.0}
    jobs = {name: Job(name, weight=weight, submitted=float(n)) for n, (name, weight) in enumerate(weights.items())}
    tasks = (
        SchedulerTask("goes", "one", 2, TaskState.RUNNING, on={"a": 2}, millicpus=6000),
        SchedulerTask("kernel", "four", 0, TaskState.RUNNING, on={"b": 0}, millicpus=4000),
        SchedulerTask("stays", "four", 2, TaskState.RUNNING, on={"c": 2}, preemptible=False),
        SchedulerTask("takes", "two", 2, requested=4.0, millicpus=5000, aged=True),
        SchedulerTask("waits", "three", 2, requested=5.0, millicpus=6000, aged=True, single_node=True),
        SchedulerTask("command", "four", 0, requested=6.0, millicpus=3000),
    )
    agents = tuple(Agent(name, 2, millicpus=8000) for name in "abc")
    decision = schedule(Snapshot(Pool(Scheduler.FAIR_SHARE, fitting=Fitting.WORST), agents, jobs, tasks))
    assert decision.release == ("goes",)
    assert decision.waiting["waits"].code is ReasonCode.NO_FREE_RESOURCES
    assert dict(decision.allocate) == {"command": {"c": 0}}

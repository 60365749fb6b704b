"""What holds for every scheduler on every pool."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import replace

import pytest
from pool_snapshots import after, meanwhile, over_allocated, passes, random_snapshot, some_leaving, used_slots

from detlab.schemas.expconf.blocks.environment import parse_size
from detlab_hub.core.scheduling import AgentState, ReasonCode, Scheduler, Snapshot, TaskState, schedule
from detlab_hub.core.scheduling.planner import Planner

SEEDS = range(1200)


@pytest.fixture(scope="module")
def pools() -> list[Snapshot]:
    """Random pools, the same in each run."""
    return [
        *(random_snapshot(seed) for seed in SEEDS),
        *(some_leaving(random_snapshot(s), s) for s in range(2000, 2400)),
    ]


def test_every_pending_task_starts_or_has_a_reason(pools: list[Snapshot]) -> None:
    for snapshot in pools:
        decision = schedule(snapshot)
        pending = {task.id for task in snapshot.tasks if task.state is TaskState.PENDING}
        assert decision.allocate.keys() | decision.waiting.keys() == pending
        assert not decision.allocate.keys() & decision.waiting.keys()
        assert all(reason.detail for reason in decision.waiting.values())


def test_nothing_is_given_twice_and_released_slots_not_at_once(pools: list[Snapshot]) -> None:
    for snapshot in pools:
        decision = schedule(snapshot)
        agents = {agent.id: agent for agent in snapshot.agents}
        used = used_slots(snapshot)  # with what is released
        zero: Counter[str] = Counter(name for task in snapshot.tasks if not task.slots for name in task.on)
        tasks = {task.id: task for task in snapshot.tasks}
        for name, placement in decision.allocate.items():
            task = tasks[name]
            assert sum(placement.values()) == task.slots, "all or nothing"
            assert len(placement) == 1 or not task.single_node
            for agent, slots in placement.items():
                assert agents[agent].state is AgentState.ENABLED
                assert agent not in task.blocked_nodes
                assert slots or task.slots == 0
                zero[agent] += task.slots == 0
            used.update(placement)
        assert all(used[agent.id] <= agent.slots for agent in snapshot.agents)
        assert not over_allocated(snapshot, decision), "nor CPUs and memory"
        assert all(zero[agent.id] <= agent.max_zero_slot_tasks for agent in snapshot.agents)


def test_limits_of_jobs_and_users_are_kept(pools: list[Snapshot]) -> None:
    for snapshot in pools:
        held = Counter[str]()
        for task in snapshot.tasks:
            if task.state is TaskState.RUNNING:
                held[task.job] += task.slots
        mine = sum(task.slots for task in snapshot.tasks if task.on and task.user == "ada")
        decision = schedule(snapshot)
        for task in snapshot.tasks:
            if task.id not in decision.allocate or task.slots == 0:
                continue
            held[task.job] += task.slots
            most = snapshot.jobs[task.job].max_slots
            assert most is None or held[task.job] <= most
            if task.user == "ada" and snapshot.quotas:
                mine += task.slots
                assert mine <= snapshot.quotas[0].slots


def test_slots_that_are_said_to_be_enough_are(pools: list[Snapshot]) -> None:
    seen = 0
    for snapshot in pools:
        for name, reason in schedule(snapshot).waiting.items():
            hint = re.search(r"would start now with (\d+) slot", reason.detail)
            if hint is None:
                continue
            seen += 1
            fewer = tuple(replace(one, slots=int(hint[1])) if one.id == name else one for one in snapshot.tasks)
            assert name in schedule(replace(snapshot, tasks=fewer)).allocate
    assert seen > 5


def test_memory_and_cpus_that_are_said_to_be_enough_are(pools: list[Snapshot]) -> None:
    seen = Counter[str]()
    for snapshot in pools:
        for name, reason in schedule(snapshot).waiting.items():
            hint = re.search(r"would start now with (memory|cpus) ([0-9.]+)( [GM]iB)?", reason.detail)
            if hint is None:
                continue
            seen[hint[1]] += 1
            size = parse_size(f"{hint[2]}{hint[3]}") if hint[3] else round(float(hint[2]) * 1000)
            less = {"memory": size} if hint[1] == "memory" else {"millicpus": size}
            tasks = tuple(replace(one, **less) if one.id == name else one for one in snapshot.tasks)
            assert name in schedule(replace(snapshot, tasks=tasks)).allocate
    assert min(seen["memory"], seen["cpus"]) > 3, seen


def test_who_waits_for_memory_or_cpus_would_start_without_asking_for_them() -> None:
    seen = 0
    for seed in range(4000, 5400):
        snapshot = random_snapshot(seed, scheduler=Scheduler.ROUND_ROBIN)
        waiting = schedule(snapshot).waiting
        for name in [name for name, why in waiting.items() if why.code is ReasonCode.NO_FREE_RESOURCES]:
            seen += 1
            tasks = {task.id: task for task in snapshot.tasks}
            planner = Planner(replace(snapshot, tasks=tuple(t for t in snapshot.tasks if t.on or t.id == name)))
            plain = replace(tasks[name], id=f"{name} without", millicpus=0, memory=0)
            assert planner.capacity.fit(plain) is not None
    assert seen > 20


def test_only_preemptible_tasks_are_released_and_only_where_that_is_allowed(pools: list[Snapshot]) -> None:
    for snapshot in pools:
        decision = schedule(snapshot)
        tasks = {task.id: task for task in snapshot.tasks}
        assert len(set(decision.release)) == len(decision.release)
        for name in decision.release:
            assert tasks[name].state is TaskState.RUNNING
            assert tasks[name].preemptible
            assert not tasks[name].leaving, "it was told already"
        if snapshot.pool.scheduler is Scheduler.ROUND_ROBIN:
            assert not decision.release
        if snapshot.pool.scheduler is Scheduler.PRIORITY and not snapshot.pool.preemption:
            assert not decision.release


def test_when_somebody_gives_slots_back_somebody_then_starts(pools: list[Snapshot]) -> None:
    seen = 0
    for snapshot in pools:
        decision = schedule(snapshot)
        if not decision.release:
            continue
        seen += 1
        assert any(reason.code is ReasonCode.RELEASING for reason in decision.waiting.values())
        assert schedule(after(snapshot, decision)).allocate
    assert seen > 20


def test_while_those_leave_nobody_else_is_told_to() -> None:
    """A pass that comes before the slots are free must not take more of them."""
    seen = 0
    for seed in range(3000, 3800):
        now = random_snapshot(seed, preemption=True, scheduler=Scheduler.PRIORITY)
        decision = schedule(now)
        if not decision.release:
            continue
        seen += 1
        for _ in range(4):
            now = meanwhile(now, decision)
            decision = schedule(now)
            assert not decision.release, now
            used = used_slots(now)
            for placement in decision.allocate.values():
                used.update(placement)
            assert all(used[agent.id] <= agent.slots for agent in now.agents)
            assert not over_allocated(now, decision)
    assert seen > 20


def test_no_victim_of_a_single_task_is_needless() -> None:
    seen = 0
    for seed in range(1500):
        snapshot = random_snapshot(seed, preemption=True, scheduler=Scheduler.PRIORITY)
        decision = schedule(snapshot)
        waiting = [name for name, reason in decision.waiting.items() if reason.code is ReasonCode.RELEASING]
        if len(waiting) != 1 or decision.allocate:
            continue
        seen += 1
        (name,) = waiting
        tasks = {task.id: task for task in snapshot.tasks}
        for redundant_victims in decision.release:
            without = [
                task for task in snapshot.tasks if task.id not in decision.release or task.id == redundant_victims
            ]
            planner = Planner(replace(snapshot, tasks=tuple(without)))
            assert planner.capacity.fit(tasks[name]) is None, f"{redundant_victims} was not needed"
    assert seen > 5


def test_the_order_in_which_things_are_told_does_not_matter(pools: list[Snapshot]) -> None:
    shuffler = random.Random(7)
    for snapshot in pools:
        agents, tasks = list(snapshot.agents), list(snapshot.tasks)
        shuffler.shuffle(agents)
        shuffler.shuffle(tasks)
        jobs = dict(reversed(snapshot.jobs.items()))
        other = schedule(replace(snapshot, agents=tuple(agents), tasks=tuple(tasks), jobs=jobs))
        decision = schedule(snapshot)
        assert other.allocate == decision.allocate
        assert set(other.release) == set(decision.release)
        assert {name: why.code for name, why in other.waiting.items()} == {
            name: why.code for name, why in decision.waiting.items()
        }


def test_a_pool_that_nobody_comes_to_or_leaves_comes_to_rest(pools: list[Snapshot]) -> None:
    for snapshot in pools:
        passes(snapshot)


def test_what_never_fits_is_in_nobodys_way(pools: list[Snapshot]) -> None:
    for snapshot in pools:
        decision = schedule(snapshot)
        never = {
            name
            for name, why in decision.waiting.items()
            if why.code
            in {ReasonCode.TOO_LARGE, ReasonCode.NO_SUITABLE_AGENT, ReasonCode.OVER_MAX_SLOTS, ReasonCode.OVER_QUOTA}
        }
        without = schedule(replace(snapshot, tasks=tuple(task for task in snapshot.tasks if task.id not in never)))
        assert without.allocate == decision.allocate
        assert without.release == decision.release

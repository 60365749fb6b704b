"""What makes a pass fast changes nothing that it decides or says."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from plain_pass import plain_schedule
from pool_snapshots import Demands, random_snapshot, some_leaving, somewhere

from detlab_hub.core.scheduling import (
    Agent,
    AgentState,
    Constraints,
    Fitting,
    Job,
    Pool,
    Quota,
    Scheduler,
    SchedulerTask,
    Snapshot,
    TaskState,
    schedule,
)

RACK = Constraints(labels=frozenset({("rack", "a")}))


def crowded(seed: int) -> Snapshot:
    """A random pool of up to 25 agents and 120 tasks, most of whose slots are in use, most often with preemption."""
    draw = random.Random(seed)
    agents = tuple(
        Agent(
            f"a{n}",
            draw.choice([1, 2, 4, 8, 8]),
            max_zero_slot_tasks=draw.randint(0, 3),
            state=draw.choice([AgentState.ENABLED] * 9 + list(AgentState)),
            labels={"rack": draw.choice("ab")},
            gpu=draw.choice(["A100", "H100"]),
            serves_user=draw.choice([None] * 12 + ["ada"]),
        )
        for n in range(draw.randint(3, 25))
    )
    jobs = {
        f"j{n}": Job(
            f"j{n}",
            draw.choice([1, 10, 42, 42, 99]),
            weight=draw.choice([1.0] * 6 + [3.0]),
            max_slots=draw.choice([None] * 5 + [3, 8, 20]),
            submitted=float(draw.randint(0, 8)),
            position=draw.choice([None, None, None, -1.0, 9.0]),
        )
        for n in range(draw.randint(1, 12))
    }
    demands = Demands(seed)
    agents = tuple(demands.bound(agent) for agent in agents)
    free = {agent.id: agent.slots for agent in agents}
    aside = {agent.id: agent.max_zero_slot_tasks for agent in agents}
    tasks = []
    for number in range(draw.randint(5, 120)):
        task = demands.of(
            SchedulerTask(
                f"t{number}",
                draw.choice(sorted(jobs)),
                draw.choice([0, 1, 1, 1, 2, 2, 3, 4, 4, 6, 8, 12, 16]),
                requested=float(draw.randint(0, 30)),
                preemptible=draw.random() < 0.85,
                single_node=draw.random() < 0.5,
                blocked_nodes=frozenset(draw.choice([[]] * 6 + [["a0"], ["a1", "a2"]])),
                user=draw.choice(["ada", "bob", "eve"]),
                groups=frozenset(draw.choice([[], ["g"]])),
                constraints=draw.choice([Constraints()] * 4 + [RACK, Constraints(gpu="a100")]),
                max_time=draw.choice([None, 10.0, 100.0]),
                aged=draw.random() < 0.05,
            )
        )
        on = demands.held(task, somewhere(draw, task, free, aside, demands)) if draw.random() < 0.6 else None
        if on is not None:
            task = replace(task, state=TaskState.RUNNING, on=on, leaving=draw.random() < 0.08)
        tasks.append(task)
    pool = Pool(
        draw.choice([Scheduler.PRIORITY] * 4 + list(Scheduler)),
        preemption=draw.random() < 0.8,
        fitting=draw.choice(list(Fitting)),
        heterogeneous=draw.random() < 0.5,
    )
    quotas = tuple(
        quota
        for quota in (Quota(draw.randint(0, 20), user="ada"), Quota(draw.randint(2, 30), group="g"))
        if draw.random() < 0.3
    )
    return Snapshot(pool, agents, jobs, tuple(tasks), quotas, private=draw.random() < 0.5)


@pytest.mark.slow
def test_a_pass_decides_and_says_what_it_would_without_shortcuts() -> None:
    released = 0
    for seed in range(250):
        snapshot = crowded(seed)
        fast, plain = schedule(snapshot), plain_schedule(snapshot)
        released += bool(fast.release)
        assert list(fast.allocate.items()) == list(plain.allocate.items()), seed
        assert fast.release == plain.release, seed
        assert fast.waiting == plain.waiting, seed
    assert released > 80


def test_small_pools_too() -> None:
    for seed in range(5000, 5400):
        for snapshot in (random_snapshot(seed), some_leaving(random_snapshot(seed), seed)):
            fast, plain = schedule(snapshot), plain_schedule(snapshot)
            assert (fast.allocate, fast.release, fast.waiting) == (plain.allocate, plain.release, plain.waiting), seed


def test_tasks_that_all_ask_for_different_cpus_and_memory_too() -> None:
    """They share one index of agents, and what is known of how far one has to go for less."""
    released = 0
    for seed in range(7000, 7060):
        draw, snapshot = random.Random(seed), crowded(seed)
        tasks = [
            one if one.on else replace(one, millicpus=draw.randrange(6000), memory=draw.randrange(40 << 30))
            for one in snapshot.tasks
        ]
        snapshot = replace(snapshot, tasks=tuple(tasks))
        fast, plain = schedule(snapshot), plain_schedule(snapshot)
        released += bool(fast.release)
        assert (fast.allocate, fast.release, fast.waiting) == (plain.allocate, plain.release, plain.waiting), seed
    assert released > 10

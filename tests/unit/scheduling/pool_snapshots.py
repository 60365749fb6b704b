"""Pools for scheduling tests, written briefly, and random ones."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

from detlab_hub.core.scheduling import (
    Agent,
    AgentState,
    Fitting,
    Job,
    PlacementDecision,
    Pool,
    Quota,
    Scheduler,
    SchedulerTask,
    Snapshot,
    TaskState,
    schedule,
)


def pool_of(
    agents: dict[str, int | Agent],
    jobs: dict[str, dict[str, Any]],
    pending: dict[str, tuple[str, int] | SchedulerTask],
    running: dict[str, tuple[str, dict[str, int]] | SchedulerTask] | None = None,
    quotas: tuple[Quota, ...] = (),
    **pool: Any,
) -> Snapshot:
    """A pool: agents by name and slots; pending tasks as (job, slots); running ones as (job, {agent: slots}).

    Jobs are submitted, and tasks requested, in the order in which they are given.
    """
    tasks = []
    for number, (name, what) in enumerate((running or {}).items()):
        if isinstance(what, SchedulerTask):
            tasks.append(what)
        else:
            job, on = what
            tasks.append(SchedulerTask(name, job, sum(on.values()), TaskState.RUNNING, on=on, requested=number))
    for number, (name, waits) in enumerate(pending.items(), len(tasks)):
        tasks.append(SchedulerTask(name, waits[0], waits[1], requested=number) if isinstance(waits, tuple) else waits)
    return Snapshot(
        Pool(**pool),
        tuple(Agent(name, size) if isinstance(size, int) else size for name, size in agents.items()),
        {name: Job(name, **{"submitted": float(place), **what}) for place, (name, what) in enumerate(jobs.items())},
        tuple(tasks),
        quotas,
    )


def placed(decision: PlacementDecision) -> dict[str, dict[str, int]]:
    """Who starts where."""
    return {name: dict(placement) for name, placement in decision.allocate.items()}


def reasons(decision: PlacementDecision) -> dict[str, str]:
    """Why the others wait."""
    return {name: reason.code.value for name, reason in decision.waiting.items()}


def after(snapshot: Snapshot, decision: PlacementDecision) -> Snapshot:
    """The pool when a decision has been carried out: what was released waits again, and who was leaving is gone."""
    tasks = []
    for task in snapshot.tasks:
        if task.id in decision.allocate:
            tasks.append(replace(task, state=TaskState.RUNNING, on=dict(decision.allocate[task.id])))
        elif task.id in decision.release:
            tasks.append(replace(task, state=TaskState.PENDING, on={}))
        elif not task.leaving:
            tasks.append(task)
    return replace(snapshot, tasks=tuple(tasks))


def meanwhile(snapshot: Snapshot, decision: PlacementDecision) -> Snapshot:
    """The pool when a decision was told to everybody, and nobody has left yet."""
    tasks = []
    for task in snapshot.tasks:
        if task.id in decision.allocate:
            tasks.append(replace(task, state=TaskState.RUNNING, on=dict(decision.allocate[task.id])))
        else:
            tasks.append(replace(task, leaving=True) if task.id in decision.release else task)
    return replace(snapshot, tasks=tuple(tasks))


def some_leaving(snapshot: Snapshot, seed: int) -> Snapshot:
    """The same with some of those that run on their way out."""
    draw = random.Random(seed)
    tasks = [replace(t, leaving=t.state is TaskState.RUNNING and draw.random() < 0.3) for t in snapshot.tasks]
    return replace(snapshot, tasks=tuple(tasks))


def random_snapshot(seed: int, *, preemption: bool | None = None, scheduler: Scheduler | None = None) -> Snapshot:
    """A random pool with something running on it, never more than fits."""
    draw = random.Random(seed)
    agents = tuple(
        Agent(
            f"a{n}",
            draw.choice([1, 2, 4, 8]),
            max_zero_slot_tasks=draw.randint(0, 2),
            state=draw.choice([*[AgentState.ENABLED] * 4, *AgentState]),
        )
        for n in range(draw.randint(0, 5))
    )
    jobs = {
        f"j{n}": Job(
            f"j{n}",
            priority=draw.choice([1, 42, 42, 99]),
            weight=draw.choice([1.0, 1.0, 3.0]),
            max_slots=draw.choice([None, None, 1, 3, 8]),
            submitted=float(draw.randint(0, 5)),
            position=draw.choice([None, None, -1.0, 9.0]),
        )
        for n in range(draw.randint(1, 4))
    }
    demands = Demands(seed)
    agents = tuple(demands.bound(agent) for agent in agents)
    free = {agent.id: agent.slots for agent in agents}
    aside = {agent.id: agent.max_zero_slot_tasks for agent in agents}
    tasks = []
    for number in range(draw.randint(0, 14)):
        task = demands.of(
            SchedulerTask(
                f"t{number}",
                draw.choice(sorted(jobs)),
                draw.choice([0, 1, 1, 2, 3, 4, 8, 16]),
                requested=float(draw.randint(0, 9)),
                preemptible=draw.random() < 0.7,
                single_node=draw.random() < 0.5,
                blocked_nodes=frozenset(draw.choice([[], [], [], ["a0"]])),
                user=draw.choice(["ada", "bob"]),
                groups=frozenset(draw.choice([[], ["g"]])),
                max_time=draw.choice([None, 10.0, 100.0]),
                aged=draw.random() < 0.1,
            )
        )
        if draw.random() < 0.6:
            on = demands.held(task, somewhere(draw, task, free, aside, demands))
            task = task if on is None else replace(task, state=TaskState.RUNNING, on=on)
        tasks.append(task)
    pool = Pool(
        scheduler=scheduler or draw.choice(list(Scheduler)),
        preemption=draw.random() < 0.5 if preemption is None else preemption,
        fitting=draw.choice(list(Fitting)),
        heterogeneous=draw.random() < 0.5,
    )
    quotas = (Quota(draw.randint(0, 8), user="ada"), Quota(draw.randint(2, 12), group="g"))[: draw.randint(0, 2)]
    return Snapshot(pool, agents, jobs, tuple(tasks), quotas)


class Demands:
    """CPUs and memory of agents, and what tasks ask of them; in half of all pools nobody says or asks anything."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(f"demands {seed}")
        self._none = self._draw.random() < 0.5
        self._left: dict[str, list[int]] = {}

    def bound(self, agent: Agent) -> Agent:
        """An agent with so much, or with any amount."""
        if not self._none and self._draw.random() < 0.8:
            cpus, memory = self._draw.choice([500, 2000, 8000]), self._draw.choice([1, 4, 16, 64]) << 30
            agent = replace(agent, millicpus=cpus, host_memory=memory)
        self._left[agent.id] = [agent.millicpus, agent.host_memory]
        return agent

    def of(self, task: SchedulerTask) -> SchedulerTask:
        """A task that asks for so much, or for nothing."""
        if self._none or self._draw.random() < 0.4:
            return task
        cpus, memory = self._draw.choice([0, 100, 500, 1500, 4000]), self._draw.choice([0, 1, 3, 16]) << 30
        return replace(task, millicpus=cpus, memory=memory)

    def has(self, name: str, task: SchedulerTask) -> bool:
        """Whether an agent has so much left."""
        return self._left[name][0] >= task.millicpus and self._left[name][1] >= task.memory

    def held(self, task: SchedulerTask, on: dict[str, int] | None) -> dict[str, int] | None:
        """Where a task runs; what it asked for is taken there."""
        for name in on or ():
            self._left[name][0] -= task.millicpus
            self._left[name][1] -= task.memory
        return on


def somewhere(
    draw: random.Random, task: SchedulerTask, free: dict[str, int], aside: dict[str, int], demands: Demands
) -> dict[str, int] | None:
    """Slots for a running task, taken from what is free: on one agent, or on several."""
    if task.slots == 0:
        names = [name for name in sorted(aside) if aside[name] and demands.has(name, task)]
        if not names:
            return None
        aside[name := draw.choice(names)] -= 1
        return {name: 0}
    names = [name for name in sorted(free) if demands.has(name, task)]
    draw.shuffle(names)
    on: dict[str, int] = {}
    left = task.slots
    for name in names:
        slots = min(left, free[name]) if not task.single_node else left if free[name] >= left else 0
        if slots:
            on[name] = slots
            left -= slots
    if left:
        return None
    for name, slots in on.items():
        free[name] -= slots
    return on


def used_slots(snapshot: Snapshot) -> Counter[str]:
    """Slots in use, by agent."""
    used: Counter[str] = Counter()
    for task in snapshot.tasks:
        used.update(task.on)
    return used


def over_allocated(snapshot: Snapshot, decision: PlacementDecision) -> list[str]:
    """Agents of whose slots, CPUs or memory more is given away than there is; what is released is still held."""
    slots, cpus, memory = Counter[str](), Counter[str](), Counter[str]()
    for task in snapshot.tasks:
        for name, count in decision.allocate.get(task.id, task.on).items():
            slots[name] += count
            cpus[name] += task.millicpus
            memory[name] += task.memory
    return [
        agent.id
        for agent in snapshot.agents
        if slots[agent.id] > agent.slots or cpus[agent.id] > agent.millicpus or memory[agent.id] > agent.host_memory
    ]


def passes(snapshot: Snapshot, most: int = 60) -> list[PlacementDecision]:
    """Decisions, each carried out, until one changes nothing."""
    found = []
    for _ in range(most):
        decision = schedule(snapshot)
        found.append(decision)
        if not decision.allocate and not decision.release:
            return found
        snapshot = after(snapshot, decision)
    raise AssertionError(f"no rest after {most} passes: {found[-2:]}")

"""Beside a literal reading of Determined's fitting, priority scheduler and fair share, in random pools.

Left out is what differs on purpose; the rows are those under "scheduling" in `docs/how-to/come-from-determined.md`:

- "a trial that no one agent has room for": where Determined finds nothing, nothing is compared.
- "whose slots are taken": fewer may be than Determined takes, never others.
- "without preemption, one that does not fit": no task has a maximum time, and each agent suits all.
- "jobs of one priority with different weights", `resources.max_slots`: all weights are equal, there are no limits.
- "`fair_share`": all tasks are trials of one slot, so that none keeps its slots and no share is too small for any.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from detlab_hub.core.scheduling import (
    Agent,
    Fitting,
    Job,
    Pool,
    Scheduler,
    SchedulerTask,
    Snapshot,
    TaskState,
    schedule,
)


def number_of(name: str) -> int:
    """The first 8 bytes of the MD5 of a name, little-endian."""
    return int.from_bytes(hashlib.md5(name.encode(), usedforsecurity=False).digest()[:8], "little")


class Fits:
    """The agents with what is used of them, and the fits of `fitting.go`."""

    def __init__(self, pool: Pool, agents: Sequence[Agent]) -> None:
        self._best, self._heterogeneous = pool.fitting is Fitting.BEST, pool.heterogeneous
        self._agents = agents
        self._used = dict.fromkeys((agent.id for agent in agents), 0)
        self._zero = self._used.copy()

    def put(self, task: SchedulerTask, on: Mapping[str, int], sign: int = 1) -> None:
        """A task takes what it has there (1), or gives it back (-1)."""
        for name, slots in on.items():
            self._used[name] += sign * slots
            self._zero[name] += sign * (task.slots == 0)

    def fit(self, task: SchedulerTask) -> dict[str, int] | None:
        """On one agent with room, the best; else on idle ones."""
        able = [agent for agent in self._agents if agent.id not in task.blocked_nodes and self._has(agent, task)]
        if able:
            return {min(able, key=self._key(task)).id: task.slots}
        if task.single_node or task.slots <= 1:
            return None
        return self._dedicated(task)

    def _has(self, agent: Agent, task: SchedulerTask) -> bool:
        if task.slots == 0:
            return self._zero[agent.id] < agent.max_zero_slot_tasks
        return task.slots <= agent.slots - self._used[agent.id]

    def _key(self, task: SchedulerTask) -> Callable[[Agent], tuple[float, int, str]]:
        number = number_of(task.id)
        return lambda agent: (-self._score(agent, task), (number - number_of(agent.id)) % 2**64, agent.id)

    def _score(self, agent: Agent, task: SchedulerTask) -> float:
        free, most = agent.slots - self._used[agent.id], agent.slots
        if not self._used[agent.id] and not task.slots:
            free, most = agent.max_zero_slot_tasks - self._zero[agent.id], agent.max_zero_slot_tasks
            if not most:
                return 0.0
        return 1 / (1 + free) if self._best else free / most

    def _dedicated(self, task: SchedulerTask) -> dict[str, int] | None:
        idle: dict[int, list[Agent]] = {}
        for agent in sorted(self._agents, key=self._key(task)):
            if agent.id not in task.blocked_nodes and not self._used[agent.id]:
                idle.setdefault(agent.slots, []).append(agent)
        for size in sorted(idle, reverse=True):
            if len(idle[size]) * size >= task.slots and task.slots % size == 0:
                return {agent.id: size for agent in idle[size][: task.slots // size]}
        found: dict[str, int] = {}
        for size in sorted(idle, reverse=True) if self._heterogeneous else ():
            for agent in idle[size]:
                if size <= task.slots - sum(found.values()):
                    found[agent.id] = size
        return found if found and sum(found.values()) == task.slots else None


class Passes:
    """The two passes of `priority.go`."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.allocate: dict[str, dict[str, int]] = {}
        self.release: set[str] = set()
        for zero in (False, True):
            self._run(zero)

    def _priority(self, task: SchedulerTask) -> int:
        return self._snapshot.jobs[task.job].priority

    def _submitted(self, task: SchedulerTask) -> float:
        return self._snapshot.jobs[task.job].submitted

    def _queue(self, tasks: Sequence[SchedulerTask], priority: int) -> list[SchedulerTask]:
        alike = [task for task in tasks if self._priority(task) == priority]
        return sorted(alike, key=lambda task: (self._submitted(task), task.requested, task.id))

    def _run(self, zero: bool) -> None:
        tasks = [task for task in self._snapshot.tasks if (task.slots == 0) is zero]
        running, pending = [task for task in tasks if task.on], [task for task in tasks if not task.on]
        fits = Fits(self._snapshot.pool, self._snapshot.agents)
        for task in self._snapshot.tasks:
            fits.put(task, task.on)
        chosen: list[SchedulerTask] = []
        preempts, backfilling = self._snapshot.pool.preemption, False
        for priority in sorted({self._priority(task) for task in pending}):
            failed = []
            for task in self._queue(pending, priority):
                if (found := fits.fit(task)) is None:
                    failed.append(task)
                    continue
                fits.put(task, found)
                if not chosen and (not backfilling or (preempts and task.preemptible)):
                    self.allocate[task.id] = found
            backfilling = backfilling or bool(failed)
            for task in failed if preempts else ():
                self._make_room(task, fits, running, chosen)
        self.release |= {task.id for task in chosen}

    def _make_room(
        self, task: SchedulerTask, fits: Fits, running: Sequence[SchedulerTask], chosen: list[SchedulerTask]
    ) -> None:
        """From the lowest priority and the newest on, until it fits; else nobody."""
        victims: list[SchedulerTask] = []
        candidates = iter(self._candidates(task, running))
        while (found := fits.fit(task)) is None:
            victim = next((one for one in candidates if one.preemptible and one not in chosen), None)
            if victim is None:
                for one in victims:
                    fits.put(one, one.on)
                return
            fits.put(victim, victim.on, -1)
            victims.append(victim)
        chosen += victims
        fits.put(task, found)

    def _candidates(self, task: SchedulerTask, running: Sequence[SchedulerTask]) -> list[SchedulerTask]:
        found: list[SchedulerTask] = []
        for priority in range(99, self._priority(task) - 1, -1):
            for one in reversed(self._queue(running, priority)):
                if priority == self._priority(task) and self._submitted(task) >= self._submitted(one):
                    break
                found.append(one)
        return found


def shares(snapshot: Snapshot) -> dict[str, int]:
    """What the progressive filling of `fair_share.go` offers each job."""
    wanted: Counter[str] = Counter()
    for task in snapshot.tasks:
        wanted[task.job] += task.slots
    jobs = [snapshot.jobs[name] for name in wanted]
    demand = {job.id: min(wanted[job.id], wanted[job.id] if job.max_slots is None else job.max_slots) for job in jobs}
    offered = dict.fromkeys(demand, 0)
    capacity = sum(agent.slots for agent in snapshot.agents)
    in_order = sorted(jobs, key=lambda job: (demand[job.id], job.submitted))
    while capacity > 0 and offered != demand:
        hungry = [job for job in in_order if offered[job.id] < demand[job.id]]
        weights, at_first = sum(job.weight for job in hungry), capacity
        for job in hungry:
            share = max(1, int(at_first * job.weight / weights))
            offer = min(share, capacity, demand[job.id] - offered[job.id])
            offered[job.id] += offer
            capacity -= offer
    return offered


def held(draw: random.Random, agents: Sequence[Agent], tasks: Sequence[SchedulerTask]) -> list[SchedulerTask]:
    """The same tasks, each running on one agent if that has room."""
    fits = Fits(Pool(), agents)
    found = []
    for task in tasks:
        others = frozenset(agent.id for agent in agents) - {draw.choice(agents).id}
        on = fits.fit(replace(task, single_node=True, blocked_nodes=others))
        if on is not None:
            fits.put(task, on)
            found.append(replace(task, state=TaskState.RUNNING, on=on))
    return found


def fitted(seed: int) -> tuple[Snapshot, SchedulerTask]:
    """A random pool, and one task that waits."""
    draw = random.Random(seed)
    agents = tuple(
        Agent(f"a{number}{draw.randrange(10**6)}", draw.choice([1, 2, 3, 4, 8]), max_zero_slot_tasks=draw.randint(0, 3))
        for number in range(draw.randint(1, 7))
    )
    running = held(
        draw, agents, [SchedulerTask(f"r{n}", "j", draw.choice([0, 0, 1, 2, 4])) for n in range(draw.randint(0, 6))]
    )
    blocked = frozenset({agents[0].id}) if draw.random() < 0.2 else frozenset[str]()
    slots, single = draw.choice([0, 0, 1, 2, 3, 4, 6, 8, 12, 16]), draw.random() < 0.3
    task = SchedulerTask(f"t{seed}", "j", slots, requested=99.0, single_node=single, blocked_nodes=blocked)
    pool = Pool(fitting=draw.choice(list(Fitting)), heterogeneous=draw.random() < 0.5)
    return Snapshot(pool, agents, {"j": Job("j")}, (*running, task)), task


def ranked(seed: int) -> Snapshot:
    """A random pool with jobs of three priorities, whose tasks fit on one agent each."""
    draw = random.Random(seed)
    agents = tuple(
        Agent(f"a{n}", draw.choice([2, 4]), max_zero_slot_tasks=draw.randint(1, 2)) for n in range(draw.randint(1, 4))
    )
    jobs = {f"j{n}": Job(f"j{n}", draw.choice([1, 42, 42, 99]), submitted=float(n)) for n in range(4)}
    tasks = [
        SchedulerTask(
            f"t{n}", draw.choice(sorted(jobs)), draw.choice([0, 1, 1, 2]), requested=float(n),
            preemptible=draw.random() < 0.7, single_node=True,
        )
        for n in range(draw.randint(0, 14))
    ]  # fmt: skip
    begun = [task for task in tasks if draw.random() < 0.6]
    running = held(draw, agents, begun)
    pending = [task for task in tasks if task not in begun]
    pool = Pool(preemption=draw.random() < 0.6, fitting=draw.choice(list(Fitting)))
    return Snapshot(pool, agents, jobs, (*running, *pending))


def shared(seed: int) -> Snapshot:
    """A random pool with jobs of different weights, whose trials have one slot each."""
    draw = random.Random(seed)
    agents = tuple(Agent(f"a{n}", draw.choice([1, 2, 4, 8])) for n in range(draw.randint(1, 5)))
    jobs = {
        f"j{n}": Job(
            f"j{n}", weight=draw.choice([0.5, 1.0, 1.0, 3.0]), max_slots=draw.choice([None, None, 1, 3]),
            submitted=float(n),
        )
        for n in range(draw.randint(1, 6))
    }  # fmt: skip
    tasks = [
        SchedulerTask(f"t{n}", draw.choice(sorted(jobs)), 1, requested=float(n)) for n in range(draw.randint(0, 30))
    ]
    running = held(draw, agents, [task for task in tasks if draw.random() < 0.5])
    kept, by_job = [], Counter[str]()
    for task in running:  # nothing runs beyond what a job may have
        most = jobs[task.job].max_slots
        if most is None or by_job[task.job] < most:
            by_job[task.job] += 1
            kept.append(task)
    names = {task.id for task in kept}
    return Snapshot(
        Pool(Scheduler.FAIR_SHARE), agents, jobs, (*kept, *(task for task in tasks if task.id not in names))
    )


def test_a_task_gets_the_agents_that_determined_gives_it() -> None:
    several = 0
    for seed in range(300):
        snapshot, task = fitted(seed)
        fits = Fits(snapshot.pool, snapshot.agents)
        for one in snapshot.tasks:
            fits.put(one, one.on)
        expected = fits.fit(task)
        if expected is None and not task.single_node and task.slots > 1:
            continue  # "a trial that no one agent has room for": here it may have parts of several
        found = schedule(snapshot).allocate.get(task.id)
        assert (None if found is None else dict(found)) == expected, seed
        several += expected is not None and len(expected) > 1
    assert several > 10


def test_who_starts_and_who_leaves_is_as_the_priority_scheduler_of_determined_says() -> None:
    released = 0
    for seed in range(300):
        snapshot = ranked(seed)
        decision, expected = schedule(snapshot), Passes(snapshot)
        assert {name: dict(on) for name, on in decision.allocate.items()} == expected.allocate, seed
        assert set(decision.release) <= expected.release, seed  # "whose slots are taken": as few as will do
        assert bool(decision.release) == bool(expected.release), seed
        released += bool(expected.release)
    assert released > 20


def test_each_job_gets_the_share_that_determined_offers_it() -> None:
    released = 0
    for seed in range(600):
        snapshot = shared(seed)
        decision, offered = schedule(snapshot), shares(snapshot)
        holds = Counter(task.job for task in snapshot.tasks if task.state is TaskState.RUNNING)
        leave = Counter(task.job for task in snapshot.tasks if task.id in decision.release)
        start = Counter(task.job for task in snapshot.tasks if task.id in decision.allocate)
        assert leave == Counter({job: holds[job] - most for job, most in offered.items() if holds[job] > most}), seed
        free = sum(agent.slots for agent in snapshot.agents) - sum(holds.values())
        short = {job: most - holds[job] for job, most in offered.items() if holds[job] < most}
        assert all(number <= short.get(job, 0) for job, number in start.items()), seed
        assert sum(start.values()) == min(free, sum(short.values())), seed
        released += sum(leave.values())
    assert released > 100

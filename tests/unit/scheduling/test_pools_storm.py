"""Many passes in which everything changes at once: no storm breaks a limit, and nobody starves behind small tasks."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from pool_scenes import over_allocated

from detlab_hub.core.scheduling import Agent, Decision, Job, Pool, Quota, Scheduler, Snapshot, Task, TaskState, schedule

USERS = ("ada", "bob", "eve")
WINDOW, MOST = 30, 2
"""I10: in so many passes a task is told to leave so often at most; then the master says that it is not preemptible."""


class Storm:
    """A pool whose quotas, jobs and tasks change at random with every pass; who is told to leave takes some passes."""

    def __init__(self, scheduler: Scheduler, seed: int) -> None:
        self.draw = random.Random(seed)
        self.pool = Pool(scheduler, preemption=True, heterogeneous=self.draw.random() < 0.5)
        self.agents = tuple(Agent(f"a{n}", 4, millicpus=4000) for n in range(3))
        self.jobs: dict[str, Job] = {}
        self.tasks: dict[str, Task] = {}
        self.quotas: tuple[Quota, ...] = ()
        self.told: dict[str, list[int]] = {}
        self.leaves: dict[str, int] = {}
        self.round = 0

    def arrive(self) -> None:
        """Another job with some tasks, and other quotas."""
        if self.draw.random() < 0.5:
            name = f"j{self.round}"
            weight, priority = self.draw.choice([1.0, 3.0]), self.draw.choice([1, 42, 99])
            self.jobs[name] = Job(name, priority, weight, submitted=float(self.round))
            user = self.draw.choice(USERS)
            for number in range(self.draw.randint(1, 4)):
                slots, cpus = self.draw.choice([1, 1, 2, 4, 6]), self.draw.choice([0, 0, 1500])
                task = Task(f"{name}.{number}", name, slots, requested=float(self.round), user=user, millicpus=cpus)
                self.tasks[task.id] = task
        self.quotas = tuple(Quota(self.draw.randint(0, 8), user=user) for user in USERS if self.draw.random() < 0.5)

    def step(self) -> None:
        """One pass, judged, and carried out."""
        self.round += 1
        for task in self.tasks.values():
            often = sum(self.round - at <= WINDOW for at in self.told.get(task.id, ()))
            self.tasks[task.id] = replace(task, preemptible=often < MOST)
        snapshot = Snapshot(self.pool, self.agents, self.jobs, tuple(self.tasks.values()), self.quotas)
        decision = schedule(snapshot)
        self.judge(snapshot, decision)
        for name, on in decision.allocate.items():
            self.tasks[name] = replace(self.tasks[name], state=TaskState.RUNNING, on=dict(on))
        for name in decision.release:
            self.told.setdefault(name, []).append(self.round)
            self.leaves[name] = self.round + self.draw.randint(0, 3)
            self.tasks[name] = replace(self.tasks[name], leaving=True)
        for name in [name for name, at in self.leaves.items() if at <= self.round]:
            del self.leaves[name]
            self.tasks[name] = replace(self.tasks[name], state=TaskState.PENDING, on={}, leaving=False)
        for task in list(self.tasks.values()):
            if task.on and not task.leaving and self.draw.random() < 0.15:
                del self.tasks[task.id]

    def judge(self, snapshot: Snapshot, decision: Decision) -> None:
        """What must hold of every pass."""
        assert not over_allocated(snapshot, decision)
        held = Counter[str]()
        for task in snapshot.tasks:
            held[task.user] += sum(task.on.values())
        for name in decision.allocate:
            held[self.tasks[name].user] += self.tasks[name].slots
        starts = {self.tasks[name].user for name in decision.allocate}
        for quota in self.quotas:
            assert quota.user not in starts or held[quota.user] <= quota.slots
        for name in decision.release:
            task = self.tasks[name]
            assert task.preemptible, "I10"
            assert task.on
            assert not task.leaving, "it was told already"


@pytest.mark.parametrize("scheduler", list(Scheduler))
def test_a_preemption_storm_with_random_quotas_breaks_no_limit_and_ends(scheduler: Scheduler) -> None:
    told = 0
    for seed in range(6):
        storm = Storm(scheduler, seed)
        for _ in range(60):
            storm.arrive()
            storm.step()
        told += sum(len(times) for times in storm.told.values())
        for times in storm.told.values():
            assert all(sum(at <= later < at + WINDOW for later in times) <= MOST for at in times), "I10"
        storm.quotas = ()
        for _ in range(400):
            if not storm.tasks:
                break
            storm.step()
        assert not storm.tasks, f"they wait for ever: {storm.tasks}"
    assert (told > 10) is (scheduler is not Scheduler.ROUND_ROBIN), "it was a storm"


@pytest.mark.parametrize("scheduler", list(Scheduler))
@pytest.mark.parametrize("preemption", [False, True])
def test_a_large_task_does_not_starve_behind_a_stream_of_small_ones(scheduler: Scheduler, preemption: bool) -> None:
    """Small tasks come faster than they end; the large one is half of the pool, its job's fair share."""
    patience = 10
    agents = (Agent("a", 4), Agent("b", 4))
    jobs = {"large": Job("large", submitted=1.0), "small": Job("small", submitted=0.0)}
    tasks = {"large": Task("large", "large", 4, requested=1.0)}
    ends: dict[str, int] = {}
    for number in range(4 * patience):
        tasks |= {f"s{number}.{n}": Task(f"s{number}.{n}", "small", 1, requested=float(number)) for n in range(4)}
        waits = tuple(replace(one, overdue=not one.on and number - one.requested >= patience) for one in tasks.values())
        decision = schedule(Snapshot(Pool(scheduler, preemption), agents, jobs, waits))
        if "large" in decision.allocate:
            return
        for name, on in decision.allocate.items():
            tasks[name] = replace(tasks[name], state=TaskState.RUNNING, on=dict(on))
            ends[name] = number + 3
        for name in decision.release:
            tasks[name] = replace(tasks[name], state=TaskState.PENDING, on={})
            del ends[name]
        for name in [name for name, at in ends.items() if at <= number]:
            del tasks[name], ends[name]
    pytest.fail("the large task waits for ever")

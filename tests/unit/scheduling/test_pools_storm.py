"""Many passes in which everything changes at once: no storm breaks a limit, and nobody starves behind small tasks."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from pool_snapshots import over_allocated

from detlab_hub.core.scheduling import (
    Agent,
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

USERS = ("ada", "bob", "eve")
GROUPS = {"ada": frozenset({"vision"}), "bob": frozenset({"vision", "speech"}), "eve": frozenset[str]()}
WINDOW, MOST = 30, 2
"""I10: in so many passes a task is told to leave so often at most; then the master says that it is not preemptible."""


class Storm:
    """A pool whose quotas of users and groups, jobs with their limits and tasks change at random each pass; who is
    told to leave takes some passes."""

    def __init__(self, scheduler: Scheduler, seed: int) -> None:
        self.draw = random.Random(seed)
        self.pool = Pool(scheduler, preemption=True, heterogeneous=self.draw.random() < 0.5)
        self.agents = tuple(Agent(f"a{n}", 4, millicpus=4000) for n in range(3))
        self.jobs: dict[str, Job] = {}
        self.tasks: dict[str, SchedulerTask] = {}
        self.quotas: tuple[Quota, ...] = ()
        self.told: dict[str, list[int]] = {}
        self.leaves: dict[str, int] = {}
        self.bound: Counter[object] = Counter()
        """How often somebody got all that a limit leaves: of a group (True), a user (False), a job"""
        self.round = 0

    def arrive(self) -> None:
        """Another job with some tasks, other quotas, and another limit for a job."""
        if self.draw.random() < 0.5:
            name = f"j{self.round}"
            weight, priority = self.draw.choice([1.0, 3.0]), self.draw.choice([1, 42, 99])
            self.jobs[name] = Job(name, priority, weight, self.limit(), submitted=float(self.round))
            user = self.draw.choice(USERS)
            for number in range(self.draw.randint(1, 4)):
                slots, cpus = self.draw.choice([1, 1, 2, 4, 6]), self.draw.choice([0, 0, 1500])
                task = SchedulerTask(
                    f"{name}.{number}", name, slots, requested=float(self.round), user=user, groups=GROUPS[user],
                    millicpus=cpus,
                )  # fmt: skip
                self.tasks[task.id] = task
        if self.jobs and self.draw.random() < 0.3:
            job = self.draw.choice(sorted(self.jobs))
            self.jobs[job] = replace(self.jobs[job], max_slots=self.limit())
        of_users = [Quota(self.draw.randint(0, 8), user=user) for user in USERS if self.draw.random() < 0.5]
        of_groups = [
            Quota(self.draw.randint(0, 8), group=group) for group in ("speech", "vision") if self.draw.random() < 0.4
        ]
        self.quotas = (*of_users, *of_groups)

    def limit(self) -> int | None:
        """A job's `max_slots`."""
        return self.draw.choice([None, None, 1, 4, 6])

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

    def judge(self, snapshot: Snapshot, decision: PlacementDecision) -> None:
        """What must hold of every pass."""
        assert not over_allocated(snapshot, decision)
        held = Counter[str]()
        for task in snapshot.tasks:
            for name in (task.user, task.job, *task.groups):
                held[name] += sum(task.on.values())
        starts = set[str]()
        for one in decision.allocate:
            task = self.tasks[one]
            for name in (task.user, task.job, *task.groups):
                held[name] += task.slots
                starts.add(name)
        for quota in self.quotas:
            bound = quota.user or quota.group
            if bound in starts:
                assert held[bound] <= quota.slots
                self.bound[quota.group is not None] += held[bound] == quota.slots
        for job in self.jobs.values():
            if job.id in starts and job.max_slots is not None:
                assert held[job.id] <= job.max_slots
                self.bound["max_slots"] += held[job.id] == job.max_slots
        for name in decision.release:
            task = self.tasks[name]
            assert task.preemptible, "I10"
            assert task.on
            assert not task.leaving, "it was told already"


@pytest.mark.parametrize("scheduler", list(Scheduler))
def test_a_preemption_storm_with_random_quotas_breaks_no_limit_and_ends(scheduler: Scheduler) -> None:
    told, bound = 0, Counter[object]()
    for seed in range(6):
        storm = Storm(scheduler, seed)
        for _ in range(60):
            storm.arrive()
            storm.step()
        told += sum(len(times) for times in storm.told.values())
        for times in storm.told.values():
            assert all(sum(at <= later < at + WINDOW for later in times) <= MOST for at in times), "I10"
        bound += storm.bound
        storm.quotas = ()
        storm.jobs = {name: replace(job, max_slots=None) for name, job in storm.jobs.items()}
        for _ in range(400):
            if not storm.tasks:
                break
            storm.step()
        assert not storm.tasks, f"they wait for ever: {storm.tasks}"
    assert (told > 10) is (scheduler is not Scheduler.ROUND_ROBIN), "it was a storm"
    assert all(bound[kind] > 10 for kind in (True, False, "max_slots")), f"limits bound somebody: {bound}"


PATIENCE = 10


class Stream:
    """A pool that four small tasks a pass keep full: they come faster than they end. Then a large one comes."""

    def __init__(
        self, pool: Pool, agents: tuple[Agent, ...], large: SchedulerTask, small: SchedulerTask, *, small_first: bool
    ) -> None:
        self.pool, self.agents, self.small = pool, agents, small
        submitted = 0.0 if small_first else 2.0
        self.jobs = {"large": Job("large", submitted=1.0), "small": Job("small", submitted=submitted)}
        self.tasks: dict[str, SchedulerTask] = {}
        self.ends: dict[str, int] = {}
        self.number = 0
        while self.number < 4:
            self.step()
        self.tasks["large"] = replace(large, id="large", job="large", requested=4.0)
        alone = Snapshot(pool, agents, self.jobs, (self.tasks["large"],))
        assert schedule(alone).allocate, "it could start in an empty pool"

    def step(self) -> PlacementDecision:
        """One pass, carried out: of the small tasks of a pass each runs a pass longer than the one before it."""
        number, tasks = self.number, self.tasks
        for one in range(4):
            name = f"s{number}.{one}"
            tasks[name] = replace(self.small, id=name, job="small", requested=float(number))
        waits = [replace(one, aged=not one.on and number - one.requested >= PATIENCE) for one in tasks.values()]
        decision = schedule(Snapshot(self.pool, self.agents, self.jobs, tuple(waits)))
        for place, (name, on) in enumerate(decision.allocate.items()):
            tasks[name] = replace(tasks[name], state=TaskState.RUNNING, on=dict(on))
            self.ends[name] = number + 1 + place % 4
        for name in decision.release:
            tasks[name] = replace(tasks[name], state=TaskState.PENDING, on={})
            del self.ends[name]
        for name in [name for name, at in self.ends.items() if at <= number]:
            del tasks[name], self.ends[name]
        self.number += 1
        return decision

    def starts_in(self, passes: int) -> bool:
        """Whether the large task starts within so many; not in the first, as the pool is full."""
        assert "large" not in self.step().allocate, "the pool was full"
        return any("large" in self.step().allocate for _ in range(passes))


@pytest.mark.parametrize("scheduler", list(Scheduler))
@pytest.mark.parametrize("preemption", [False, True])
def test_a_large_task_does_not_starve_behind_a_stream_of_small_ones(scheduler: Scheduler, preemption: bool) -> None:
    """The large one is half of the pool, its job's fair share."""
    agents = (Agent("a", 4), Agent("b", 4))
    stream = Stream(
        Pool(scheduler, preemption), agents, SchedulerTask("", "", 4), SchedulerTask("", "", 1), small_first=False
    )
    assert stream.starts_in(4 * PATIENCE)


@pytest.mark.parametrize("scheduler", [Scheduler.FAIR_SHARE, Scheduler.ROUND_ROBIN])
def test_a_stream_of_a_job_that_was_there_first_leaves_others_their_share(scheduler: Scheduler) -> None:
    agents = (Agent("a", 4), Agent("b", 4))
    stream = Stream(Pool(scheduler), agents, SchedulerTask("", "", 4), SchedulerTask("", "", 1), small_first=True)
    assert stream.starts_in(4 * PATIENCE)


def test_by_priority_a_stream_of_a_job_that_was_there_first_stays_ahead_until_it_is_moved() -> None:
    """The queue's order is strict, as Determined's: patience is for those behind. `det job update` changes it."""
    agents = (Agent("a", 4), Agent("b", 4))
    stream = Stream(
        Pool(Scheduler.PRIORITY), agents, SchedulerTask("", "", 4), SchedulerTask("", "", 1), small_first=True
    )
    assert not stream.starts_in(4 * PATIENCE)
    stream.jobs["large"] = replace(stream.jobs["large"], position=-1.0)
    assert any("large" in stream.step().allocate for _ in range(4 * PATIENCE))


@pytest.mark.parametrize("scheduler", list(Scheduler))
def test_a_task_does_not_starve_for_cpus_behind_a_stream_of_commands(scheduler: Scheduler) -> None:
    """Commands without slots start first, but what they ask for is what others wait for, too."""
    agents = (Agent("a", 16, millicpus=8000),)
    large, small = SchedulerTask("", "", 1, millicpus=5000), SchedulerTask("", "", 0, millicpus=1000)
    stream = Stream(Pool(scheduler), agents, large, small, small_first=False)
    assert stream.starts_in(4 * PATIENCE)


@pytest.mark.parametrize("scheduler", [Scheduler.FAIR_SHARE, Scheduler.ROUND_ROBIN])
def test_commands_wait_only_for_who_came_before_them_and_lacks_nothing_else(scheduler: Scheduler) -> None:
    agents = (Agent("a", 4, millicpus=8000), Agent("b", 2, millicpus=2000))
    jobs = {name: Job(name) for name in ("one", "two")}
    runs = SchedulerTask("runs", "one", 2, TaskState.RUNNING, on={"a": 2}, millicpus=4000)
    waits = SchedulerTask("waits", "two", 1, requested=5.0, millicpus=6000, aged=True)
    before, after = (
        SchedulerTask(name, "one", 0, requested=at, millicpus=3000) for name, at in (("before", 4.0), ("after", 6))
    )
    small, free = replace(after, id="small", millicpus=2000), replace(after, id="free", millicpus=0)

    def starts(*tasks: SchedulerTask) -> set[str]:
        return set(schedule(Snapshot(Pool(scheduler), agents, jobs, (runs, *tasks))).allocate)

    assert starts(waits, before) == {"before"}
    assert starts(waits, after) == set()
    assert starts(waits, small, free) == {"small", "free"}, "on the agent that it cannot have, and for nothing"
    assert starts(replace(waits, aged=False), after) == {"after"}
    assert starts(replace(waits, slots=4, single_node=True), after, small) == {"small"}, (
        "its place is kept, CPUs and all"
    )

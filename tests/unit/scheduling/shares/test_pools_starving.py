"""No task waits without end: each scheduler starts one that has waited for too long by a time that is known."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import pytest
from pool_snapshots import over_allocated

from detlab_hub.core.scheduling import (
    Agent,
    Fitting,
    Job,
    PlacementDecision,
    Pool,
    Quota,
    ReasonCode,
    Scheduler,
    SchedulerTask,
    Snapshot,
    TaskState,
    schedule,
)

PATIENCE = 10
"""Passes after which a task has waited for too long, and for which it then keeps its slots."""
LONGEST = 6
"""Passes that a task of the stream runs at most."""
FAIR = [Scheduler.FAIR_SHARE, Scheduler.ROUND_ROBIN]


@dataclass(frozen=True)
class Kind:
    """What comes again and again, and the large task that it must not keep out."""

    agents: tuple[Agent, ...]
    small: tuple[SchedulerTask, ...]
    large: SchedulerTask


KINDS = {
    "slots": Kind((Agent("a", 4), Agent("b", 4)), (SchedulerTask("", ""),), SchedulerTask("", "", 4, single_node=True)),
    "whole agents": Kind((Agent("a", 4), Agent("b", 4)), (SchedulerTask("", ""),), SchedulerTask("", "", 8)),
    "parts of agents": Kind(
        tuple(Agent(f"a{n}", 4) for n in range(3)),
        (SchedulerTask("", ""), SchedulerTask("", "", 2)),
        SchedulerTask("", "", 6),
    ),
    "cpus": Kind(
        (Agent("a", 8, millicpus=8000), Agent("b", 8, millicpus=8000)),
        (SchedulerTask("", "", millicpus=1000), SchedulerTask("", "", millicpus=2500)),
        SchedulerTask("", "", millicpus=7000),
    ),
    "memory and slots": Kind(
        (Agent("a", 4, host_memory=64 << 30), Agent("b", 4, host_memory=64 << 30)),
        (SchedulerTask("", "", memory=10 << 30), SchedulerTask("", "", 2, memory=30 << 30)),
        SchedulerTask("", "", 2, memory=50 << 30, single_node=True),
    ),
    "cpus of a gang": Kind(
        (Agent("a", 4, millicpus=8000), Agent("b", 4, millicpus=8000)),
        (SchedulerTask("", "", millicpus=2000), SchedulerTask("", "", 0, millicpus=1000)),
        SchedulerTask("", "", 8, millicpus=6000),
    ),
}


class Crowd:
    """A pool into which more small tasks come with each pass than end; each is a job of its own.

    Attributes:
        tasks: Those that wait or run, by name.
        passes: So many were made.
        told: Who was told to give slots back, one after the other.
    """

    def __init__(self, pool: Pool, kind: Kind, seed: int, *, takes_turns: int = 0) -> None:
        self.draw = random.Random(seed)
        self.pool, self.kind = pool, kind
        self.first = [f"old{n}" for n in range(takes_turns)]
        """Jobs that were there before all others, and always have a next task."""
        self.jobs = {name: Job(name, submitted=-1.0) for name in self.first}
        self.tasks: dict[str, SchedulerTask] = {}
        self.ends: dict[str, int] = {}
        self.passes = 0
        self.told: list[str] = []

    def come(self) -> None:
        """Some small tasks."""
        for number in range(self.draw.randint(1, 3)):
            self.add(f"s{self.passes}.{number}", self.draw.choice(self.kind.small), f"s{self.passes}.{number}")
        for name in self.first:
            if not any(task.job == name and not task.on for task in self.tasks.values()):
                self.add(f"{name}.{self.passes}", self.kind.small[0], name)

    def add(self, name: str, like: SchedulerTask, job: str) -> None:
        """One more task."""
        self.jobs.setdefault(job, Job(job, submitted=float(self.passes)))
        self.tasks[name] = replace(like, id=name, job=job, requested=float(self.passes))

    def step(self) -> PlacementDecision:
        """One pass, carried out: those that are told to leave are gone before the next one, and wait again."""
        now, tasks = self.passes, self.tasks
        for name in [name for name, end in self.ends.items() if end <= now]:
            del tasks[name], self.ends[name]
        for name, task in tasks.items():
            if task.began is None:
                late = now - task.requested >= PATIENCE
            else:
                late = task.began - task.requested >= PATIENCE > now - task.began
            tasks[name] = replace(task, aged=late)
        snapshot = Snapshot(self.pool, self.kind.agents, self.jobs, tuple(tasks.values()))
        decision = schedule(snapshot)
        assert not over_allocated(snapshot, decision)
        for name, on in decision.allocate.items():
            tasks[name] = replace(tasks[name], state=TaskState.RUNNING, on=dict(on), began=float(now))
            self.ends[name] = now + self.draw.randint(1, LONGEST)
        for name in decision.release:
            tasks[name] = replace(tasks[name], state=TaskState.PENDING, on={}, began=None, requested=float(now))
            del self.ends[name]
        self.told += decision.release
        self.passes += 1
        return decision

    @property
    def its_turn(self) -> bool:
        """Whether the large task has waited for too long, and no other one has for longer."""
        large = self.tasks["large"]
        others = (task for task in self.tasks.values() if task.aged and not task.on and task is not large)
        return large.aged and all(task.requested > large.requested for task in others if task.slots)

    def waits(self) -> int:
        """How many passes the large task waits from that on, at most twice as many as the longest run and one."""
        waited = 0
        for _ in range(30 * PATIENCE):
            self.come()
            if "large" in self.step().allocate:
                return waited
            waited += self.its_turn
            if waited > 2 * LONGEST:
                return waited
        raise AssertionError("it was never its turn")


def crowd(pool: Pool, kind: Kind, seed: int, *, takes_turns: int = 0) -> Crowd:
    """One that is full, and the large task has just come to it."""
    found = Crowd(pool, kind, seed, takes_turns=takes_turns)
    for _ in range(2 * LONGEST):
        found.come()
        found.step()
    found.add("large", kind.large, "large")
    return found


@pytest.mark.parametrize("fitting", list(Fitting))
@pytest.mark.parametrize("scheduler", FAIR)
@pytest.mark.parametrize("name", sorted(KINDS))
def test_who_has_waited_too_long_starts_when_all_that_ran_then_has_ended(
    name: str, scheduler: Scheduler, fitting: Fitting
) -> None:
    """It waited for ever: offers never reached what it needs, and its agents were never free."""
    waited = []
    for seed in range(10):
        for turns in (0, 6):
            one = crowd(Pool(scheduler, fitting=fitting), KINDS[name], seed, takes_turns=turns)
            waited.append(one.waits())
            assert waited[-1] <= LONGEST, (seed, turns)
            assert scheduler is Scheduler.FAIR_SHARE or not one.told
    assert max(waited) > 0, "it was not given to it at once"


@pytest.mark.parametrize("preemption", [False, True])
@pytest.mark.parametrize("name", sorted(KINDS))
def test_by_priority_it_does_behind_all_of_its_priority_that_came_before_it(name: str, preemption: bool) -> None:
    for seed in range(10):
        for fitting in Fitting:
            one = crowd(Pool(Scheduler.PRIORITY, preemption, fitting), KINDS[name], seed)
            assert one.waits() <= LONGEST, seed


def test_what_had_to_wait_so_long_keeps_its_slots_for_as_long() -> None:
    """The first pass after its start took them back, for those within their shares that it had waited behind."""
    for seed in range(6):
        one = crowd(Pool(Scheduler.FAIR_SHARE), KINDS["slots"], seed, takes_turns=6)
        one.waits()
        one.ends["large"] = one.passes + 10 * PATIENCE
        began = one.passes - 1
        while "large" not in one.told and one.passes < began + 5 * PATIENCE:
            one.come()
            one.step()
        assert one.passes - 1 - began >= PATIENCE, "it had its slots for that long"
        assert "large" in one.told, "and no longer, as its job's share is less"


def held(pool: Pool, agents: tuple[Agent, ...], tasks: list[SchedulerTask], **more: Any) -> PlacementDecision:
    """One pass; jobs were submitted in the order of their names."""
    jobs = {name: Job(name, submitted=float(place)) for place, name in enumerate(sorted({task.job for task in tasks}))}
    return schedule(Snapshot(pool, agents, jobs, tuple(tasks), **more))


@pytest.mark.parametrize("scheduler", FAIR)
def test_a_job_with_many_tasks_that_have_waited_too_long_gets_its_share_and_no_more(scheduler: Scheduler) -> None:
    tasks = [SchedulerTask(f"x{n}", "x", requested=float(n), aged=True) for n in range(40)]
    tasks += [SchedulerTask(f"y{n}", "y", requested=50.0 + n) for n in range(40)]
    decision = held(Pool(scheduler), (Agent("a", 4), Agent("b", 4)), tasks)
    assert sorted(decision.allocate) == [f"{job}{n}" for job in "xy" for n in range(4)]


@pytest.mark.parametrize("scheduler", FAIR)
def test_no_place_is_kept_for_who_is_at_a_limit_of_their_own(scheduler: Scheduler) -> None:
    tasks = [
        SchedulerTask("r", "x", 2, TaskState.RUNNING, on={"a": 2}, user="ada", preemptible=False),
        SchedulerTask("large", "y", 4, requested=1.0, aged=True, user="ada"),
        SchedulerTask("small", "z", 1, requested=2.0, user="bob"),
    ]
    quota = Quota(5, user="ada")
    assert set(held(Pool(scheduler), (Agent("a", 4),), tasks, quotas=(quota,)).allocate) == {"small"}
    assert held(Pool(scheduler), (Agent("a", 4),), tasks).waiting["small"].code is ReasonCode.BEHIND


@pytest.mark.parametrize("scheduler", FAIR)
def test_a_place_is_kept_on_agents_that_become_free_and_others_start_elsewhere(scheduler: Scheduler) -> None:
    """On the agent with the notebook one slot is missing, on the other two; but nobody knows when the notebook ends."""
    on_a = SchedulerTask("notebook", "w", 1, TaskState.RUNNING, on={"a": 1}, preemptible=False, began=1.0)
    on_b = SchedulerTask("kernel", "x", 2, TaskState.RUNNING, on={"b": 2}, preemptible=False, max_time=900.0, began=2.0)
    large = SchedulerTask("large", "y", 4, requested=1.0, aged=True, single_node=True)
    small = [SchedulerTask(f"s{n}", f"z{n}", 1, requested=2.0) for n in range(6)]
    agents = Agent("a", 4), Agent("b", 4)
    decision = held(Pool(scheduler), agents, [on_a, on_b, large, *small])
    assert [dict(on) for on in decision.allocate.values()] == [{"a": 1}] * 3
    bounded = replace(on_a, max_time=60.0)
    decision = held(Pool(scheduler), agents, [bounded, on_b, large, *small])
    assert [dict(on) for on in decision.allocate.values()] == [{"b": 1}] * 2, "it began first, and ends"


@pytest.mark.parametrize("scheduler", FAIR)
def test_what_an_agent_has_beyond_the_place_that_is_kept_is_for_others(scheduler: Scheduler) -> None:
    runs = SchedulerTask("r", "w", 5, TaskState.RUNNING, on={"a": 5}, preemptible=False, millicpus=2000)
    large = SchedulerTask("large", "y", 2, requested=1.0, aged=True, millicpus=7000)
    small = [SchedulerTask(f"s{n}", f"z{n}", 1, requested=2.0, millicpus=0 if n else 500) for n in range(3)]
    decision = held(Pool(scheduler), (Agent("a", 8, millicpus=8000),), [runs, large, *small])
    assert set(decision.allocate) == {"s1"}, "two of three slots are kept, and all CPUs"
    assert decision.waiting["large"].code is ReasonCode.NO_FREE_RESOURCES

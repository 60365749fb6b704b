"""Jobs of different weights: none of them waits without end, and over time each holds its weight's share.

Time is counted in passes. Of each job there are always tasks that wait, so that somebody would take whatever a job of
small weight waits for; and short-lived jobs of great weight come in between.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pool_snapshots import over_allocated, placed, pool_of, reasons

from detlab_hub.core.scheduling import (
    Agent,
    Fitting,
    Job,
    PlacementDecision,
    Pool,
    Scheduler,
    SchedulerTask,
    Snapshot,
    TaskState,
    schedule,
)

PATIENCE = 10
"""Passes after which a task has waited for too long, and for which it then keeps its slots."""
LONGEST = 6
"""Passes that a task runs at most."""
POOLS = {
    "priority": Pool(Scheduler.PRIORITY),
    "priority with preemption": Pool(Scheduler.PRIORITY, preemption=True),
    "fair share": Pool(Scheduler.FAIR_SHARE),
    "round robin": Pool(Scheduler.ROUND_ROBIN),
}
AGENTS = (Agent("a", 4), Agent("b", 4))
SLOTS = 8


@dataclass(frozen=True)
class Kind:
    """A job, and the tasks of it of which so many wait at any time."""

    weight: float
    slots: int = 1
    max_slots: int | None = None
    waiting: int = 2


@dataclass(frozen=True)
class Start:
    """A task has started: in which pass, how long it had waited, how many tasks waited when it came, with itself."""

    job: str
    at: int
    waited: int
    line: int


class Rivals:
    """A pool, and the jobs that share it.

    Attributes:
        starts: In their order.
        tasks: Those that wait or run, by name.
        line: How many waited when each of them came, itself included.
        used: Slots that each job held, summed over all passes.
        passes: So many were made.
    """

    def __init__(
        self, pool: Pool, kinds: Mapping[str, Kind], seed: int, *, visitors: float = 0.0, one_by_one: bool = False
    ) -> None:
        self.pool, self.kinds, self.visitors, self.one_by_one = pool, kinds, visitors, one_by_one
        self.draw = random.Random(seed)
        self.jobs = {
            name: Job(name, weight=kind.weight, max_slots=kind.max_slots, submitted=float(number))
            for number, (name, kind) in enumerate(kinds.items())
        }
        self.tasks: dict[str, SchedulerTask] = {}
        self.ends: dict[str, int] = {}
        self.line: dict[str, int] = {}
        self.starts: list[Start] = []
        self.used = Counter[str]()
        self.number = self.passes = 0

    def waiting(self, job: str | None = None) -> list[SchedulerTask]:
        """The tasks that wait, of one job or of all."""
        return [task for task in self.tasks.values() if not task.on and job in {None, task.job}]

    def add(self, job: str, slots: int) -> None:
        """One more task."""
        self.number += 1
        name, at = f"{job}.{self.number}", float(self.passes)
        one = slots <= AGENTS[0].slots
        self.tasks[name] = SchedulerTask(name, job, slots, requested=float(self.number), came=at, single_node=one)
        self.line[name] = len(self.waiting())

    def come(self) -> None:
        """Of each job as many as are missing, and now and then a job of one task that weighs more than all others."""
        for name, kind in self.kinds.items():
            for _ in range(kind.waiting - len(self.waiting(name))):
                self.add(name, kind.slots)
        if self.draw.random() < self.visitors:
            name = f"visitor{self.passes}"
            self.jobs[name] = Job(name, weight=500.0, submitted=100.0 + self.passes)
            self.add(name, 1)

    def end(self) -> None:
        """Those end whose time is up, or only the first of them."""
        over = sorted((end, name) for name, end in self.ends.items() if end <= self.passes)
        for _, name in over[: 1 if self.one_by_one else None]:
            del self.tasks[name], self.ends[name]

    def late(self, task: SchedulerTask) -> bool:
        """Whether it has waited for too long; of one that runs, whether it had, and may keep its slots for now."""
        began = self.passes if task.began is None else task.began
        return began - task.since >= PATIENCE and (task.began is None or self.passes - began < PATIENCE)

    def step(self) -> None:
        """One pass, carried out: those that are told to leave are gone before the next one, and wait again."""
        now, tasks = self.passes, self.tasks
        self.end()
        self.come()
        for name, task in tasks.items():
            tasks[name] = replace(task, aged=self.late(task))
        snapshot = Snapshot(self.pool, AGENTS, self.jobs, tuple(tasks.values()))
        decision = schedule(snapshot)
        assert not over_allocated(snapshot, decision)
        for name, on in decision.allocate.items():
            task = tasks[name] = replace(tasks[name], state=TaskState.RUNNING, on=dict(on), began=float(now))
            self.starts.append(Start(task.job, now, now - int(task.since), self.line[name]))
            self.ends[name] = now + self.draw.randint(1, LONGEST)
        for task in tasks.values():
            self.used[task.job] += sum(task.on.values())
        for name in decision.release:
            tasks[name] = replace(tasks[name], state=TaskState.PENDING, on={}, began=None, came=float(now))
            self.line[name] = len(self.waiting())
            for behind in self.waiting(tasks[name].job):
                self.line[behind.id] += behind.id != name  # it goes before those of its job
            del self.ends[name]
        self.passes += 1

    def run(self, passes: int) -> None:
        """So many passes."""
        for _ in range(passes):
            self.step()


def bound(line: int) -> int:
    """Passes in which a task starts that came as the last of so many: when it has waited for as long as patience lasts
    each of them, one after the other, waits until tasks of its own job have ended, and then until all that runs has.
    Of those who are there first nobody has to wait for the former.
    """
    return PATIENCE + (2 * line - 1) * LONGEST


KINDS = st.lists(
    st.builds(
        Kind,
        weight=st.sampled_from([0.01, 0.5, 1.0, 3.0, 100.0]),
        slots=st.sampled_from([1, 1, 2, 3, 4, 8]),
        waiting=st.integers(1, 2),
    ),
    min_size=2,
    max_size=3,
).filter(lambda kinds: len({kind.weight for kind in kinds}) > 1)
"""By priority, jobs that all weigh the same stay strictly in the order of the queue."""
LARGE_AND_LIGHT = [Kind(2.0), Kind(20.0), Kind(0.01, slots=4)]


@pytest.mark.parametrize("name", sorted(POOLS))
@settings(max_examples=6, deadline=None)
@given(kinds=KINDS, limited=st.booleans(), fitting=st.sampled_from(Fitting), seed=st.integers(0, 99))
@example(kinds=LARGE_AND_LIGHT, limited=False, fitting=Fitting.BEST, seed=1)
@example(kinds=LARGE_AND_LIGHT, limited=False, fitting=Fitting.WORST, seed=1)
@example(kinds=LARGE_AND_LIGHT[::-1], limited=True, fitting=Fitting.WORST, seed=2)
@example(kinds=[Kind(1.0), Kind(5.0, 2), Kind(0.1, 8)], limited=False, fitting=Fitting.BEST, seed=3)
def test_each_task_of_each_job_starts_within_its_bound(
    name: str, kinds: Sequence[Kind], limited: bool, fitting: Fitting, seed: int
) -> None:
    """Seen by priority: a large task waited for ever where weights differ, with preemption behind those that it might
    have taken slots from if they were alike, without behind jobs ahead of it that held nothing again and again.
    """
    if limited:  # as much as one task needs, of the last job
        kinds = [*kinds[:-1], replace(kinds[-1], max_slots=kinds[-1].slots)]
    named = {f"j{number}": kind for number, kind in enumerate(kinds)}
    rivals = Rivals(replace(POOLS[name], fitting=fitting), named, seed, visitors=0.1)
    rivals.run(120)
    late = [start for start in rivals.starts if start.waited > bound(start.line)]
    assert not late
    waits = {task.id: rivals.passes - task.since for task in rivals.waiting()}
    assert all(waited <= bound(rivals.line[name]) for name, waited in waits.items()), waits
    assert {start.job for start in rivals.starts} >= named.keys()


@pytest.mark.parametrize("slots", [1, 4, 8])
@pytest.mark.parametrize("name", sorted(POOLS))
def test_the_lightest_job_gets_on_beside_heavy_ones(name: str, slots: int) -> None:
    """From one start to the next, patience and two longest runs: one until it holds nothing, one for what runs then.

    Of its weight it would have less than a thousandth of a slot.
    """
    for seed, fitting in enumerate(Fitting):
        kinds = {"heavy": Kind(100.0), "other": Kind(90.0), "light": Kind(0.01, slots)}
        rivals = Rivals(replace(POOLS[name], fitting=fitting), kinds, seed)
        rivals.run(80)
        starts = [-1, *(start.at for start in rivals.starts if start.job == "light"), rivals.passes]
        assert max(later - at for at, later in pairwise(starts)) <= PATIENCE + 2 * LONGEST, seed


def parts(kinds: Mapping[str, Kind]) -> dict[str, float]:
    """The slots of each job by its weight; what one may not have is the others'."""
    found: dict[str, float] = {}
    while len(found) < len(kinds):
        left = SLOTS - sum(found.values())
        rest = {name: kind for name, kind in kinds.items() if name not in found}
        total = sum(kind.weight for kind in rest.values())
        share = {name: left * kind.weight / total for name, kind in rest.items()}
        full = {name: most for name, kind in rest.items() if (most := kind.max_slots or SLOTS) < share[name]}
        found |= full or share
    return found


def held(pool: Pool, kinds: Mapping[str, Kind], *, one_by_one: bool = False) -> dict[str, float]:
    """The slots of each job in the mean of many passes, when there have been some."""
    rivals = Rivals(pool, kinds, 7, one_by_one=one_by_one)
    rivals.run(20)
    before = rivals.used.copy()
    rivals.run(50)
    return {name: (rivals.used[name] - before[name]) / 50 for name in kinds}


def busy(*kinds: Kind) -> dict[str, Kind]:
    """Jobs that could soon fill the pool alone."""
    return {f"j{number}": replace(kind, waiting=4) for number, kind in enumerate(kinds)}


SHARED = {
    "1:3": busy(Kind(1.0), Kind(3.0)),
    "3:1": busy(Kind(3.0), Kind(1.0)),
    "1:2:5": busy(Kind(1.0), Kind(2.0), Kind(5.0)),
    "1.5:2:7": busy(Kind(1.5), Kind(2.0), Kind(7.0)),
    "heavy and small": busy(Kind(1.0, 2), Kind(3.0)),
    "heavy and large": busy(Kind(1.0), Kind(3.0, 2)),
    "a third may not have its share": busy(Kind(1.0), Kind(2.0), Kind(50.0, max_slots=2)),
}


@pytest.mark.parametrize("case", sorted(SHARED))
@pytest.mark.parametrize("name", sorted(POOLS))
def test_over_time_each_job_holds_its_weights_share(name: str, case: str) -> None:
    """Within the slots of one task. With round robin that is so where no two slots become free at once."""
    kinds = SHARED[case]
    for fitting in Fitting:
        found = held(replace(POOLS[name], fitting=fitting), kinds, one_by_one=name == "round robin")
        off = {job: found[job] - part for job, part in parts(kinds).items()}
        assert max(map(abs, off.values())) <= max(kind.slots for kind in kinds.values()), found
        assert max(kind.slots for kind in kinds.values()) > 1 or sum(found.values()) > SLOTS - 0.5, "nothing is left"


@pytest.mark.parametrize("case", ["1:3", "1:2:5", "1.5:2:7"])
def test_by_turns_slots_that_become_free_at_once_are_shared_more_evenly(case: str) -> None:
    """Each job has one turn before any has its second: the lightest gets more than its share, the heaviest less."""
    kinds = SHARED[case]
    found, share = held(POOLS["round robin"], kinds), parts(kinds)
    light, *_, heavy = kinds
    assert share[light] < found[light] < SLOTS / len(kinds) < found[heavy] < share[heavy]


TURNS: dict[str, dict[str, Any]] = {"light": {}, "heavy": {"weight": 3.0}, "low": {"priority": 99}}


def with_one_that_waits(*running: SchedulerTask) -> PlacementDecision:
    """A pass, with preemption, over two agents: one large task has waited for too long, a small one comes after it."""
    pending = {"large": SchedulerTask("large", "light", 2, single_node=True, aged=True), "small": ("heavy", 1)}
    runs = {task.id: replace(task, state=TaskState.RUNNING, requested=-9.0) for task in running}
    return schedule(pool_of({"a": 2, "b": 2}, TURNS, {**pending, "fill": ("low", 1)}, runs, preemption=True))


def test_where_jobs_take_turns_a_place_is_kept_for_who_has_waited_too_long_and_nobody_leaves_in_vain() -> None:
    """The small one would start on each slot that becomes free, and give it up for nobody of its priority."""
    first, second = (
        SchedulerTask("first", "heavy", 1, on={"b": 1}, began=1.0),
        SchedulerTask("second", "heavy", 1, on={"a": 1}, began=3.0),
    )
    low = SchedulerTask("low0", "low", 1, on={"a": 1}, began=2.0)
    decision = with_one_that_waits(first, second, low)
    assert not decision.allocate
    assert decision.release == (), "with the slot that is kept, none of lower priority would be needed"
    assert reasons(decision) == {"large": "no_free_slots", "small": "behind", "fill": "behind"}
    assert decision.waiting["small"].behind == "large"


def test_none_of_lower_priority_leaves_the_place_for_others() -> None:
    """It counts as free for who waits first, though it has begun last: that one takes it as soon as that is enough."""
    first, low = (
        SchedulerTask("first", "heavy", 1, on={"b": 1}, began=1.0),
        SchedulerTask("low0", "low", 1, on={"b": 1}, began=5.0),
    )
    decision = with_one_that_waits(first, low, SchedulerTask("second", "heavy", 2, on={"a": 2}, began=3.0))
    assert (decision.allocate, decision.release) == ({}, ())


def test_beside_the_place_that_is_kept_others_start() -> None:
    first, endless = (SchedulerTask(name, "heavy", 1, on={name: 1}, began=1.0) for name in ("b", "a"))
    decision = with_one_that_waits(first, replace(endless, preemptible=False))
    assert placed(decision) == {"small": {"a": 1}}, "not on the agent where only what ends is in the way"


def test_it_takes_slots_from_lower_priorities_when_that_is_enough() -> None:
    first, low = (
        SchedulerTask("first", "heavy", 1, on={"b": 1}, began=1.0),
        SchedulerTask("low0", "low", 2, on={"a": 2}, began=2.0),
    )
    decision = with_one_that_waits(first, low)
    assert decision.release == ("low0",)
    assert decision.gathered == {"large": ("low0",)}

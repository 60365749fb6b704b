"""What the seed makes of a cluster that many share: its pools, machines, people and their jobs."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from detlab_hub.core.scheduling import DEFAULT_POOL, Fitting, Pool, PoolConfig, Pools, Scheduler

ADMIN = "root"
PEOPLE: Mapping[str, frozenset[str]] = {
    "ada": frozenset({"vision"}),
    "bob": frozenset({"vision", "speech"}),
    "cyd": frozenset({"speech"}),
}
"""User -> their groups of the Hub."""
GROUPS = ("speech", "vision")
ZERO_SLOT_TASKS = 2
"""Tasks without slots that an agent takes."""
GIB = 1 << 30
ENDLESS = 60
"""Steps of a trial that ends by its `max_time`: more than it comes to."""
SEARCHED = 8
"""Trials of the one search by asynchronous halving: small ones, most of which are stopped early."""
_OTHERS = (3, 4)
"""Trials of all other jobs together: at least, and at most."""
_BREADTH = 3
"""Machines of the search's pool, at least."""
_AS_THEY_WERE = 50
"""Seeds below are without shares and demands: bugs, of which some are planted ones, are known to be found by them."""


@dataclass(frozen=True)
class Machine:
    """One with an agent.

    Attributes:
        shares: Into so many slots each of its devices is divided.
        cpus: That its tasks may ask for together; None: they are not counted.
        memory: Bytes of memory, likewise.
    """

    slots: int
    pool: str
    labels: Mapping[str, str]
    shares: int = 1
    cpus: float | None = None
    memory: int | None = None


@dataclass(frozen=True)
class JobPlan:
    """An experiment that somebody submits.

    Attributes:
        name: Told to nobody who may not know of it.
        at: Seconds until it is submitted.
        pools: In which it could run.
        halving: It is the search by asynchronous halving, with `at_once` trials at a time.
        gang: Its trials are wider than any agent of their pools.
        max_time: Seconds that an attempt of its may take; its trials would go on for much longer.
        demands: CPUs and memory that a trial of it asks for, by the names of the config.
    """

    name: str
    owner: str
    at: float
    pools: tuple[str, ...]
    slots: int
    trials: int
    priority: int
    weight: float
    max_slots: int | None
    labels: Mapping[str, str] = field(default_factory=dict)
    halving: bool = False
    at_once: int = 0
    gang: bool = False
    max_time: float | None = None
    demands: Mapping[str, float] = field(default_factory=dict)

    def config(self, seed: int, length: int) -> dict[str, Any]:
        """What is submitted."""
        searcher: dict[str, Any] = {"name": "random", "metric": "loss", "max_trials": self.trials}
        if self.halving:
            searcher |= {"name": "async_halving", "time_metric": "batches", "max_time": length, "num_rungs": 3}
            searcher |= {"divisor": 2, "max_concurrent_trials": self.at_once}
        resources = {
            "slots_per_trial": self.slots,
            "resource_pool": self.pools[0],
            "priority": self.priority,
            "weight": self.weight,
            "max_slots": self.max_slots,
            "is_single_node": not self.gang,
            "max_time": self.max_time,
            "constraints": {"labels": dict(self.labels)},
            **self.demands,
        }
        return {
            "name": self.name,
            "entrypoint": "true",
            "hyperparameters": {"lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1}},
            "searcher": searcher,
            "reproducibility": {"experiment_seed": seed},
            "environment": {"environment_variables": [f"LENGTH={ENDLESS}"] if self.max_time else []},
            "resources": {key: value for key, value in resources.items() if value is not None},
            "max_restarts": 20,
        }


@dataclass(frozen=True)
class CommandPlan:
    """A command that somebody runs.

    Attributes:
        name: Told to nobody who may not know of it.
        at: Seconds until it is submitted.
        seconds: So long it takes, if it may.
        max_time: Seconds that it may run.
        demands: See `JobPlan`.
    """

    name: str
    owner: str
    at: float
    pool: str
    slots: int
    seconds: int
    max_time: float | None
    demands: Mapping[str, float] = field(default_factory=dict)

    def config(self) -> dict[str, Any]:
        """What is submitted."""
        resources = {"slots": self.slots, "resource_pool": self.pool, "max_time": self.max_time, **self.demands}
        return {
            "entrypoint": "true",
            "environment": {"environment_variables": [f"LENGTH={self.seconds}"]},
            "resources": {key: value for key, value in resources.items() if value is not None},
        }


@dataclass(frozen=True)
class Plan:
    """All of it.

    Attributes:
        bound: So many preemptions of a trial in an hour (I10).
        storm: Priorities change all the time, so that trials are preempted again and again.
    """

    pools: Pools
    machines: tuple[Machine, ...]
    jobs: tuple[JobPlan, ...]
    commands: tuple[CommandPlan, ...]
    bound: int
    storm: bool

    @property
    def widest(self) -> int:
        """Slots of the widest trial: a quota below would keep it waiting for ever."""
        return max(job.slots for job in self.jobs)


def plan_of(seed: int) -> Plan:
    """The plan of a seed."""
    rng = random.Random(f"cluster {seed}")
    storm = rng.random() < 0.4
    pools = _pools(rng, storm=storm)
    searched = rng.choice(tuple(pools.by_name))
    machines = _machines(rng, tuple(pools.by_name), searched)
    if seed >= _AS_THEY_WERE:
        pools, machines = _shared(random.Random(f"shares {seed}"), pools, machines)
    others = _wider(random.Random(f"gangs {seed}"), _jobs(rng, machines, pools), machines)
    jobs = (_search(random.Random(f"search {seed}"), searched), *others)
    commands = _commands(random.Random(f"commands {seed}"), machines)
    if seed >= _AS_THEY_WERE:
        machines, jobs, commands = _demanding(random.Random(f"demands {seed}"), machines, jobs, commands)
    return Plan(pools, machines, jobs, commands, rng.choice((1, 2, 2, 6)), storm)


def _pools(rng: random.Random, *, storm: bool) -> Pools:
    names = (DEFAULT_POOL, "blue", "green")[: rng.choice((1, 2, 2, 3))]
    pools = {}
    for name in names:
        scheduler = rng.choice(list(Scheduler))
        # Half of them take slots away by priority: that is where most can go wrong.
        if (storm and name == DEFAULT_POOL) or rng.random() < 0.5:
            scheduler = Scheduler.PRIORITY
        rules = Pool(scheduler, preemption=storm or rng.random() < 0.7, fitting=rng.choice(list(Fitting)))
        pools[name] = PoolConfig(name, rules, patience=rng.choice((5.0, 300.0)))
    return Pools(pools, DEFAULT_POOL, DEFAULT_POOL)


def _machines(rng: random.Random, pools: tuple[str, ...], searched: str) -> tuple[Machine, ...]:
    """At least one for each pool, and enough for the search in its own."""
    needed = [*pools, *[searched] * (_BREADTH - 1)]
    number = min(rng.randrange(len(needed), 7), rng.randrange(len(needed), 7))  # more often few
    machines = []
    for place in range(number):
        pool = needed[place] if place < len(needed) else rng.choice(pools)
        slots = rng.choice((1, 2, 2)) if number < 4 else rng.choice((1, 1, 1, 2, 2))
        machines.append(Machine(slots, pool, {"zone": rng.choice("xy")}))
    return tuple(machines)


def _shared(rng: random.Random, pools: Pools, machines: tuple[Machine, ...]) -> tuple[Pools, tuple[Machine, ...]]:
    """In every third seed the devices of a pool are shared."""
    if rng.random() > 1 / 3:
        return pools, machines
    name, parts = rng.choice(list(pools.by_name)), rng.choice((2, 2, 3))
    by_name = {**pools.by_name, name: replace(pools.by_name[name], slots_per_device=parts)}
    divided = (
        replace(machine, slots=machine.slots * parts, shares=parts) if machine.pool == name else machine
        for machine in machines
    )
    return replace(pools, by_name=by_name), tuple(divided)


def _demanding(
    rng: random.Random, machines: tuple[Machine, ...], jobs: tuple[JobPlan, ...], commands: tuple[CommandPlan, ...]
) -> tuple[tuple[Machine, ...], tuple[JobPlan, ...], tuple[CommandPlan, ...]]:
    """In every second seed CPUs and memory are counted; whatever is asked for fits on each machine by itself."""
    if rng.random() < 0.5:
        return machines, jobs, commands

    def demands() -> dict[str, float]:
        asked = {"cpus": rng.choice((None, 0.5, 1, 2)), "memory": rng.choice((None, GIB, 2 * GIB, 3 * GIB))}
        return {name: value for name, value in asked.items() if value is not None}

    return (
        tuple(replace(one, cpus=rng.choice((2, 2.5, 4)), memory=rng.choice((3, 4, 6)) * GIB) for one in machines),
        tuple(replace(job, demands=demands()) for job in jobs),
        tuple(replace(command, demands=demands()) for command in commands),
    )


def _search(rng: random.Random, pool: str) -> JobPlan:
    """The search that every seed has, in a pool where at least three agents can run its trials."""
    return JobPlan(
        name="searched",
        owner=rng.choice(list(PEOPLE)),
        at=rng.uniform(0.1, 0.3),  # before the others: then its first trials are on all agents
        pools=(pool,),
        slots=1,
        trials=SEARCHED,
        priority=rng.choice((10, 42, 42, 70)),
        weight=rng.choice((0.5, 1.0, 1.0, 3.0)),
        max_slots=rng.choice((None, None, 4)),
        halving=True,
        at_once=rng.choice((4, SEARCHED, SEARCHED)),
    )


def _jobs(rng: random.Random, machines: tuple[Machine, ...], pools: Pools) -> tuple[JobPlan, ...]:
    least, most = _OTHERS
    jobs: list[JobPlan] = []
    while sum(job.trials for job in jobs) < least:
        place = len(jobs)
        labels = {"zone": rng.choice("xy")} if rng.random() < 0.2 else {}
        slots = rng.choice((1, 1, 1, 2, 2, 3))
        fits = [machine for machine in machines if machine.slots >= slots and labels.items() <= machine.labels.items()]
        where = [name for name in pools.by_name if any(machine.pool == name for machine in fits)]
        if not where:
            continue
        rng.shuffle(where)
        left = most - sum(job.trials for job in jobs)
        jobs.append(
            JobPlan(
                name=f"secret{place}",
                owner=rng.choice(list(PEOPLE)),
                at=rng.uniform(0.3, 1.0) if place < 3 else rng.uniform(1.0, 9.0),
                pools=tuple(where),
                slots=slots,
                trials=min(left, rng.choice((1, 1, 2))),
                priority=rng.choice((10, 42, 42, 42, 70)),
                weight=rng.choice((0.5, 1.0, 1.0, 3.0)),
                max_slots=slots * rng.choice((1, 2)) if rng.random() < 0.3 else None,
                labels=labels,
            )
        )
    return tuple(jobs)


def _wider(rng: random.Random, jobs: tuple[JobPlan, ...], machines: tuple[Machine, ...]) -> tuple[JobPlan, ...]:
    """Some jobs want more slots than one agent has, some end by the clock."""
    changed = []
    for job in jobs:
        widths = _gang_widths(machines, job)
        made = job
        if widths and rng.random() < 0.4:
            slots = rng.choice(sorted(widths))
            most = None if job.max_slots is None else slots * (job.max_slots // job.slots)
            made = replace(job, slots=slots, max_slots=most, pools=tuple(sorted(widths[slots])), gang=True)
        if rng.random() < 0.3:
            made = replace(made, max_time=rng.choice((3.0, 6.0, 12.0)))
        changed.append(made)
    return tuple(changed)


def _commands(rng: random.Random, machines: tuple[Machine, ...]) -> tuple[CommandPlan, ...]:
    return tuple(
        CommandPlan(
            name=f"hidden{place}",
            owner=rng.choice(list(PEOPLE)),
            at=rng.uniform(0.5, 6.0),
            pool=rng.choice(machines).pool,
            slots=rng.choice((0, 0, 0, 1)),
            seconds=rng.choice((1, 4, ENDLESS)),
            max_time=rng.choice((4.0, 8.0)),
        )
        for place in range(rng.choice((1, 2, 3)))
    )


def _gang_widths(machines: tuple[Machine, ...], job: JobPlan) -> dict[int, set[str]]:
    """Widths in slots that only several agents together have, the same part of them each -> pools where that is so."""
    widths: dict[int, set[str]] = {}
    for pool in job.pools:
        sizes = [
            machine.slots
            for machine in machines
            if machine.pool == pool and job.labels.items() <= machine.labels.items()
        ]
        for each in range(1, max(sizes) + 1):
            for slots in range(max(sizes) + 1, each * sum(size >= each for size in sizes) + 1):
                if slots % each == 0:
                    widths.setdefault(slots, set()).add(pool)
    return widths

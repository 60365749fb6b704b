"""What order among people costs: shares of users in a scheduling pass, rules of alerts, a page of many alerts.

    python bench/people.py                      the whole
    python bench/people.py --quick              a tenth of everything, one round

- A pass with decayed shares of 1,000 users over 10,000 slots, half of them busy, and 10,000 tasks that wait, beside the
  same pass of the same scheduler without shares: CPU time, in turns.
- 1,000 rules of 250 users over 10,000 events of 100 running experiments: CPU time, as a part of one core's minute.
- A page of 100 alerts of a user who has 100,000, and how many are new, anywhere in the list: the 95th percentile.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from measure import ROOT, Figure, conclude, median_of, options, percentile, spread
from scheduling import cluster, cpu_ms

sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "tests" / "integration" / "services"))
from services_scripted import ALICE, World, training

from detlab_hub.core.scheduling import Job, Pool, Scheduler, SchedulerTask, ShareBy, Snapshot, schedule
from detlab_hub.services.alerts.alerts import Alerts
from detlab_hub.services.alerts.evaluation import AlertEvaluation
from detlab_hub.store.queries import consumers, events
from detlab_hub.store.tables import AlertRow, AlertRuleRow, ExperimentRow

SLOTS, USERS = 10_000, 1_000
RULES, EVENTS, EXPERIMENTS = 1_000, 10_000, 100
ALERTS, LOOKS = 100_000, 200
SHARES_GOAL, CORE_GOAL, PAGE_GOAL = 1.2, 5.0, 60.0
WEEK = 7 * 86_400.0
KINDS = ("completed", "failed", "improved", "plateau")


def shares(slots: int, users: int, rounds: int) -> list[Figure]:
    """A pass without shares of users, and one with them."""
    drawn = random.Random(2)
    snapshot = cluster(slots, single_node=True)
    names = [f"experiment {number}" for number in range(2 * users)]
    every = {name: Job(name, submitted=1e9 + place) for place, name in enumerate(names)}

    def owned(task: SchedulerTask) -> SchedulerTask:
        number = drawn.randrange(len(names))
        return replace(task, job=names[number], user=f"user{number % users}")

    tasks = tuple(owned(task) for task in snapshot.tasks)
    usage = {f"user{number}": drawn.expovariate(1 / WEEK) for number in range(users)}
    jobs = Pool(scheduler=Scheduler.FAIR_SHARE, preemption=True)
    people = replace(jobs, share_by=ShareBy.USER, half_life=WEEK)
    plain = Snapshot(jobs, snapshot.agents, every, tasks, private=True)
    shared = Snapshot(people, snapshot.agents, every, tasks, private=True, usage=usage)
    schedule(plain), schedule(shared)
    without, with_them = [], []
    for _ in range(rounds):
        without.append(cpu_ms(lambda: schedule(plain)))
        with_them.append(cpu_ms(lambda: schedule(shared)))
    ratio = median_of(with_them) / median_of(without)
    return [
        Figure(
            f"pass by fair share of jobs, {slots:,} slots and tasks", median_of(without), "ms", note=spread(without)
        ),
        Figure(f"  of {users:,} users, with use that decays", median_of(with_them), "ms", note=spread(with_them)),
        Figure("  beside the other", ratio, "times", at_most=SHARES_GOAL),
    ]


def filled(rules: int, count: int) -> Callable[[Any], None]:
    """Return what makes rules, and the events of a minute."""

    def fill(unit: Any) -> None:
        for number in range(EXPERIMENTS):
            unit.session.add(ExperimentRow(name="e", owner=f"u{number % 50}", state="ACTIVE", metric="loss", config={}))
        for number in range(rules):
            kind = KINDS[number % len(KINDS)]
            unit.session.add(AlertRuleRow(owner=f"u{number // len(KINDS) % 250}", kind=kind, amount=20.0))
        consumers.register(unit.session, "alerts", unit.now)
        unit.session.flush()
        drawn = random.Random(3)
        rows = []
        for number in range(count):
            data = {"group": "validation", "steps_completed": number, "run": 1, "metrics": {"loss": drawn.random()}}
            rows.append(events.new("metrics", unit.now, number % EXPERIMENTS + 1, 1, data))
        events.append_all(unit.session, rows)

    return fill


async def rules(world: World, count: int, events_in_all: int) -> list[Figure]:
    """The CPU of evaluating a minute's events."""
    await world.services.context.write(filled(count, events_in_all))
    evaluation = world.services[AlertEvaluation]
    began = time.process_time()
    while await evaluation.step():
        pass
    took = time.process_time() - began
    told = await world.services.context.read(lambda s: s.query(AlertRow).count())
    label = f"{count:,} rules over {events_in_all:,} reports of a minute"
    return [Figure(label, took / 60 * 100, "% of a core", at_most=CORE_GOAL, note=f"{told:,} alerts made")]


async def paging(world: World, count: int, looks: int) -> list[Figure]:
    """Pages of many alerts, from random places."""

    def fill(unit: Any) -> None:
        made = [
            {
                "owner": "alice",
                "source": f"trial {number % 999}",
                "kind": "said",
                "title": f"alert {number}",
                "experiment_id": number % EXPERIMENTS + 1 if number % 3 else None,
                "created_at": float(number),
                "read_at": None if number % 7 == 0 else 1e9,
            }
            for number in range(count)
        ]
        unit.session.bulk_insert_mappings(AlertRow, made)

    await world.services.context.write(fill)
    alerts, drawn = world.services[Alerts], random.Random(4)
    newest = (await alerts.list(ALICE, limit=1)).items[0].id
    took: list[float] = []
    for unread in (False, True):
        for _ in range(looks // 2):
            began = time.perf_counter()
            page = await alerts.list(ALICE, limit=100, before=drawn.randrange(newest // 2, newest), unread=unread)
            took.append((time.perf_counter() - began) * 1e3)
            assert len(page.items) == 100
    label = f"a page of 100 of {count:,} alerts, p95"
    return [Figure(label, percentile(took, 95), "ms", at_most=PAGE_GOAL, note=f"p50 {median_of(took):.1f}")]


async def in_a_world(work: Callable[[World], Awaitable[list[Figure]]]) -> list[Figure]:
    """Do something with a master's services on an empty SQLite database."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(f"sqlite:///{folder}/bench.sqlite", Path(folder), script=training(1))
        await world.boot()
        try:
            return await work(world)
        finally:
            world.close()


def main() -> int:
    """Measure and print."""
    given = options(__doc__ or "")
    part = 10 if given.quick else 1
    found = shares(SLOTS // part, USERS // part, given.rounds)
    found += asyncio.run(in_a_world(lambda world: rules(world, RULES // part, EVENTS // part)))
    found += asyncio.run(in_a_world(lambda world: paging(world, ALERTS // part, LOOKS // part)))
    return conclude("People: shares, rules, alerts", found, given)


if __name__ == "__main__":
    sys.exit(main())

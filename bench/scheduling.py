"""What a scheduling pass costs: 10,000 slots on 1,250 agents, half of them busy, and 10,000 tasks that wait.

    python bench/scheduling.py                  the whole, and a half and a quarter of it: growth
    python bench/scheduling.py --large          beside it 10,000 nodes and 100,000 tasks, also for a batch system
    python bench/scheduling.py --quick

Tasks want 1, 2, 4 or 8 slots and are of four priorities; preemption is on. Measured is the CPU time of `schedule` on a
snapshot, without the database. The floor is measured in turn with it: one look at the same tasks in plain Python,
which sorts them and counts their slots by job, and decides nothing.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import time
from collections.abc import Callable

from measure import Figure, conclude, median_of, options, spread

from detlab_hub.core.scheduling import Agent, Job, Pool, SchedulerTask, Snapshot, TaskState, schedule
from detlab_hub.core.scheduling.handover import hand_over

GOAL_MS = 150.0
GROWTH = 2.6
"""How many times as long twice the cluster may take: close to linear, and what caches and collections add."""
SLOTS_PER_AGENT = 8
SIZES = (1, 2, 4, 8)
PRIORITIES = (10, 30, 42, 60)
USERS = 40
TASKS_PER_JOB = 20
NODES, TASKS = 10_000, 100_000
"""Of the largest cluster."""


def cluster(slots: int, *, single_node: bool, seed: int = 1, tasks_in_all: int = 0) -> Snapshot:
    """A pool with so many slots, half of them in use, and as many tasks that wait, or so many that all are as many."""
    draw = random.Random(seed)
    agents = tuple(Agent(f"agent-{number:04}", SLOTS_PER_AGENT) for number in range(slots // SLOTS_PER_AGENT))
    names = [f"experiment {number}" for number in range(max(4, slots // TASKS_PER_JOB))]
    jobs = {name: Job(name, draw.choice(PRIORITIES), submitted=1e9 + place) for place, name in enumerate(names)}
    owners = {name: f"user{draw.randrange(USERS)}" for name in names}

    def task(name: str, size: int, number: int, on: dict[str, int] | None = None) -> SchedulerTask:
        job = draw.choice(names)
        state = TaskState.PENDING if on is None else TaskState.RUNNING
        more = {"requested": float(number), "on": on or {}, "single_node": single_node, "user": owners[job]}
        return SchedulerTask(name, job, size, state, **more)

    tasks, free, busy = [], {agent.id: agent.slots for agent in agents}, 0
    while busy < slots // 2:
        size, agent = draw.choice(SIZES), draw.choice(agents).id
        if free[agent] >= size:
            free[agent] -= size
            busy += size
            tasks.append(task(f"r{len(tasks):06}", size, len(tasks), {agent: size}))
    waiting = max(0, tasks_in_all - len(tasks)) if tasks_in_all else slots
    tasks += [task(f"p{number:06}", draw.choice(SIZES), number) for number in range(waiting)]
    return Snapshot(Pool(preemption=True), agents, jobs, tuple(tasks), private=True)


def floor(snapshot: Snapshot) -> int:
    """Sort the tasks as the queue does, and count slots by job."""
    jobs, held = snapshot.jobs, dict[str, int]()
    for one in sorted(snapshot.tasks, key=lambda t: (jobs[t.job].priority, jobs[t.job].submitted, t.requested, t.id)):
        held[one.job] = held.get(one.job, 0) + one.slots
    return sum(held.values())


def cpu_ms(work: Callable[[], object]) -> float:
    """CPU time of one call, in milliseconds."""
    began = time.process_time()
    work()
    return (time.process_time() - began) * 1e3


def figures(slots: int, rounds: int, *, single_node: bool) -> list[Figure]:
    """The pass and its floor, in turns."""
    snapshot = cluster(slots, single_node=single_node)
    decision = schedule(snapshot)
    passes, floors = [], []
    for _ in range(rounds):
        passes.append(cpu_ms(lambda: schedule(snapshot)))
        floors.append(cpu_ms(lambda: floor(snapshot)))
    where = "on one node each" if single_node else "on several nodes where needed"
    note = f"{spread(passes)}; starts {len(decision.allocate):,}, takes slots from {len(decision.release):,}"
    goal = GOAL_MS if slots == 10_000 else None
    return [
        Figure(f"pass at {slots:,} slots, tasks {where}", median_of(passes), "ms", at_most=goal, note=note),
        Figure("  floor: the same tasks sorted and counted", median_of(floors), "ms", note=spread(floors)),
    ]


def large(rounds: int) -> list[Figure]:
    """A pass over ten thousand nodes and a hundred thousand tasks, and what goes to a batch system instead."""
    snapshot = cluster(NODES * SLOTS_PER_AGENT, single_node=True, tasks_in_all=TASKS)
    decision = schedule(snapshot)
    passes = [cpu_ms(lambda: schedule(snapshot)) for _ in range(rounds)]
    floors = [cpu_ms(lambda: floor(snapshot)) for _ in range(rounds)]
    waits = Snapshot(snapshot.pool, (), snapshot.jobs, snapshot.tasks, private=True)
    handed = [cpu_ms(lambda: hand_over(waits, "batch")) for _ in range(rounds)]
    note = f"{spread(passes)}; starts {len(decision.allocate):,}, takes slots from {len(decision.release):,}"
    size = f"{NODES:,} nodes, {TASKS:,} tasks"
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [
        Figure(f"pass at {size}", median_of(passes), "ms", note=note),
        Figure("  floor: the same tasks sorted and counted", median_of(floors), "ms", note=spread(floors)),
        Figure("  the same tasks handed over to a batch system", median_of(handed), "ms", note=spread(handed)),
        Figure("  memory of the process, at most", memory, "MB"),
    ]


def main() -> int:
    """Measure and print."""

    def more(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--large", action="store_true", help=f"{NODES:,} nodes and {TASKS:,} tasks, too")

    given = options(__doc__ or "", more)
    rounds = given.rounds if given.quick else max(given.rounds, 5)
    found: list[Figure] = []
    for single_node in (True, False):
        by_size = {slots: figures(slots, rounds, single_node=single_node) for slots in (2_500, 5_000, 10_000)}
        for rows in by_size.values():
            found += rows
        half, whole = by_size[5_000][0].value, by_size[10_000][0].value
        if half and whole:
            label = "  growth: 10,000 slots beside 5,000"
            found.append(Figure(label, whole / half, "times", at_most=GROWTH))
    if given.large:
        found += large(given.rounds)
    return conclude("Scheduling", found, given)


if __name__ == "__main__":
    sys.exit(main())

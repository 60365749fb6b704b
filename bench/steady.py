"""What 100 changes a second cost a full cluster: 10,000 slots on 1,250 agents, all busy, and 10,000 tasks that wait.

    python bench/steady.py
    python bench/steady.py --quick                 a tenth of the size, a few seconds
    make bench-steady BENCH_ARGS="--json"

A master with its database, and agents by their own code over real sockets without processes behind their tasks
(`fleet.py`). Trials of 500 searches want 1, 2, 4 or 8 slots and are of four priorities; preemption is on. Of ten
changes four are ends of running trials, four are submissions, and two are agents that come back and say anew what they
run; each end makes room for what waits, so that launches and starts come on top. Counted is CPU as a share of one core:
of the scheduling passes, from reading the rows to what was decided and written, and of the whole master, which has the
requests, the commits and the heartbeats of all agents, too. The goal is for the scheduling; the floor is the same
cluster with its queue when nothing changes.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fleet import Fleet
from master import Master, submit
from measure import Figure, conclude, median_of, options, spread, until

from testbed.cluster import Cluster, running_cluster

GOAL = 20.0
RATE = 100
SLOTS = 8
SIZES = (1, 2, 4, 8)
PRIORITIES = (10, 30, 42, 60)
EACH = 25
"""Trials of a search."""
MEAN = sum(SIZES) / len(SIZES)
KINDS = ("end", "submission", "end", "submission", "agent") * 2
SUBMITTERS = 4
POOLS = "--DetHub.pools={'default': {'scheduler': 'priority', 'preemption': True}}"


@dataclass
class Found:
    """Percent of a core and more, by round."""

    passes: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    still_passes: list[float] = field(default_factory=list)
    still_whole: list[float] = field(default_factory=list)
    each: list[float] = field(default_factory=list)
    """Milliseconds of CPU of a pass."""
    count: list[float] = field(default_factory=list)
    """Passes in a second."""
    rate: list[float] = field(default_factory=list)


@dataclass
class Bench:
    """A master with a full cluster."""

    master: Master
    fleet: Fleet
    notes: Path
    draw: random.Random = field(default_factory=lambda: random.Random(3))

    def search(self, priority: int, trials: int) -> None:
        """Submit a search of so many trials, all of which want to run at once."""
        searcher = {"name": "random", "metric": "loss", "max_trials": trials, "max_concurrent_trials": trials}
        space = {"lr": {"type": "double", "minval": 0.0, "maxval": 1.0}}
        resources = {"slots_per_trial": self.draw.choice(SIZES), "priority": priority}
        submit(self.master, {"name": "s", "searcher": searcher, "hyperparameters": space, "resources": resources})

    def fill(self, slots: int) -> None:
        """All slots busy, and as many tasks that wait; those of high priorities come first, so that nobody leaves."""
        searches = round((slots / MEAN + slots) / EACH)
        for number in range(searches):
            self.search(PRIORITIES[number * len(PRIORITIES) // searches], EACH)
        before = -1
        while self.fleet.started != before:
            before = self.fleet.started
            time.sleep(6)

    def cpu_of_passes(self) -> tuple[float, int]:
        """CPU seconds of all passes so far, and how many there were."""
        lines = self.notes.read_text().splitlines()
        return sum(float(line.split()[0]) for line in lines), len(lines)

    def look(self, seconds: float, changes: list[str]) -> tuple[float, float, float, float]:
        """Make changes at their pace for so long; return percent of passes and all, ms of a pass, passes a second."""
        whole, (passes, count) = self.master.cpu, self.cpu_of_passes()
        began = time.perf_counter()
        with ThreadPoolExecutor(SUBMITTERS) as submitters:
            for number, change in enumerate(changes):
                time.sleep(max(0.0, began + number / RATE - time.perf_counter()))
                self.change(change, submitters)
        time.sleep(max(0.0, began + seconds - time.perf_counter()))
        span = time.perf_counter() - began
        later, many = self.cpu_of_passes()
        each = (later - passes) / max(1, many - count) * 1000
        return (later - passes) / span * 100, (self.master.cpu - whole) / span * 100, each, (many - count) / span

    def change(self, kind: str, submitters: ThreadPoolExecutor) -> None:
        """Make one change."""
        agent = self.draw.choice(self.fleet.agents)
        if kind == "submission":
            submitters.submit(self.search, self.draw.choice(PRIORITIES[2:]), 1)
        elif kind == "agent":
            self.fleet.do(agent.connector.introduce_again)
        else:
            while not agent.runtime.running:
                agent = self.draw.choice(self.fleet.agents)
            self.fleet.end(agent, self.draw.choice(list(agent.runtime.running)))


def measure(cluster: Cluster, root: Path, slots: int, seconds: float, rounds: int) -> Found:
    """Fill a cluster of so many slots, and change it."""
    notes, found = root / "passes", Found()
    program = (str(Path(__file__).parent / "passes.py"), str(notes))
    master = Master(cluster, root / "master", more=(POOLS,), program=program)
    master.start()
    try:
        fleet = Fleet(master, root / "keys", slots // SLOTS, SLOTS)
        fleet.forget_welcomes()
        fleet.connect()
        until(lambda: fleet.welcomed == len(fleet.agents), "all agents are connected", 600)
        bench = Bench(master, fleet, notes)
        bench.fill(slots)
        for _ in range(rounds):
            passes, whole, _, _ = bench.look(seconds, [])
            found.still_passes.append(passes)
            found.still_whole.append(whole)
            kinds = cycle(KINDS)
            started = fleet.started
            passes, whole, each, count = bench.look(seconds, [next(kinds) for _ in range(round(seconds * RATE))])
            found.passes.append(passes)
            found.whole.append(whole)
            found.each.append(each)
            found.count.append(count)
            found.rate.append((fleet.started - started) / seconds)
        fleet.close()
    finally:
        master.end()
    return found


def main() -> int:
    """Print the table; with --check status 1 if a goal is missed."""
    given = options(__doc__ or "")
    slots, seconds = (1_000, 5.0) if given.quick else (10_000, 20.0)
    with tempfile.TemporaryDirectory(prefix="detlab-bench-") as name:
        root = Path(name)
        root.chmod(0o755)
        (root / "hub").mkdir()
        with running_cluster(root / "hub", slots=1) as cluster:
            found = measure(cluster, root, slots, seconds, given.rounds)
    return conclude(f"{slots:,} busy slots, {slots:,} tasks that wait, {RATE} changes/s", figures(found), given)


def figures(found: Found) -> list[Figure]:
    """Return the rows of the table."""
    note = (
        f"{median_of(found.count):.2g} passes/s of {median_of(found.each):.0f} ms; {median_of(found.rate):.0f} starts/s"
    )
    return [
        Figure("scheduling: CPU", median_of(found.passes), "%", at_most=GOAL, note=note),
        Figure("  floor: when nothing changes", median_of(found.still_passes), "%", note=spread(found.still_passes)),
        Figure("the whole master: CPU", median_of(found.whole), "%", note=spread(found.whole)),
        Figure("  floor: when nothing changes", median_of(found.still_whole), "%", note=spread(found.still_whole)),
    ]


if __name__ == "__main__":
    sys.exit(main())

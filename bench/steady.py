"""What 100 changes a second cost a full cluster: 10,000 slots on 1,250 agents, all busy, and 10,000 tasks that wait.

    python bench/steady.py
    python bench/steady.py --quick                 a tenth of the size, a few seconds
    make bench-steady BENCH_ARGS="--json"

A master with its database, and agents by their own code over real sockets without processes behind their tasks
(`fleet.py`). Trials of searches want 1, 2, 4 or 8 slots and are of four priorities; preemption is on. A change is
something that the scheduler has to look at, or that it did: the end of a running trial, a submission, an agent that
comes back and says anew what it runs, a start. Seventy in a second come from outside: of ten four are ends, four are
submissions, each of an experiment of its own, and two are agents. Each end makes room for what waits, so that the rest
are starts. One of ten submissions is more urgent than all that runs: trials are asked to leave for it, and are ended a
second later. Checked is that all slots are busy, that as many tasks wait, and that there were so many changes. Counted
is CPU as a share of one core: of the scheduling passes, from reading the rows to what was decided and written, and of
the whole master, which has the requests, the commits and the heartbeats of all agents, too. The goal is for the
scheduling; the floor is the same cluster with its queue when nothing changes.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from load.fleet import Fleet, LightAgent
from master import API, Master, submit
from measure import Figure, conclude, median_of, options, spread, until

from testbed.cluster import UNLIMITED, Cluster, running_cluster

GOAL = 20.0
RATE = 100
"""Changes in a second."""
ASKED = 70
"""Of them what comes from outside."""
SLOTS = 8
SIZES = (1, 2, 4, 8)
PRIORITIES = (10, 30, 42, 60)
URGENT = 5
"""Above all that runs: others leave for it."""
URGENT_EACH = 10
"""One of so many submissions is urgent."""
SEARCHES = 50
"""With which the cluster is filled."""
REACHED = 0.95
"""The changes must be made at no less than this part of their rate."""
MEAN = sum(SIZES) / len(SIZES)
KINDS = ("end", "submission", "end", "submission", "agent") * 2
SUBMITTERS = 32
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
    starts: list[float] = field(default_factory=list)
    """Starts in a second."""
    preempted: list[float] = field(default_factory=list)
    """Trials that were ended to make room, in a second."""
    rate: list[float] = field(default_factory=list)
    """Changes from outside in a second, until the last one was answered."""


@dataclass
class Look:
    """One round: percent of a core, and the rest as in `Found`."""

    passes: float
    whole: float
    each: float
    count: float
    starts: float
    preempted: float
    rate: float


@dataclass
class Bench:
    """A master with a full cluster."""

    master: Master
    fleet: Fleet
    notes: Path
    draw: random.Random = field(default_factory=lambda: random.Random(3))
    sent: list[Future[None]] = field(default_factory=list)

    def search(self, priority: int, trials: int) -> None:
        """Submit a search of so many trials, all of which want to run at once."""
        searcher = {"name": "random", "metric": "loss", "max_trials": trials, "max_concurrent_trials": trials}
        space = {"lr": {"type": "double", "minval": 0.0, "maxval": 1.0}}
        resources = {"slots_per_trial": self.draw.choice(SIZES), "priority": priority}
        config = {"name": "s", "searcher": searcher, "hyperparameters": space, "resources": resources}
        submit(self.master, {**config, "preemption_timeout": 1})

    def fill(self, slots: int) -> None:
        """All slots busy, and as many tasks that wait; those of high priorities come first, so that nobody leaves.

        Raises:
            SystemExit: It did not become so.
        """
        each = -(-round(slots / MEAN + slots) // SEARCHES)
        for number in range(SEARCHES):
            self.search(PRIORITIES[number * len(PRIORITIES) // SEARCHES], each)
        until(lambda: self.fleet.busy == slots, f"{slots} slots are busy", 600)
        while (missing := slots - self.waiting()) > 0:  # the sizes of searches were drawn
            self.search(PRIORITIES[-1], min(missing, each))

    def waiting(self) -> int:
        """How many tasks wait, by the master's count."""
        person = self.master.person()
        pools = json.loads(person.ask("GET", f"{API}pools"))["items"]
        person.close()
        return sum(pool["tasks_waiting"] for pool in pools)

    def cpu_of_passes(self) -> tuple[float, int]:
        """CPU seconds of all passes so far, and how many there were."""
        lines = self.notes.read_text().splitlines()
        return sum(float(line.split()[0]) for line in lines), len(lines)

    def look(self, seconds: float, changes: list[str]) -> Look:
        """Make changes at their pace for so long."""
        whole, (passes, count) = self.master.cpu, self.cpu_of_passes()
        started, killed = self.fleet.started, self.fleet.killed
        began = time.perf_counter()
        with ThreadPoolExecutor(SUBMITTERS) as submitters:
            for number, change in enumerate(changes):
                time.sleep(max(0.0, began + number / ASKED - time.perf_counter()))
                self.change(change, submitters)
            for sent in self.sent:
                sent.result()  # what was refused was no change
            self.sent.clear()
        rate = len(changes) / (time.perf_counter() - began)
        time.sleep(max(0.0, began + seconds - time.perf_counter()))
        span = time.perf_counter() - began
        later, many = self.cpu_of_passes()
        return Look(
            passes=(later - passes) / span * 100,
            whole=(self.master.cpu - whole) / span * 100,
            each=(later - passes) / max(1, many - count) * 1000,
            count=(many - count) / span,
            starts=(self.fleet.started - started) / span,
            preempted=(self.fleet.killed - killed) / span,
            rate=rate,
        )

    def change(self, kind: str, submitters: ThreadPoolExecutor) -> None:
        """Make one change."""
        if kind == "submission":
            urgent = self.draw.randrange(URGENT_EACH) == 0
            priority = URGENT if urgent else self.draw.choice(PRIORITIES[2:])
            self.sent.append(submitters.submit(self.search, priority, 1))
        elif kind == "agent":
            self.fleet.do(self.draw.choice(self.fleet.agents).connector.introduce_again)
        else:
            while not self.end(self.draw.choice(self.fleet.agents)):
                pass

    def end(self, agent: LightAgent) -> bool:
        """Let a task of an agent end; return whether there was one."""
        running = list(agent.runtime.running)
        return bool(running) and self.fleet.end(agent, self.draw.choice(running))


def measure(cluster: Cluster, root: Path, slots: int, seconds: float, rounds: int) -> Found:
    """Fill a cluster of so many slots, and change it."""
    notes, found = root / "passes", Found()
    program = (str(Path(__file__).parent / "load" / "passes.py"), str(notes))
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
            still = bench.look(seconds, [])
            found.still_passes.append(still.passes)
            found.still_whole.append(still.whole)
            kinds = cycle(KINDS)
            look = bench.look(seconds, [next(kinds) for _ in range(round(seconds * ASKED))])
            for name, value in vars(look).items():
                getattr(found, name).append(value)
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
        with running_cluster(root / "hub", slots=1, config=UNLIMITED) as cluster:
            found = measure(cluster, root, slots, seconds, given.rounds)
    return conclude(f"{slots:,} busy slots, {slots:,} tasks that wait, {RATE} changes/s", figures(found), given)


def figures(found: Found) -> list[Figure]:
    """Return the rows of the table."""
    changes = [asked + starts for asked, starts in zip(found.rate, found.starts, strict=True)]
    note = f"{median_of(found.count):.2g} passes/s of {median_of(found.each):.0f} ms"
    return [
        Figure("changes", median_of(changes), "/s", at_least=REACHED * RATE, note=spread(changes)),
        Figure(
            "  of them from outside", median_of(found.rate), "/s", at_least=REACHED * ASKED, note=spread(found.rate)
        ),
        Figure("  of them starts", median_of(found.starts), "/s", note=spread(found.starts)),
        Figure("  trials that left for urgent ones", median_of(found.preempted), "/s", note=spread(found.preempted)),
        Figure("scheduling: CPU", median_of(found.passes), "%", at_most=GOAL, note=note),
        Figure("  floor: when nothing changes", median_of(found.still_passes), "%", note=spread(found.still_passes)),
        Figure("the whole master: CPU", median_of(found.whole), "%", note=spread(found.whole)),
        Figure("  floor: when nothing changes", median_of(found.still_whole), "%", note=spread(found.still_whole)),
    ]


if __name__ == "__main__":
    sys.exit(main())

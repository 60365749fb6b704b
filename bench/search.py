"""What a report with a decision and a suggestion cost the master when a search has had 10,000 trials, beside Optuna.

    python bench/search.py                         ours on SQLite; Optuna on SQLite
    python bench/search.py --quick --no-peers      1,000 trials, a few of each
    python bench/search.py --profile search.prof   the master under cProfile, for pstats
    make bench-search BENCH_ARGS="--json"

The search is ASHA with rungs at 1, 4, 16 and 64 reports. All goes through the master's API and is durable when it is
answered. A *report with its decision* is `POST task/records` with one validation at a rung: authorised, stored, ranked
among all that ever reached the rung, decided, journaled; where it stops the trial, which it mostly does, it makes the
suggestion, too: the next trial is drawn, stored and queued in the same transaction. The *end of a trial* is what its
exit brings: its attempt and it are closed, the next in the queue is placed and sent to the agent with a token of its
own. CPU is that of the master's process. Optuna's are its `ask`, and its `report` with `should_prune` at a rung, in the
process that calls them: there is no server.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from load.grown import METRIC, config_of, grow
from master import API, Connection, Master, Node, submit
from measure import Figure, absent, ask_peer, beside, conclude, median_of, options, spread

from testbed.cluster import UNLIMITED, Cluster, running_cluster

GOAL = 1.0
THEN_REPORT = 18.0
"""Milliseconds of Optuna's pruner at a rung when the goal was set."""
SLOTS = 16
RUNGS = (1, 4, 16, 64)
PEER = "optuna"


@dataclass
class Found:
    """Milliseconds of CPU, by round."""

    reports: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    """Wall time of a report."""
    ends: list[float] = field(default_factory=list)


def report(http: Connection, batches: int, loss: float) -> None:
    """Send one validation of a trial."""
    record = {"kind": "metrics", "seq": batches, "time": time.time(), "group": "validation", "steps_completed": batches}
    record["metrics"] = {METRIC: loss, "batches": batches}
    http.ask("POST", f"{API}task/records", json.dumps({"stream": "metrics", "records": [record]}).encode())


def one_round(found: Found, master: Master, node: Node, count: int) -> None:
    """Let at least `count` trials report at their rungs until the search stops them, in waves of one for each slot."""
    cpu_reports = cpu_ends = waits = 0.0
    reports = ended = 0
    while ended < count:
        launches = node.await_launches(len(node.ended) + SLOTS)
        running = [launch for launch in launches if launch["allocation_id"] not in node.ended]
        connections = [Connection(master.address, launch["task_token"]) for launch in running]
        going = list(connections)
        for rung in RUNGS:
            before, began = master.cpu, time.perf_counter()
            for number, connection in enumerate(going):
                report(connection, rung, (number * 37 % 101) / 100 + 1.0 / rung)
            cpu_reports += master.cpu - before
            waits += time.perf_counter() - began
            reports += len(going)
            going = [connection for connection in going if not stopped(connection)]
        for connection in connections:
            connection.close()
        before = master.cpu
        for launch in running:
            node.exited(launch["allocation_id"])
        node.await_launches(len(node.ended) + SLOTS)
        time.sleep(0.3)  # what the master does afterwards counts, too
        cpu_ends += master.cpu - before
        ended += len(running)
    found.reports.append(cpu_reports / reports * 1000)
    found.waits.append(waits / reports * 1000)
    found.ends.append(cpu_ends / ended * 1000)


def stopped(connection: Connection) -> bool:
    """Whether the search has stopped the trial."""
    return bool(json.loads(connection.ask("GET", f"{API}task/preempt?timeout_seconds=0"))["preempt"])


def measure(cluster: Cluster, folder: Path, trials: int, count: int, rounds: int, more: tuple[str, ...]) -> Found:
    """Grow a search, start the master on it, and measure."""
    master = Master(cluster, folder, more=())
    master.start()
    view = submit(master, config_of(trials * 3 + 1000, SLOTS))
    master.end()
    grow(f"sqlite:///{folder}/db/detlab.sqlite", view["id"], trials)
    master.program = more
    master.start()
    node = Node(master, SLOTS)
    found = Found()
    try:
        node.connect()
        one_round(Found(), master, node, SLOTS)  # brings the search back from its journal
        for _ in range(rounds):
            one_round(found, master, node, count)
    finally:
        node.hang_up()
        master.end()
    return found


def main() -> int:
    """Print the table; with --check status 1 if a goal is missed."""

    def more(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--trials", type=int, default=10_000, help="that the search has had")
        parser.add_argument("--profile", help="file for the profile of the master")

    given = options(__doc__ or "", more)
    trials, count = (1000, SLOTS) if given.quick else (given.trials, 160)
    program = ("-m", "cProfile", "-o", str(Path(given.profile).absolute())) if given.profile else ()
    peer: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="detlab-bench-") as name:
        root = Path(name)
        root.chmod(0o755)
        (root / "hub").mkdir()
        with running_cluster(root / "hub", slots=1, config=UNLIMITED) as cluster:
            found = measure(cluster, root / "master", trials, count, given.rounds, program)
        if not absent(PEER, given):
            url = f"sqlite:///{root}/optuna.sqlite"
            peer = ask_peer(PEER, "search_optuna.py", url, str(trials), str(5 if given.quick else 60))
    return conclude(f"A search that has had {trials:,} trials", figures(found, peer, absent(PEER, given)), given)


def figures(found: Found, peer: dict[str, list[float]], why: str) -> list[Figure]:
    """Return the rows of the table."""
    now = {name: median_of(taken) for name, taken in peer.items()}
    whole = sum(now.values()) if now else None
    goal = beside(GOAL, THEN_REPORT, now.get("report"))
    note = f"{spread(found.reports)}; answered after {median_of(found.waits):.1f} ms"
    label = "detlab, one report with its decision and suggestion: CPU"
    rows = [Figure(label, median_of(found.reports), "ms", at_most=goal, note=note.removeprefix("; "))]
    label = "detlab, the end of a trial and the launch of the next: CPU"
    rows.append(Figure(label, median_of(found.ends), "ms", note=spread(found.ends)))
    if not now:
        return [*rows, Figure("Optuna on SQLite", None, note=why)]
    rows.append(Figure("Optuna on SQLite, report and should_prune at a rung: CPU", now["report"], "ms"))
    return [*rows, Figure("Optuna on SQLite, ask, report, tell: CPU", whole, "ms")]


if __name__ == "__main__":
    sys.exit(main())

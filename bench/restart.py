"""A master that is killed while 1,000 tasks run: until it serves again, until it has all back, and if any restarted.

    python bench/restart.py
    python bench/restart.py --quick                100 tasks on 13 agents
    make bench-restart BENCH_ARGS="--json"

The tasks are trials of one search on 126 agents of 8 slots. The agents are the agent's own code over real sockets,
without processes behind the tasks (`fleet.py`), so that a machine of two cores can have so many; the master is a
process with its database. It gets SIGKILL and is started anew at once, as its supervisor would. *Serving* is when it
answers a person: it is healthy, and says how the search is. *Back* is when every agent was welcomed and let go on with
what it runs: the agents find out by themselves, with the pauses of their own between attempts. Restarted is a task that
was launched again, or told to end, or whose trial says so; a trial that is submitted afterwards has to start on the
slots that were left. The floor is the same master killed and started anew when nothing runs.
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from load.fleet import Fleet
from master import API, Master, submit
from measure import Figure, conclude, median_of, options, spread, until

from testbed.cluster import UNLIMITED, running_cluster

GOAL = 5.0
SLOTS = 8


@dataclass
class Found:
    """What was seen, by round."""

    empty: list[float] = field(default_factory=list)
    serving: list[float] = field(default_factory=list)
    back: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    restarted: int = 0


def kill_and_start(master: Master, path: str) -> float:
    """Kill the master and start it anew; return the seconds until it answers a person."""
    began = time.perf_counter()
    master.end(signal.SIGKILL)
    master.start()
    person = master.person()
    person.ask("GET", path)
    person.close()
    return time.perf_counter() - began


def one_round(found: Found, master: Master, fleet: Fleet, path: str) -> None:
    """Kill it with everything running; wait until all is back."""
    fleet.forget_welcomes()
    tasks, began = fleet.running, time.perf_counter()
    found.serving.append(kill_and_start(master, path))
    until(lambda: fleet.welcomed == len(fleet.agents), "all agents are back")
    found.back.append(time.perf_counter() - began)
    found.cpu.append(master.cpu)
    found.restarted += tasks - fleet.kept


def restarts(master: Master, experiment: int) -> int:
    """Trials of an experiment that have run more than once, or do not run."""
    person, bad, after = master.person(), 0, ""
    while True:
        page: dict[str, Any] = json.loads(person.ask("GET", f"{API}experiments/{experiment}/trials?limit=500{after}"))
        bad += sum(
            trial["run"] != 1 or trial["restarts"] != 0 or trial["allocation_state"] != "RUNNING"
            for trial in page["items"]
        )
        if not page["next"]:
            person.close()
            return bad
        after = f"&after={page['next']}"


def main() -> int:
    """Print the table; with --check status 1 if a goal is missed."""
    given = options(__doc__ or "")
    count = 100 if given.quick else 1000
    found = Found()
    with tempfile.TemporaryDirectory(prefix="detlab-bench-") as name:
        root = Path(name)
        root.chmod(0o755)
        (root / "hub").mkdir()
        with running_cluster(root / "hub", slots=1, config=UNLIMITED) as cluster:
            master = Master(cluster, root / "master")
            master.start()
            try:
                for _ in range(given.rounds):
                    found.empty.append(kill_and_start(master, f"{API}cluster"))
                fleet = Fleet(master, root / "keys", -(-count // SLOTS) + 1, SLOTS)
                fleet.connect()
                searcher = {"name": "random", "metric": "loss", "max_trials": count, "max_concurrent_trials": count}
                space = {"lr": {"type": "double", "minval": 0.0, "maxval": 1.0}}
                view = submit(master, {"name": "many", "searcher": searcher, "hyperparameters": space})
                until(lambda: fleet.started >= count, f"{count} tasks run", 300)
                until(lambda: restarts(master, view["id"]) == 0, "all run", 60)
                for _ in range(given.rounds):
                    one_round(found, master, fleet, f"{API}experiments/{view['id']}")
                found.restarted += restarts(master, view["id"]) + fleet.killed + fleet.started - count
                submit(master, {"name": "one more", "searcher": {"name": "single", "metric": "loss"}})
                until(lambda: fleet.started == count + 1, "one more starts", 30)
                fleet.close()
            finally:
                master.end(signal.SIGKILL)
    return conclude(f"A master killed while {count:,} tasks run", figures(found, count), given)


def figures(found: Found, count: int) -> list[Figure]:
    """Return the rows of the table."""
    return [
        Figure(
            "killed, until it answers again", median_of(found.serving), "s", at_most=GOAL, note=spread(found.serving)
        ),
        Figure("  floor: the same when nothing runs", median_of(found.empty), "s", note=spread(found.empty)),
        Figure(f"killed, until it has all {count:,} tasks back", median_of(found.back), "s", note=spread(found.back)),
        Figure("  CPU of the new master until then", median_of(found.cpu), "s", note=spread(found.cpu)),
        Figure("tasks that were restarted", found.restarted, "", at_most=0),
    ]


if __name__ == "__main__":
    sys.exit(main())

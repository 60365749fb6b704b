"""How long slots that are taken from a trial stay taken, beyond what its own code does with the time.

    python bench/preempt.py
    python bench/preempt.py --quick
    make bench-preempt BENCH_ARGS="--json"

One embedded cluster (master, agent, processes) with one slot in a pool with preemption. A trial of low priority trains
in steps of 10 ms; then one of high priority is submitted. The first sees after a step that it is preempted, stores a
checkpoint that takes it a second, and ends with exit code 0. What counts is from the master's decision (the attempt's
`preempt_at`) to the moment when the slot is free (its `ended_at`), both by the master's clock, less what the trial's
own code took to write the checkpoint, as it notes itself. That leaves what detlab adds: the signal's way to the trial,
the storing of what was written and its commit, the end of the interpreter, the launcher's delivery of all output, the
agent's word, and the commit. The floor is of that the end of the interpreter: a Python with the same imports that is
told to end by a pipe, until it is waited for.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from measure import Figure, conclude, median_of, options, spread, until

from detlab.client import Client
from testbed.cluster import UNLIMITED, Cluster, running_cluster

GOAL = 1.0
CHECKPOINT = 1.0
"""Seconds that the trial's own checkpoint takes."""
POOLS = 'c.DetHub.pools = {"default": {"scheduler": "priority", "preemption": True}}'
TRIAL = f"""
import sys, time
from pathlib import Path
from detlab import core
with core.init() as context:
    context.train.report_training_metrics(steps_completed=1, metrics=dict(loss=1.0))
    while not context.preempt.should_preempt():
        time.sleep(0.01)
    seen = time.time()
    with context.checkpoint.store_path(dict(steps_completed=1)) as (path, _):
        (path / "state").write_text("1")
        began = time.time()
        time.sleep({CHECKPOINT})
        own = time.time() - began
    Path(sys.argv[1]).write_text(f"{{seen}} {{time.time()}} {{own}}")
"""
SHORT = """
from detlab import core
with core.init() as context:
    context.train.report_validation_metrics(steps_completed=1, metrics=dict(loss=1.0))
"""
FLOOR = "import sys; from detlab import core; print('ready', flush=True); sys.stdin.read()"


@dataclass
class Found:
    """Seconds, by round."""

    beyond: list[float] = field(default_factory=list)
    signal: list[float] = field(default_factory=list)
    storing: list[float] = field(default_factory=list)
    own: list[float] = field(default_factory=list)
    leaving: list[float] = field(default_factory=list)
    deciding: list[float] = field(default_factory=list)
    floor: list[float] = field(default_factory=list)


def config_of(name: str, priority: int, *arguments: str) -> dict[str, Any]:
    """An experiment of one trial."""
    return {
        "name": name,
        "entrypoint": ["python3", "train.py", *arguments],
        "searcher": {"name": "single", "metric": "loss"},
        "resources": {"slots_per_trial": 1, "priority": priority},
        "max_restarts": 0,
    }


def attempt(cluster: Cluster, experiment_id: int) -> tuple[float, float]:
    """When an experiment's first attempt was told to leave, and when it was over."""
    with sqlite3.connect(f"file:{cluster.folder / 'db' / 'detlab.sqlite'}?mode=ro", uri=True) as database:
        query = "select preempt_at, ended_at from allocations where experiment_id = ? and run = 1"
        told, ended = database.execute(query, (experiment_id,)).fetchone()
    return float(told or 0.0), float(ended or 0.0)


def floor() -> float:
    """Seconds from the word to end until such a process is waited for."""
    command = [sys.executable, "-c", FLOOR]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        began = time.perf_counter()
        process.stdin.close()
        process.wait()
        return time.perf_counter() - began


def one_round(found: Found, cluster: Cluster, client: Client, notes: Path) -> None:
    """Preempt a trial that trains."""
    notes.unlink(missing_ok=True)
    low = client.create_experiment(config_of("low", 90, str(notes)), files={"train.py": TRIAL})
    for event in low.stream(0):
        if event.kind == "metrics":
            break
    submitted = time.time()
    high = client.create_experiment(config_of("high", 10), files={"train.py": SHORT})
    high.wait()
    until(notes.exists, "the trial has noted when it ended")
    seen, done, own = map(float, notes.read_text().split())
    told, ended = attempt(cluster, low.id)
    if not submitted - 1 < told <= seen < done < ended:
        raise SystemExit(f"told {told}, seen {seen}, done {done}, ended {ended}: not a preemption")
    found.beyond.append(ended - told - own)
    found.signal.append(seen - told)
    found.storing.append(done - seen - own)
    found.own.append(own)
    found.leaving.append(ended - done)
    found.deciding.append(told - submitted)
    low.kill()
    low.wait()
    found.floor.append(floor())


def main() -> int:
    """Print the table; with --check status 1 if a goal is missed."""
    given = options(__doc__ or "")
    found = Found()
    with tempfile.TemporaryDirectory(prefix="detlab-bench-") as name:
        root = Path(name)
        root.chmod(0o777)
        with running_cluster(root, slots=1, config=UNLIMITED + POOLS) as cluster:
            client = Client(cluster.url, token=cluster.token)
            for _ in range(given.rounds + 1):
                one_round(found, cluster, client, root / "notes")
    for values in vars(found).values():
        del values[0]  # the first one fills caches
    if given.json:
        print(json.dumps(vars(found)))
    return conclude("Slots that are taken from a trial", figures(found), given)


def figures(found: Found) -> list[Figure]:
    """Return the rows of the table."""
    rows = {
        "  of it: until the trial sees it, with half a step of its own": found.signal,
        "  of it: storing and committing the checkpoint": found.storing,
        "  of it: from its last statement until the slot is free": found.leaving,
        "    floor: a Python that is told to end, until it is gone": found.floor,
        "besides: the trial's own checkpoint": found.own,
        "besides: from the submission to the decision": found.deciding,
    }
    return [
        Figure(
            "from the decision to the free slot, beyond the trial's own",
            median_of(found.beyond),
            "s",
            at_most=GOAL,
            note=spread(found.beyond),
        ),
        *(Figure(label, median_of(values), "s", note=spread(values)) for label, values in rows.items()),
    ]


if __name__ == "__main__":
    sys.exit(main())

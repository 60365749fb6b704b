"""200 trials that do nothing but report ten times, under ASHA, two at a time: what a search costs besides its training.

    python bench/noop.py                          ours in an embedded cluster with a warm pool; Ray Tune, syne-tune
    python bench/noop.py --quick --no-peers       20 trials, once
    python bench/noop.py --trials 50 --no-peers
    make bench-noop BENCH_ARGS="--json"

From the call that submits to the experiment's end. Each trial of ours is a process group of its own, in a directory of
its own, forked from the agent's zygote, and its reports are in the master's database (synced) before it counts as
done. Ray Tune starts an actor for each trial, or with `reuse_actors` gives all of them to two (no isolation); syne-tune
starts a process for each and keeps its results in memory. All three have the same rungs: 1, 3 and 9 or 10 reports.
The floor is the fork of a Python that has imported what a trial needs, so often, two at a time.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from measure import Figure, absent, ask_peer, beside, conclude, cpu_of, median_of, options, spread

from detlab.client import Client
from testbed.cluster import UNLIMITED, Cluster, running_cluster
from testbed.waiting import until

GOAL = 6.0
THEN = 219.0
"""Seconds of Ray Tune, as it is by default, when the goal was set."""
TRIAL = """
from detlab import core
with core.init() as context:
    lr = context.info.trial.hparams["lr"]
    for step in range(1, 11):
        context.train.report_validation_metrics(step, {"loss": lr + 1.0 / step, "batches": step})
        if context.preempt.should_preempt():
            break
"""
FLOOR = """
import os, sys, time
from detlab import core
began = time.perf_counter()
running = 0
for number in range(int(sys.argv[1])):
    if running == 2:
        os.wait()
        running -= 1
    if not os.fork():
        os._exit(0)
    running += 1
while running:
    os.wait()
    running -= 1
print(time.perf_counter() - began)
"""
PEERS = {
    "Ray Tune, an actor for each trial": ("ray", "noop_ray.py", ("0",), 0.2),
    "Ray Tune, reuse_actors": ("ray", "noop_ray.py", ("1",), 1.0),
    "syne-tune": ("syne", "noop_syne.py", (), 1.0),
}
"""Label -> environment, program, its arguments, and how large a part of the trials it is given: it takes minutes."""


def config_of(trials: int) -> dict[str, Any]:
    """Return the search."""
    return {
        "name": "noop",
        "entrypoint": ["python3", "train.py"],
        "hyperparameters": {"lr": {"type": "double", "minval": 0.0, "maxval": 1.0}},
        "searcher": {
            "name": "async_halving",
            "metric": "loss",
            "time_metric": "batches",
            "max_time": 10,
            "num_rungs": 3,
            "divisor": 3,
            "max_trials": trials,
            "max_concurrent_trials": 2,
        },
        "resources": {"slots_per_trial": 1},
        "max_restarts": 0,
    }


def parts_of(cluster: Cluster) -> dict[str, int]:
    """Return the process ids whose CPU is looked at."""
    return {part: pid for part in ("master", "agent", "proxy", "hub") if (pid := cluster.pid(part)) is not None}


def search(client: Client, cluster: Cluster, trials: int) -> tuple[float, dict[str, float]]:
    """Run one search; return its seconds and the CPU seconds of each part of the cluster.

    Raises:
        SystemExit: It did not end well.
    """
    pids = parts_of(cluster)
    before = {part: cpu_of([pid]) for part, pid in pids.items()}
    began = time.perf_counter()
    experiment = client.create_experiment(config_of(trials), files={"train.py": TRIAL})
    experiment.wait()
    seconds = time.perf_counter() - began
    cpu = {part: cpu_of([pid]) - before[part] for part, pid in pids.items()}
    with cluster.client() as http:
        view = http.get(f"experiments/{experiment.id}").json()
    if view["state"] != "COMPLETED" or view["trials"].get("COMPLETED") != trials:
        raise SystemExit(f"the search did not end well: {view['state']}, {view['trials']}\n{cluster.logs()}")
    return seconds, cpu


@dataclass
class Found:
    """What was measured, by round."""

    seconds: list[float] = field(default_factory=list)
    parts: list[dict[str, float]] = field(default_factory=list)
    """CPU seconds of the cluster's parts."""
    floors: list[float] = field(default_factory=list)
    peers: dict[str, list[float]] = field(default_factory=lambda: {label: [] for label in PEERS})


def one_round(found: Found, root: Path, trials: int, given: argparse.Namespace) -> None:
    """Measure ours in a fresh cluster, the floor, and the peers."""
    extra = {} if given.cold else {"DETLAB_WARM_POOL": "1"}
    (root / "cluster").mkdir(parents=True)
    with running_cluster(root / "cluster", slots=2, config=UNLIMITED, extra=extra) as cluster:
        if not given.cold:
            log = cluster.folder / "logs" / "agent.log"
            until(lambda: "is ready after" in log.read_text(errors="replace"), "the warm pool", 180)
        client = Client(cluster.url, token=cluster.token)
        search(client, cluster, 4)  # fills caches
        seconds, cpu = search(client, cluster, trials)
    found.seconds.append(seconds)
    found.parts.append(cpu)
    command = [sys.executable, "-c", FLOOR, str(trials)]
    found.floors.append(float(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    for number, (label, (environment, script, arguments, part)) in enumerate(PEERS.items()):
        if not absent(environment, given):
            made = root / f"peer{number}"
            made.mkdir()
            count = max(int(trials * part), 4)
            taken = ask_peer(environment, script, str(count), *arguments, str(made))["seconds"]
            found.peers[label].append(taken * trials / count)


def figures(found: Found, trials: int, given: argparse.Namespace) -> list[Figure]:
    """Return the rows of the table."""
    first = found.peers[next(iter(PEERS))]
    goal = beside(GOAL * trials / 200, THEN * trials / 200, median_of(first) if first else None)
    cpu = ", ".join(f"{part} {median_of(one.get(part, 0.0) for one in found.parts):.1f} s" for part in found.parts[0])
    note = f"{spread(found.seconds)}; CPU: {cpu}".removeprefix("; ")
    rows = [Figure(f"detlab, {trials} trials", median_of(found.seconds), "s", at_most=goal, note=note)]
    rows.append(Figure("floor: so many forks", median_of(found.floors), "s", note=spread(found.floors)))
    for label, (environment, _, _, part) in PEERS.items():
        taken = found.peers[label]
        if taken:
            note = "" if part == 1 else f"; measured with {max(int(trials * part), 4)} trials"
            rows.append(Figure(label, median_of(taken), "s", note=f"{spread(taken)}{note}".removeprefix("; ")))
        else:
            rows.append(Figure(label, None, note=absent(environment, given)))
    return rows


def main() -> int:
    """Print the table; with --check status 1 if the goal is missed."""

    def more(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--trials", type=int, default=200)
        parser.add_argument("--cold", action="store_true", help="without the warm pool")

    given = options(__doc__ or "", more)
    trials = 20 if given.quick else given.trials
    found = Found()
    with tempfile.TemporaryDirectory(prefix="detlab-bench-") as name:
        root = Path(name)
        root.chmod(0o755)
        for number in range(given.rounds):
            (root / str(number)).mkdir(mode=0o755)
            one_round(found, root / str(number), trials, given)
    return conclude("No-op trials of ten reports under ASHA, two at a time", figures(found, trials, given), given)


if __name__ == "__main__":
    sys.exit(main())

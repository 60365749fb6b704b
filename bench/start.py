"""How long a torch script takes from its submission to its first step and its first reported metric, cold and warm.

One embedded cluster with a warm pool. The same script is submitted again and again, in turn as it is (forked from the
pool) and with `DETLAB_WARM_POOL=0` among its variables (started cold). It imports torch, takes one optimizer step
and reports a metric; what it reports is when it did what. Beside them, in the same turn, the floors: a Python that
imports torch and takes the step, and a fork of a process that has, which takes it again.

    python bench/start.py [--rounds 5]
    python bench/start.py --check                  also fail (exit 1) when a goal is missed

All times are seconds from the call that submits, on one clock; "reported" is when `report_training_metrics` returns,
"seen" when the client that submitted reads the metric from its stream of events. Each attempt also reports whether
torch was there before its program asked for it: a warm turn that was started cold ends the benchmark, or the reverse.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from detlab.client import Client
from testbed.cluster import UNLIMITED, Cluster, running_cluster
from testbed.waiting import until

COLD_GOAL = 0.5
"""Seconds over the floor from the submission to the first metric of a cold start."""
WARM_GOAL = 0.25
"""Seconds from the submission to the first metric of a warm start."""
STEP = """
import torch
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.Adam(model.parameters())
torch.nn.functional.cross_entropy(model(torch.ones(4, 8)), torch.tensor([0, 1, 0, 1])).backward()
optimizer.step()
"""
TRIAL = f"""
import sys, time
began = time.time()
forked = float("torch" in sys.modules)
{STEP}
stepped = time.time()
from detlab import core
with core.init() as context:
    joined = time.time()
    times = dict(began=began, stepped=stepped, joined=joined)
    context.train.report_training_metrics(steps_completed=1, metrics=times)
    reported = time.time()
    context.train.report_validation_metrics(steps_completed=1, metrics=dict(loss=0.5, reported=reported, forked=forked))
"""
FORK = f"""
import os, time
{STEP}
def child(step):
    began = time.perf_counter()
    if not (pid := os.fork()):
        if step:
            exec(compile({STEP!r}, "step", "exec"), {{}})
        os._exit(0)
    os.waitpid(pid, 0)
    return time.perf_counter() - began
print(child(False), child(True))
"""
STAGES = ("began", "stepped", "joined", "reported", "seen")


def start(client: Client, *, warm: bool) -> dict[str, float]:
    """Submit the script; return the seconds to each stage.

    Raises:
        SystemExit: It was started the other way.
    """
    config: dict[str, Any] = {
        "name": "start",
        "entrypoint": ["python3", "train.py"],
        "searcher": {"name": "single", "metric": "loss"},
        "max_restarts": 0,
    }
    if not warm:
        config["environment"] = {"environment_variables": ["DETLAB_WARM_POOL=0"]}
    submitted = time.time()
    experiment = client.create_experiment(config, files={"train.py": TRIAL})
    found: dict[str, float] = {}
    # From the experiment's beginning: the first metric may be there before the stream is.
    for event in experiment.stream(0):
        if event.kind == "metrics":
            found.setdefault("seen", time.time())
            found |= event.data["metrics"]
        if "reported" in found:
            break
    experiment.wait()
    if bool(found["forked"]) != warm:
        raise SystemExit(f"experiment {experiment.id} was to start {'warm' if warm else 'cold'}, and did not")
    return {name: found[name] - submitted for name in STAGES}


def floors() -> dict[str, float]:
    """Measure what cannot be had for less, each in a process of its own with one thread."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", STEP], env=env, check=True)
    step = time.perf_counter() - began
    text = subprocess.run([sys.executable, "-c", FORK], env=env, check=True, capture_output=True, text=True).stdout
    fork, fork_step = map(float, text.split())
    return {"python + step": step, "fork": fork, "fork + step": fork_step}


def await_pool(cluster: Cluster) -> None:
    """Wait until the agent's zygote has said that it is ready."""
    log = cluster.folder / "logs" / "agent.log"
    until(lambda: "is ready after" in log.read_text(errors="replace"), "the warm pool is ready", 180)


def table(times: dict[str, list[dict[str, float]]], least: list[dict[str, float]]) -> str:
    """Return the medians as text."""
    lines = ["seconds from the submission, medians   " + "".join(f"{name:>10}" for name in STAGES)]
    for row, found in times.items():
        medians = [statistics.median(turn[name] for turn in found) for name in STAGES]
        lines.append(f"  {row:37}" + "".join(f"{value:10.3f}" for value in medians))
    lines.append("floors, medians")
    lines += [f"  {name:37}{statistics.median(turn[name] for turn in least):10.3f}" for name in least[0]]
    return "\n".join(lines)


def main() -> int:
    """Print the table and all times; with --check status 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--check", action="store_true", help="exit 1 when a goal is missed")
    given = parser.parse_args()
    times: dict[str, list[dict[str, float]]] = {"cold": [], "warm": []}
    least: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="detlab-bench-") as name:
        root = Path(name)
        root.chmod(0o755)
        with running_cluster(root, slots=1, config=UNLIMITED, extra={"DETLAB_WARM_POOL": "1"}) as cluster:
            await_pool(cluster)
            client = Client(cluster.url, token=cluster.token)
            for number in range(given.rounds + 1):
                turn = {row: start(client, warm=row == "warm") for row in times}
                floor = floors()
                if number:  # the first one fills caches
                    least.append(floor)
                    for row, found in turn.items():
                        times[row].append(found)
    print(table(times, least))
    print(json.dumps({"rounds": given.rounds, "all": times, "floors": least}))
    warm = statistics.median(turn["reported"] for turn in times["warm"])
    pairs = zip(times["cold"], least, strict=True)
    over = statistics.median(turn["reported"] - floor["python + step"] for turn, floor in pairs)
    print(f"cold over its floor: {over:.3f} s (goal {COLD_GOAL}); warm: {warm:.3f} s (goal {WARM_GOAL})")
    return int(given.check and (over > COLD_GOAL or warm > WARM_GOAL))


if __name__ == "__main__":
    sys.exit(main())

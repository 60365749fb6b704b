"""What one report of a metric costs the loop: `report_metrics` and `det.log` beside TensorBoard, W&B and MLflow.

    python bench/client.py                        all of it, medians of five processes each
    python bench/client.py --quick --no-peers     is ours in order? a few seconds
    python bench/client.py --peers wandb          ours beside one of them
    make bench-client BENCH_ARGS="--json"

A process runs a loop: a little work, then one call that logs one number. The figure is the mean time of such a call
without the slowest hundredth, which other work of the machine holds up. Ours appends to the task's spool before it
returns (a process that is killed then loses nothing that it reported); the launcher, another process, delivers it.
TensorBoard and W&B (offline) hand the number to a thread or a process, MLflow asks its server each time. The floor is a
bare `write` of the line that ours appends.
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
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from measure import OURS, Figure, absent, ask_peer, beside, conclude, median_of, options, percentile, spread
from mlflow_server import mlflow_server

GOAL = 20.0
"""Microseconds of one call."""
THEN = 45.0
"""Microseconds of TensorBoard's, the quickest peer, when the goal was set."""
CALLS = 5000
PEERS = {"tensorboard": (OURS, "TensorBoard SummaryWriter.add_scalar"), "wandb": ("wandb", "W&B run.log, offline")}
PEERS["mlflow"] = ("mlflow", "MLflow log_metric, its server on SQLite")


def measure(call: Callable[[int, float], object], calls: int) -> list[float]:
    """Return the seconds of each call in a loop; see `bench/peers/client_calls.py`, whose loop this is."""
    taken = []
    for step in range(calls):
        sum(range(2000))
        began = time.perf_counter()
        call(step, 1.0 / (step + 1))
        taken.append(time.perf_counter() - began)
    return taken[calls // 10 :]


def inside(calls: int, names: int) -> None:
    """Be a trial: report so often, in the directory that DET_TASK_DIR names, and print the times."""
    from detlab import core

    with core.init() as context:
        report = context.train.report_metrics
        found = {f"m{number}": 0.0 for number in range(names - 1)}
        ours = measure(lambda step, value: report("training", step, {"loss": value, **found}), calls)
    spool = Path(os.environ["DET_TASK_DIR"]) / "spool" / "metrics.jsonl"
    with spool.open("rb") as lines:
        line = lines.readline()
        written = 1 + sum(1 for _ in lines)
    assert written == calls, f"{written} lines for {calls} reports"
    bare = os.open(spool.with_name("bare"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    floor = measure(lambda step, value: os.write(bare, line), calls)
    print(json.dumps({"taken": ours, "floor": floor}))


def ours(calls: int, names: int) -> dict[str, list[float]]:
    """Run one trial's process against a stand-in for the task API; return its times and those of the floor."""
    from detlab.testing.master import MasterDouble
    from testbed.task_dirs import make_task_dir

    with tempfile.TemporaryDirectory(prefix="detlab-bench-") as folder, MasterDouble() as api:
        storage = {"type": "shared_fs", "host_path": f"{folder}/checkpoints"}
        task = make_task_dir(Path(folder) / "task", api.url, storage=storage)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DET_")}
        command = [sys.executable, __file__, "--inside", str(calls), str(names)]
        done = subprocess.run(
            command, env={**kept, "DET_TASK_DIR": str(task)}, capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise SystemExit(f"the trial's process failed:\n{done.stderr}")
    found: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def logging(calls: int) -> None:
    """Be a script that no cluster started: log so often, and print the times."""
    import detlab

    run = detlab.init(mode="offline", code=False, output=False)
    taken = measure(lambda step, value: run.log({"loss": value}, step), calls)
    run.finish()
    print(json.dumps(taken))


def logged(calls: int) -> list[float]:
    """Run one script's process; return its times."""
    with tempfile.TemporaryDirectory(prefix="detlab-bench-") as folder:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DET_")}
        command = [sys.executable, str(Path(__file__).resolve()), "--logging", str(calls)]
        done = subprocess.run(command, env=kept, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the script failed:\n{done.stderr}")
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def per_call(taken: list[float]) -> float:
    """Return microseconds of one call, without the hundredth that took longest."""
    return statistics.fmean(sorted(taken)[: -max(len(taken) // 100, 1)]) * 1e6


def figure(label: str, rounds: list[list[float]], goal: float | None = None) -> Figure:
    """Return the median of the rounds' means, in microseconds."""
    means = [per_call(taken) for taken in rounds]
    whole = median_of(statistics.fmean(taken) * 1e6 for taken in rounds)
    tail = median_of(percentile(taken, 95) * 1e6 for taken in rounds)
    note = f"{spread(means)}; p95 {tail:.0f}, mean of all {whole:.0f}".removeprefix("; ")
    return Figure(label, median_of(means), "us", at_most=goal, note=note)


def main() -> int:
    """Print the table; with --check status 1 if the goal is missed."""

    def more(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS), help="beside whom")
        parser.add_argument("--inside", nargs=2, type=int, help=argparse.SUPPRESS)
        parser.add_argument("--logging", type=int, help=argparse.SUPPRESS)

    given = options(__doc__ or "", more)
    if given.inside:
        inside(*given.inside)
        return 0
    if given.logging:
        logging(given.logging)
        return 0
    calls = 500 if given.quick else CALLS
    asked = {name: PEERS[name] for name in given.peers}
    why = {name: absent(environment, given) for name, (environment, _) in asked.items()}
    taken: dict[str, list[list[float]]] = {name: [] for name in ("one", "ten", "log", "floor", *asked)}
    with tempfile.TemporaryDirectory(prefix="detlab-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        address = ""
        if "mlflow" in asked and not why["mlflow"]:
            address = stack.enter_context(mlflow_server(folder / "mlflow")).address
        for number in range(given.rounds):
            one = ours(calls, 1)
            taken["one"].append(one["taken"])
            taken["floor"].append(one["floor"])
            taken["ten"].append(ours(calls, 10)["taken"])
            taken["log"].append(logged(calls))
            for peer, (environment, _) in asked.items():
                if not why[peer]:
                    count = max(calls // 10, 50) if peer == "mlflow" else calls
                    made = folder / f"{peer}{number}"
                    made.mkdir()
                    found = ask_peer(environment, "client_calls.py", peer, str(count), str(made), address)
                    taken[peer].append(found["taken"])
    peer_now = median_of(map(per_call, taken["tensorboard"])) if taken.get("tensorboard") else None
    figures = [
        figure("detlab report_metrics, one metric", taken["one"], beside(GOAL, THEN, peer_now)),
        figure("detlab report_metrics, ten metrics", taken["ten"]),
        figure("detlab det.log in a script, one metric", taken["log"], GOAL),
        figure("floor: one write of that line", taken["floor"]),
    ]
    for peer, (_, label) in asked.items():
        figures.append(Figure(label, None, note=why[peer]) if why[peer] else figure(label, taken[peer]))
    return conclude("One report, as the training loop waits for it", figures, given)


if __name__ == "__main__":
    sys.exit(main())

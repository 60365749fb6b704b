"""How long `det import mlflow` takes for 1,000 runs of 1,000 values: of a folder mlruns/, and of MLflow's own server.

    python bench/import_runs.py                  both, if MLflow is installed (make bench-peers PEERS=mlflow)
    python bench/import_runs.py --no-peers       the folder alone
    python bench/import_runs.py --quick          a tenth of the runs

A run has four metrics with 250 steps each, ten parameters, five tags and a small file. The command is run as people run
it, in a process of its own, against a master in another one on SQLite; then again, when there is nothing to do.
MLflow's server is on SQLite, too, and is filled before the clock starts; what it needs to answer is part of the time.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from master import Master, running_master
from measure import Figure, absent, conclude, median_of, options, spread
from mlflow_server import NAME as MLFLOW
from mlflow_server import Server as Mlflow
from mlflow_server import mlflow_server

from testbed.cluster import UNLIMITED, running_cluster

RUNS, METRICS, STEPS = 1000, 4, 250
GOAL, AGAIN_GOAL = 60.0, 20.0
SERVICE = "/services/detlab/"
T0 = 1_700_000_000_000


def value_at(run: int, metric: int, step: int) -> float:
    """Return a value of a metric."""
    return math.sin(step / 50 + metric + run)


def make_folder(root: Path, runs: int) -> None:
    """Write a folder mlruns/ as MLflow does."""
    write(root / "1" / "meta.yaml", "experiment_id: '1'\nname: bench\nlifecycle_stage: active\n")
    for run in range(runs):
        folder, name = root / "1" / f"{run:032x}", f"{run:032x}"
        head = f"run_id: {name}\nrun_name: run {run}\nstatus: 3\nstart_time: {T0 + run}\nend_time: {T0 + 99_999}\n"
        write(folder / "meta.yaml", f"{head}lifecycle_stage: active\nexperiment_id: '1'\n")
        for metric in range(METRICS):
            lines = (f"{T0 + step} {value_at(run, metric, step)} {step}\n" for step in range(STEPS))
            write(folder / "metrics" / f"m{metric}", "".join(lines))
        for number in range(10):
            write(folder / "params" / f"p{number}", f"{run}.{number}")
        for number in range(5):
            write(folder / "tags" / f"t{number}", f"{run}.{number}")
        write(folder / "artifacts" / "notes.txt", f"run {run}")


def write(path: Path, text: str) -> None:
    """Write a file, with the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def fill(server: Mlflow, runs: int) -> None:
    """Log as many runs into MLflow's own server, by its API."""
    experiment = server.ask("experiments/create", {"name": "bench"})["experiment_id"]

    def one(run: int) -> None:
        tags = [{"key": f"t{number}", "value": f"{run}.{number}"} for number in range(5)]
        body = {"experiment_id": experiment, "run_name": f"run {run}", "start_time": T0 + run, "tags": tags}
        name = server.ask("runs/create", body)["run"]["info"]["run_id"]
        points = [
            {"key": f"m{metric}", "value": value_at(run, metric, step), "timestamp": T0 + step, "step": step}
            for metric in range(METRICS)
            for step in range(STEPS)
        ]
        params = [{"key": f"p{number}", "value": f"{run}.{number}"} for number in range(10)]
        server.ask("runs/log-batch", {"run_id": name, "metrics": points})
        server.ask("runs/log-batch", {"run_id": name, "params": params})
        server.ask("runs/update", {"run_id": name, "status": "FINISHED", "end_time": T0 + 99_999})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(runs)))


def imported(master: Master, token: str, source: str, project: str, runs: int, outcome: str) -> float:
    """Run the command; return the seconds that it took."""
    command = [sys.executable, "-c", "from detlab.cli import main; main()", "import", "mlflow", source]
    environment = {**os.environ, "DET_URL": master.address + SERVICE, "DET_TOKEN": token}
    began = time.perf_counter()
    done = subprocess.run(
        [*command, "--project", project, "--json"], env=environment, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - began
    assert done.returncode == 0, done.stderr[-3000:]
    said: dict[str, Any] = json.loads(done.stdout)
    assert said["runs"][outcome] == runs, said
    if outcome == "copied":
        assert said["points"] == runs * METRICS * STEPS, said
    return seconds


def measured(cluster: Any, folder: Path, given: argparse.Namespace) -> list[Figure]:
    """Import from both, each time into an empty master."""
    runs = RUNS // 10 if given.quick else RUNS
    sources: dict[str, str] = {"a folder": str(folder / "mlruns")}
    make_folder(folder / "mlruns", runs)
    if absent(MLFLOW, given):
        found = times(cluster, folder, sources, runs, given)
    else:
        with mlflow_server(folder / "mlflow") as server:
            fill(server, runs)
            found = times(cluster, folder, {**sources, "MLflow's server": server.address}, runs, given)
    figures = []
    for name, (first, again) in found.items():
        note = f"{runs * METRICS * STEPS:,} values; {spread(first)}".removesuffix("; ")
        figures.append(Figure(f"{runs:,} runs of {name}", median_of(first), "s", at_most=GOAL * runs / RUNS, note=note))
        figures.append(Figure("  again, nothing new", median_of(again), "s", at_most=AGAIN_GOAL, note=spread(again)))
    if why := absent(MLFLOW, given):
        figures.append(Figure("MLflow's server", None, note=why))
    return figures


def times(
    cluster: Any, folder: Path, sources: dict[str, str], runs: int, given: argparse.Namespace
) -> dict[str, tuple[list[float], list[float]]]:
    """Return the seconds of the first import and of the one after it, for each source."""
    found: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in sources}
    for number in range(given.rounds):
        for name, source in sources.items():
            place = folder / f"master-{number}-{len(name)}"
            with running_master(cluster, place) as (master, _):
                token = cluster.token
                first, again = found[name]
                first.append(imported(master, token, source, "bench", runs, "copied"))
                again.append(imported(master, token, source, "bench", runs, "present"))
    return found


def main() -> int:
    """Measure, and print the table."""
    given = options(__doc__ or "")
    with tempfile.TemporaryDirectory(prefix="detlab-bench-") as name:
        root = Path(name)
        root.chmod(0o755)
        (root / "hub").mkdir()
        with running_cluster(root / "hub", slots=1, config=UNLIMITED) as cluster:
            figures = measured(cluster, root, given)
    return conclude("Import of MLflow's runs", figures, given)


if __name__ == "__main__":
    sys.exit(main())

"""How long a chart and a table wait for the master: long curves thinned, and a sorted page of many trials.

    python bench/chart.py                                      SQLite and PostgreSQL
    python bench/chart.py --databases sqlite --no-peers        ours alone
    python bench/chart.py --quick --no-peers --databases sqlite
    make bench-chart BENCH_ARGS="--json"

Asked through the REST API by a client that keeps its connection; each figure is the 95th percentile of 40 requests, the
median of the rounds. One trial has a curve of 100,000 points and one of 1,000,000; a search has had 10,000 trials,
and the database knows 12,000 names of metrics, 10,000 of them in one trial. The page is the first hundred trials with
`lr` at most 0.01, the least loss first. MLflow beside it: what its page asks for a chart of 100,000 points
(`get-history-bulk-interval`), and `runs/search` with `order_by` and a filter on a parameter, over 300 runs: its API
takes minutes to make thousands.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from ingest import Database, database_of
from load.grown import METRIC, config_of, grow
from master import API, Connection, Master, submit
from measure import Figure, absent, conclude, median_of, options, percentile, spread
from mlflow_server import NAME as MLFLOW
from mlflow_server import Server, mlflow_server
from sqlalchemy import select

from detlab_hub.store import InlineExecutor, Store
from detlab_hub.store.queries.metrics import curves as metrics
from detlab_hub.store.tables import TrialRow
from testbed.cluster import UNLIMITED, Cluster, running_cluster

LOOKS = 40
NAMES = 12_000
TRIALS = 10_000
LENGTHS = (100_000, 1_000_000)
GOALS = (30.0, 60.0, 50.0)
"""Milliseconds: the chart of 100,000, that of 1,000,000, the page."""
RUNS = 300
BATCH = 5_000
"""Points of a transaction: about what its rollups keep up with."""


def fill(url: str, experiment_id: int, trials: int, lengths: tuple[int, int], names: int) -> list[int]:
    """Write a search of ended trials, two curves and many names; return the ids of the trials with the curves."""
    grow(url, experiment_id, trials)
    store = Store.open(url, holder="bench", writer=InlineExecutor())
    try:
        some = select(TrialRow.id).where(TrialRow.experiment_id == experiment_id).order_by(TrialRow.id).limit(3)
        ids = store.read_sync(lambda s: list(s.scalars(some)))
        for trial_id, length in zip(ids, lengths, strict=False):
            for begin in range(0, length, BATCH):
                steps = range(begin, min(begin + BATCH, length))
                batch = [
                    metrics.ReportedMetrics("training", step, 0.0, {"long": math.sin(step / 900)}) for step in steps
                ]
                store.write_sync(lambda s, t=trial_id, b=batch: metrics.insert_reports(s, t, 1, b))
        wide = {f"layer/{number:05d}": number * 0.5 for number in range(names)}
        store.write_sync(lambda s: metrics.insert_report(s, ids[2], 1, "training", 0, 0.0, wide))
    finally:
        store.close()
    return ids


def look(ask: Callable[[], Any], rounds: int) -> list[float]:
    """Return the 95th percentile in milliseconds of each round."""
    found = []
    ask()
    for _ in range(rounds):
        taken = []
        for _ in range(LOOKS):
            began = time.perf_counter()
            ask()
            taken.append((time.perf_counter() - began) * 1000)
        found.append(percentile(taken, 95))
    return found


def measure(cluster: Cluster, folder: Path, database: Database, given: argparse.Namespace) -> list[Figure]:
    """Fill a database and look at it through a master."""
    shrink = 20 if given.quick else 1
    trials, lengths, names = TRIALS // shrink, (LENGTHS[0] // shrink, LENGTHS[1] // shrink), NAMES // shrink
    url = database.fresh("detlab_chart")
    master = Master(cluster, folder / "master", url)
    try:
        master.start()
        view = submit(master, config_of(trials * 3, 2))
        master.end()
        ids = fill(url, view["id"], trials, lengths, names)
        master.start()
        person = master.person()
        curve = f"{API}trials/{{}}/metrics?group=training&name=long&max_points="
        where = "sort=validation.loss&where=lr%3C%3D0.01"
        asks = [f"{curve.format(ids[0])}320", f"{curve.format(ids[1])}1000"]
        asks.append(f"{API}experiments/{view['id']}/trials?limit=100&{where}")
        found = [look(lambda ask=ask: person.ask("GET", ask), given.rounds) for ask in asks]
        check(person, asks, lengths)
        plain = look(lambda: person.ask("GET", "/services/detlab/health"), given.rounds)
    finally:
        master.end()
    labels = [f"{lengths[0]:,} points to 320", f"{lengths[1]:,} points to 1,000"]
    labels.append(f"page of 100 of {trials:,} trials, sorted, filtered")
    rows = [
        Figure(f"detlab, {database.kind}: {label}", median_of(taken), "ms", at_most=goal, note=spread(taken))
        for label, taken, goal in zip(labels, found, GOALS, strict=True)
    ]
    return [*rows, Figure("  floor: a request that asks nothing", median_of(plain), "ms", note=spread(plain))]


def check(person: Connection, asks: list[str], lengths: tuple[int, int]) -> None:
    """See that what was timed is what was asked for."""
    for ask, length in zip(asks, lengths, strict=False):
        (series,) = json.loads(person.ask("GET", ask))["items"]
        assert series["total"] == length
        assert {0, length - 1} <= set(series["steps"])
    page = json.loads(person.ask("GET", asks[2]))["items"]
    best = [trial["best_validation"] for trial in page]
    assert page
    assert best == sorted(best)
    assert all(trial["hparams"]["lr"] <= 0.01 for trial in page)


def measure_peer(server: Server, given: argparse.Namespace) -> list[Figure]:
    """Fill MLflow by its own API and look at it."""
    length, runs = (5000, 20) if given.quick else (LENGTHS[0], RUNS)
    run = server.make_run("chart")
    for begin in range(0, length, 1000):
        steps = range(begin, begin + 1000)
        batch = [{"key": "long", "value": math.sin(step / 900), "timestamp": step, "step": step} for step in steps]
        server.ask("runs/log-batch", {"run_id": run, "metrics": batch})
    experiment = server.ask("experiments/create", {"name": "page"})["experiment_id"]
    for number in range(runs):
        made = server.ask("runs/create", {"experiment_id": experiment})["run"]["info"]["run_id"]
        metric = {"key": METRIC, "value": number * 37 % 101, "timestamp": 1, "step": 1}
        params = [{"key": "lr", "value": str(10 ** (-1 - number % 4))}]
        server.ask("runs/log-batch", {"run_id": made, "metrics": [metric], "params": params})
    http = Connection(server.address, "")
    chart = f"/ajax-api/2.0/mlflow/metrics/get-history-bulk-interval?run_ids={run}&metric_key=long&max_results=320"
    wanted = {"experiment_ids": [experiment], "filter": "params.lr = '0.01'", "max_results": 100}
    body = json.dumps({**wanted, "order_by": [f"metrics.{METRIC} ASC"]}).encode()
    found = look(lambda: http.ask("GET", chart), given.rounds)
    page = look(lambda: http.ask("POST", "/api/2.0/mlflow/runs/search", body), given.rounds)
    return [
        Figure(f"  MLflow on SQLite: {length:,} points to 320", median_of(found), "ms", note=spread(found)),
        Figure(f"  MLflow on SQLite: page of 100 of {runs} runs", median_of(page), "ms", note=spread(page)),
    ]


def main() -> int:
    """Print the table; with --check status 1 if a goal is missed."""

    def more(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--databases", nargs="*", choices=["sqlite", "postgres"], default=["sqlite", "postgres"])

    given = options(__doc__ or "", more)
    rows: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="detlab-bench-") as name, ExitStack() as stack:
        root = Path(name)
        root.chmod(0o755)
        (root / "hub").mkdir()
        cluster = stack.enter_context(running_cluster(root / "hub", slots=1, config=UNLIMITED))
        for kind in given.databases:
            (root / kind).mkdir()
            with database_of(kind, root / kind) as database:
                rows += measure(cluster, root / kind, database, given)
        if why := absent(MLFLOW, given):
            rows.append(Figure("  MLflow", None, note=why))
        else:
            with mlflow_server(root / "mlflow") as server:
                rows += measure_peer(server, given)
    return conclude("Charts and tables, 95th percentile of a request", rows, given)


if __name__ == "__main__":
    sys.exit(main())

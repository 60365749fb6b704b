"""How the store does at size: what a point costs against bare sqlite3, and how long the views wait.

    python bench/store_scale.py --small          about half a minute
    python bench/store_scale.py                  1 million points, 10,000 trials, 12,000 names
    python bench/store_scale.py --points 10000000
    python bench/store_scale.py --url postgresql://user:password@127.0.0.1/empty_database

Nothing is kept. Ratios matter more than times: `insert` is compared with `executemany` of the very same rows into the
same table in the same number of commits (the first 200,000 points; the rest of the search is then filled in by one
SQL statement, so that 10 million take a minute), and each look is timed at a tenth of the points and at all of them.
"""

from __future__ import annotations

import argparse
import math
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import func, select, text

from detlab_hub.store import Store
from detlab_hub.store.engine import parse_url, sqlite_path
from detlab_hub.store.queries import experiments, trial_order
from detlab_hub.store.queries.metrics import curves as metrics
from detlab_hub.store.tables import ExperimentRow, MetricPoint, TrialRow

BATCH = 1000
"""Reports per transaction, as the wire allows."""
NAMES_PER_TRIAL = 10
EXPERIMENTS = 2000
LOOKS = 15
INSERTED = 200_000
"""Points of the search that are inserted as reports, to be timed."""


class Sizes:
    """What is made: a search of many trials, one trial with many names, one long curve."""

    def __init__(self, points: int, trials_: int, names: int) -> None:
        self.long_curve = points // 10
        self.names = names
        self.trials = trials_
        self.steps = max((points - self.long_curve - names) // (trials_ * NAMES_PER_TRIAL), 1)

    @property
    def points(self) -> int:
        return self.trials * NAMES_PER_TRIAL * self.steps + self.names + self.long_curve


def rows_of_search(store: Store, trial_count: int) -> tuple[int, list[int]]:
    def make(s: Any) -> tuple[int, list[int]]:
        others = [ExperimentRow(name=f"run {n}", owner="bench", state="COMPLETED") for n in range(EXPERIMENTS)]
        experiment = ExperimentRow(name="search", owner="bench", state="ACTIVE", metric="m0")
        s.add_all([*others, experiment])
        s.flush()
        made = [
            TrialRow(experiment_id=experiment.id, idx=idx, request_id=str(idx), state="ACTIVE", hparams={"lr": 0.1})
            for idx in range(trial_count)
        ]
        s.add_all(made)
        s.flush()
        return experiment.id, [row.id for row in made]

    return store.write_sync(make)


def reports(steps: range) -> Iterator[list[metrics.ReportedMetrics]]:
    """Batches of reports of one trial."""
    for begin in range(steps.start, steps.stop, BATCH):
        yield [
            metrics.ReportedMetrics(
                "training",
                step,
                float(step),
                {f"m{name}": math.sin(step / 50 + name) for name in range(NAMES_PER_TRIAL)},
            )
            for step in range(begin, min(begin + BATCH, steps.stop))
        ]


def insert_search(store: Store, trial_ids: list[int], steps: range) -> tuple[float, int]:
    """Return (seconds, commits) of inserting `steps` of every trial."""
    begun, commits = time.perf_counter(), 0
    for trial_id in trial_ids:
        for batch in reports(steps):
            store.write_sync(lambda s, t=trial_id, b=batch: metrics.insert_reports(s, t, 1, b))
            commits += 1
    return time.perf_counter() - begun, commits


FILL_SERIES = """
INSERT INTO series (trial_id, group_name, name_id, count, nan_count, posinf_count, neginf_count, finite_sum,
                    min, max, last, last_flag, last_step, unrolled)
SELECT t.id, 'training', n.id, :steps, 0, 0, 0, :steps * (:steps - 1) / 2.0, 0.0, :steps - 1.0, :steps - 1.0, 0,
       :steps - 1, :steps
FROM trials t CROSS JOIN metric_names n
WHERE t.id BETWEEN :first AND :last AND n.name IN ('m0', 'm1', 'm2', 'm3', 'm4', 'm5', 'm6', 'm7', 'm8', 'm9')
ORDER BY t.id, n.id
"""
FILL_POINTS = """
INSERT INTO points (series_id, step, run, value, flag, time)
WITH RECURSIVE c(step) AS (SELECT 0 UNION ALL SELECT step + 1 FROM c WHERE step + 1 < :steps)
SELECT s.id, c.step, 1, c.step * 1.0, 0, c.step * 1.0
FROM series s CROSS JOIN c WHERE s.trial_id BETWEEN :first AND :last ORDER BY s.id, c.step
"""


def fill_search(store: Store, trial_ids: list[int], steps: int) -> None:
    """Give the remaining trials their points without going through reports."""
    if not trial_ids:
        return
    values = {"first": trial_ids[0], "last": trial_ids[-1], "steps": steps}
    store.write_sync(lambda s: [s.execute(text(part), values) for part in (FILL_SERIES, FILL_POINTS)])


def insert_others(store: Store, wide: int, long: int, sizes: Sizes) -> None:
    names = {f"layer/{index:05d}": index * 0.5 for index in range(sizes.names)}
    store.write_sync(lambda s: metrics.insert_report(s, wide, 1, "training", 0, 0.0, names))
    for begin in range(0, sizes.long_curve, BATCH):
        end = min(begin + BATCH, sizes.long_curve)
        batch = [
            metrics.ReportedMetrics("training", step, 0.0, {"long": math.sin(step / 900)}) for step in range(begin, end)
        ]
        store.write_sync(lambda s, b=batch: metrics.insert_reports(s, long, 1, b))


def insert_bare(path: Path, rows: list[tuple[Any, ...]], commits: int) -> float:
    """Return the seconds that bare sqlite3 takes for the same rows, with the same durability."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL").fetchall()
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(
        "CREATE TABLE points (series_id BIGINT, step BIGINT, run INTEGER, value DOUBLE, flag SMALLINT, time DOUBLE,"
        " PRIMARY KEY (series_id, step)) WITHOUT ROWID"
    )
    size = math.ceil(len(rows) / commits)
    begun = time.perf_counter()
    for begin in range(0, len(rows), size):
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO points VALUES (?, ?, ?, ?, ?, ?)", rows[begin : begin + size])
        connection.execute("COMMIT")
    seconds = time.perf_counter() - begun
    connection.close()
    return seconds


def looks(store: Store, experiment_id: int, trial_ids: list[int], long: int) -> dict[str, float]:
    """Return the 95th percentile in milliseconds of what the views ask for."""
    some = trial_ids[:: max(len(trial_ids) // 16, 1)][:16]
    asks: dict[str, Callable[[Any], Any]] = {
        "experiment list (100, with counts)": lambda s: experiments.trial_counts(s, experiments.page(s, 100)),
        "trials page (100, with summaries)": lambda s: metrics.summaries_of(s, trial_order.ids(s, experiment_id, 100)),
        "curves (16 trials, 1 metric, 500 points)": lambda s: metrics.series(s, some, "training", ["m0"], 500),
        "one long curve (1000 points)": lambda s: metrics.series(s, [long], "training", ["long"], 1000),
        "best of the experiment": lambda s: metrics.experiment_best(s, experiment_id, "training", "m0", True),
        "names (first 1000)": lambda s: metrics.names(s, experiment_id),
    }
    found = {}
    for label, ask in asks.items():
        times = []
        for _ in range(LOOKS):
            begun = time.perf_counter()
            store.read_sync(ask)
            times.append((time.perf_counter() - begun) * 1000)
        found[label] = statistics.quantiles(times, n=20)[-1]
    return found


def measure(url: str, sizes: Sizes, scratch: Path) -> dict[str, float]:
    store = Store.open(url, holder="bench")
    try:
        experiment_id, trial_ids = rows_of_search(store, sizes.trials + 2)
        *search, wide, long = trial_ids
        timed = search[: max(INSERTED // (NAMES_PER_TRIAL * sizes.steps), 1)]
        seconds, commits = insert_search(store, timed, range(sizes.steps))
        fill_search(store, search[len(timed) :], sizes.steps)
        insert_others(store, wide, long, sizes)
        stored = store.read_sync(lambda s: s.scalar(select(func.count()).select_from(MetricPoint)))
        made = len(timed) * NAMES_PER_TRIAL * sizes.steps
        print(f"\n{stored:,} points, {len(trial_ids):,} trials, {sizes.names + NAMES_PER_TRIAL + 1:,} names")
        per_commit = made // commits
        print(f"  insert: {made / seconds:10,.0f} points/s, {per_commit} of them per commit")
        if sqlite_path(parse_url(url)) is not None:
            columns = (
                MetricPoint.series_id,
                MetricPoint.step,
                MetricPoint.run,
                MetricPoint.value,
                MetricPoint.flag,
                MetricPoint.time,
            )
            rows = store.read_sync(lambda s: [tuple(row) for row in s.execute(select(*columns).limit(made))])
            bare = insert_bare(scratch / f"bare{stored}.sqlite", rows, commits)
            print(f"  bare:   {made / bare:10,.0f} points/s; the store takes {seconds / bare:.1f} times as long")
        return looks(store, experiment_id, search, long)
    finally:
        store.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--names", type=int, default=12_000)
    parser.add_argument("--small", action="store_true", help="100,000 points, 500 trials, 1,000 names")
    parser.add_argument("--url", help="an empty database; default: SQLite in a temporary folder")
    options = parser.parse_args()
    if options.small:
        options.points, options.trials, options.names = 100_000, 500, 1_000
    with tempfile.TemporaryDirectory(prefix="detlab-bench-") as folder:
        scratch = Path(folder)
        found = []
        for part in (10, 1) if options.url is None else (1,):
            sizes = Sizes(options.points // part, max(options.trials // part, 1), max(options.names // part, 1))
            found.append(measure(options.url or f"sqlite:///{scratch}/at{part}.sqlite", sizes, scratch))
    *smaller, last = found
    print(f"\n{'95th percentile of':44}{'all':>12}" + f"{'a tenth':>12}{'ratio':>8}" * len(smaller))
    for label, time_ in last.items():
        others = "".join(f"{first[label]:9.1f} ms{time_ / first[label]:8.1f}" for first in smaller)
        print(f"  {label:42}{time_:9.1f} ms{others}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""How long filters take over 10,000 trials that report 12,000 metrics, on SQLite and on PostgreSQL.

    python bench/finding.py                      both databases, if PostgreSQL is installed
    python bench/finding.py --quick              a tenth of everything

Each row is the 95th percentile of a page of 100 trials of one user, as the service asks for it: ids in order and the
values of five columns. Half of the trials are another user's. Nothing is kept.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from measure import ROOT, Figure, conclude, median_of, options, percentile
from sqlalchemy import text

sys.path.insert(0, str(ROOT / "tests"))
from detlab_hub.core.filters.fields import FilterTable, field_of
from detlab_hub.core.filters.grammar import parse_field
from detlab_hub.core.filters.meaning import Asker, read
from detlab_hub.core.rights import Person
from detlab_hub.store import Store
from detlab_hub.store.bounded import bounded
from detlab_hub.store.queries.experiments import narrowed
from detlab_hub.store.queries.finding import search
from detlab_hub.store.tables import ExperimentMetric, ExperimentRow, MetricName, MetricSeries, TrialRow
from testbed.databases import postgres

TRIALS, NAMES, OWN = 10_000, 12_000, 50
"""Trials of each user, names in all, and how many of them each trial reports."""
OFTEN = ("accuracy", "loss", "f1")
LOOKS = 20
FILTERS = {
    "the metric of the search": "accuracy > 0.9",
    "another metric": "f1 > 0.9",
    "metric, hyperparameter, label": "accuracy > 0.9 and hparams.lr < 1e-3 and label = paper",
    "last, min and max of three metrics": "accuracy.last > 0.2 and loss.min < 0.8 and f1.max > 0.1",
    "a rare metric": "layer/00017.last > 0.5 or layer/00018.last > 0.5",
    "nothing fits": "accuracy > 2",
    "what is not": "not (accuracy < 0.5 or hp.optimizer = adam) and state != error",
}
COLUMNS = ("accuracy", "loss.last", "f1.max", "hparams.lr", "layer/00017")
GOAL = 100.0


def fill(s: Any, owner: str, trials: int, names: dict[str, int], drawn: random.Random) -> None:
    """Make the trials of one user, in experiments of 100, with series and points."""
    often, rare = [names[name] for name in OFTEN], [key for name, key in names.items() if name not in OFTEN]
    for begin in range(0, trials, 100):
        labels = ["paper"] if begin % 300 == 0 else []
        experiment = ExperimentRow(
            name=f"run {begin}", owner=owner, state="COMPLETED", metric="accuracy", labels=labels
        )
        s.add(experiment)
        s.flush()
        rows = [
            TrialRow(
                experiment_id=experiment.id,
                idx=idx,
                request_id=str(idx),
                state="COMPLETED",
                hparams={"lr": 10 ** drawn.uniform(-5, -1), "optimizer": drawn.choice(["adam", "sgd"]), "layers": 3},
                best_step=50,
                best_validation=drawn.random(),
            )
            for idx in range(min(100, trials - begin))
        ]
        s.add_all(rows)
        s.flush()
        s.bulk_insert_mappings(MetricSeries, [one for row in rows for one in series_of(row, often, rare, drawn)])
        seen = [{"experiment_id": experiment.id, "group_name": "validation", "name_id": key} for key in names.values()]
        s.bulk_insert_mappings(ExperimentMetric, seen)


def series_of(trial: TrialRow, often: list[int], rare: list[int], drawn: random.Random) -> Iterator[dict[str, Any]]:
    """Return the summaries of a trial's metrics, of which each second one goes on after the best validation."""
    for number, name_id in enumerate([*often, *drawn.sample(rare, min(OWN, len(rare)))]):
        value = drawn.random() if number else trial.best_validation or 0.0
        last_step = 50 if number % 2 else 100
        yield {
            "trial_id": trial.id,
            "group_name": "validation",
            "name_id": name_id,
            "count": 10,
            "min": value / 2,
            "max": value,
            "last": value,
            "last_step": last_step,
            "last_flag": 0,
        }


POINTS = """
INSERT INTO points (series_id, step, run, value, flag, time)
SELECT s.id, n.step, 1, s.last, 0, 0.0 FROM series s CROSS JOIN (
  SELECT 10 AS step UNION ALL SELECT 30 UNION ALL SELECT 50 UNION ALL SELECT 70 UNION ALL SELECT 100
) n
"""


def measured(url: str, name: str, trials: int, count: int) -> list[Figure]:
    """Fill an empty database, and return how long each filter takes there."""
    store = Store.open(url, holder="bench")
    drawn = random.Random(1)
    try:
        words = [*OFTEN, *(f"layer/{number:05d}" for number in range(count - len(OFTEN)))]

        def named(s: Any) -> dict[str, int]:
            rows = [MetricName(name=word) for word in words]
            s.add_all(rows)
            s.flush()
            return {row.name: row.id for row in rows}

        names = store.write_sync(named)
        for owner in ("ada", "bob"):
            store.write_sync(lambda s, owner=owner: fill(s, owner, trials, names, drawn))
        store.write_sync(lambda s: s.execute(text(POINTS)))
        store.write_sync(lambda s: s.execute(text("ANALYZE")))
        return [row(store, name, label, said) for label, said in FILTERS.items()]
    finally:
        store.close()


def row(store: Store, database: str, label: str, said: str) -> Figure:
    """Return the figure of one filter."""
    meaning = read(said, FilterTable.TRIALS, Asker("ada", 1e9))
    columns = [field_of(FilterTable.TRIALS, parse_field(name)) for name in COLUMNS]
    order = [search.SortKey(columns[0], descending=True)]
    found: list[float] = []
    count = 0
    for sort in ([], order):
        wanted = search.WantedRows(FilterTable.TRIALS, meaning, sort, narrowed(archived="no"))

        def look(s: Any, wanted: search.WantedRows = wanted) -> int:
            with bounded(s, 10.0, "the filter", ""):
                ids = search.page(s, Person("ada"), wanted, 101, None, 1e9)
                search.columns_of(s, FilterTable.TRIALS, ids, columns, 1e9)
            return len(ids)

        for _ in range(LOOKS):
            begun = time.perf_counter()
            count = store.read_sync(look)
            found.append((time.perf_counter() - begun) * 1000)
    half = len(found) // 2
    newest, best = percentile(found[:half], 95), percentile(found[half:], 95)
    note = f"{count} found; newest first {newest:.0f}, by accuracy {best:.0f}; median {median_of(found):.0f}"
    return Figure(f"{database}: {label}", max(newest, best), "ms", at_most=GOAL, note=note)


@contextmanager
def databases(folder: Path, only: str) -> Iterator[dict[str, str]]:
    """Give the addresses of empty databases, by name."""
    found = {"SQLite": f"sqlite:///{folder}/finding.sqlite"} if only in {"", "sqlite"} else {}
    if only == "sqlite":
        yield found
        return
    try:
        server = postgres.up(folder / "postgres")
    except postgres.CannotRun as error:
        print(f"PostgreSQL is not measured: {error}", file=sys.stderr)
        yield found
        return
    try:
        with server.database("finding") as url:
            yield found | {"PostgreSQL": url}
    finally:
        postgres.down(folder / "postgres")


def main() -> int:
    """Print the table; with --check status 1 if a goal is missed."""

    def more(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--only", default="", choices=["sqlite", "postgresql"])

    given = options(__doc__ or "", more)
    trials, names = (TRIALS // 10, NAMES // 10) if given.quick else (TRIALS, NAMES)
    rows: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="detlab-bench-") as name:
        Path(name).chmod(0o755)
        with databases(Path(name), given.only) as urls:
            for database, url in urls.items():
                rows += measured(url, database, trials, names)
    return conclude(f"Filters over {trials:,} trials and {names:,} metrics (95th percentile)", rows, given)


if __name__ == "__main__":
    sys.exit(main())

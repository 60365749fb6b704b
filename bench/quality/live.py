"""Populations that change their hyperparameters while they train, which no stored curve can answer: `pbt` and `pb2`.

Twenty networks of `models.py` with one hidden layer of 32 units train side by side, for 27 epochs in nine rounds;
random search trains as many, from the same first points, to their ends. Losses are of real training, on test data.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from measure import Figure

from detlab_hub.core.searchers import (
    CheckpointCommitted,
    CreateTrial,
    Decision,
    Event,
    PauseTrial,
    Started,
    StopTrial,
    TrialCreated,
    TrialExited,
    TrialPaused,
    ValidationReported,
)
from quality.kept import Kept
from quality.models import EPOCHS, Batch, Data, load
from quality.tuners import Search

TASKS = ("digits", "breast_cancer")
METHODS = ("random", "pbt", "pb2")
SIZE = 20
LENGTH = 3
WIDTH = 32
SPACE = {
    "lr": {"type": "log", "base": 10, "minval": -3.5, "maxval": 0.5},
    "momentum": {"type": "double", "minval": 0.0, "maxval": 0.98},
    "weight_decay": {"type": "log", "base": 10, "minval": -6.0, "maxval": -1.0},
}


@cache
def _data(task: str) -> Data:
    return load(task)


class Population:
    """A search whose trials train in the places of a batch.

    Attributes:
        losses: The least loss so far, after each epoch of all.
    """

    def __init__(self, name: str, task: str, seed: int) -> None:
        block: dict[str, Any] = {"name": name, "metric": "loss"}
        if name == "random":
            block |= {"max_trials": SIZE, "max_concurrent_trials": SIZE}
        else:
            block |= {
                "population_size": SIZE,
                "num_rounds": EPOCHS // LENGTH,
                "length_per_round": LENGTH,
                "time_metric": "time",
            }
        self._search = Search(block, SPACE, seed)
        self._trials: list[str] = []
        """The trial of each place."""
        self._points: list[Mapping[str, Any]] = []
        self.losses: list[float] = []
        for decision in self._step(Started()):
            if isinstance(decision, CreateTrial):
                self._trials.append(decision.request_id)
                self._points.append(decision.hparams)
        self._batch = Batch(_data(task), self._tuned(), seed)

    def run(self) -> None:
        """Train all rounds."""
        for epoch in range(1, EPOCHS + 1):
            self._batch.epoch()
            found = [float(loss) for loss in self._batch.validate()]
            self.losses.append(min([*found, *self.losses[-1:]]))
            decided = [
                decision
                for trial, loss in zip(list(self._trials), found, strict=True)
                for decision in self._step(ValidationReported(trial, loss, float(epoch)))
            ]
            if any(isinstance(decision, PauseTrial) for decision in decided):
                self._turn(epoch)

    def _turn(self, epoch: int) -> None:
        """Let all trials save and leave, then give the places of those that are stopped to the clones."""
        places = {trial: place for place, trial in enumerate(self._trials)}
        decided: list[Decision] = []
        for trial in list(self._trials):
            decided += self._step(CheckpointCommitted(trial, f"{trial}/{epoch}", epoch))
            decided += self._step(TrialPaused(trial))
        stopped = [decision.request_id for decision in decided if isinstance(decision, StopTrial)]
        clones = [decision for decision in decided if isinstance(decision, CreateTrial)]
        for trial, clone in zip(stopped, clones, strict=True):
            assert clone.parent is not None
            place, parent = places[trial], places[clone.parent.rsplit("/", maxsplit=1)[0]]
            for tensors in (self._batch.weights, self._batch.momenta):
                for tensor in tensors.values():
                    tensor[place] = tensor[parent]
            self._trials[place], self._points[place] = clone.request_id, clone.hparams
            self._step(TrialExited(trial))
        self._batch.tune(self._tuned())

    def _tuned(self) -> Sequence[Mapping[str, float]]:
        return [{**point, "width": WIDTH} for point in self._points]

    def _step(self, event: Event) -> list[Decision]:
        decided = list(self._search.step(event))
        for decision in list(decided):
            if isinstance(decision, CreateTrial):
                decided += self._step(TrialCreated(decision.request_id))
        return decided


def fill(kept: Kept, seeds: range, until: float) -> None:
    """Run all searches that are not kept, seed by seed; none begins after `until` on the monotonic clock."""
    for seed in seeds:
        for task in TASKS:
            for name in METHODS:
                if time.monotonic() > until:
                    return
                if (task, name, seed) not in kept:
                    population = Population(name, task, seed)
                    population.run()
                    kept.add((task, name, seed), {"losses": [round(loss, 5) for loss in population.losses]})


def rows(kept: Kept) -> list[Figure]:
    """Say with which part of the budget each method reaches the final loss of random search."""
    figures = []
    for task in TASKS:
        found = {name: kept.of(task, name) for name in METHODS}
        seeds = sorted(set.intersection(*map(set, found.values())))
        if not seeds:
            continue
        means = {
            name: [statistics.mean(column) for column in zip(*(of[seed]["losses"] for seed in seeds), strict=True)]
            for name, of in found.items()
        }
        target = means["random"][-1]
        for name, mean in means.items():
            share = next(((epoch + 1) / EPOCHS for epoch, loss in enumerate(mean) if loss <= target), None)
            won = sum(found[name][seed]["losses"][-1] < found["random"][seed]["losses"][-1] for seed in seeds)
            note = f"loss {mean[-1]:.4f} at the end, random {target:.4f}; less in {won} of {len(seeds)} seeds"
            figures.append(Figure(f"live {task}, {name}: budget", share, "of random's", note=note))
    return figures

"""Learning curves as tasks of a search: what each point of a space reports, and after how much training.

Two sources: networks that were trained here once (`make_curves.py`), in epochs; and LCDB (`make_lcdb.py`), where a
point is a learner and a split of the data, and training is counted in samples, as if a learner could take in more.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

NETWORKS = Path(__file__).parent / "data" / "curves.npz"
LCDB = Path(__file__).parent / "data" / "lcdb.npz"
NONE = 65_535
SIZES = {"lr": 12, "momentum": 4, "weight_decay": 5, "width": 5}
"""Of the networks' space: how many ordered values each hyperparameter has; 1,200 points in all."""
Curve = list[tuple[int, float]]
"""Reports: value of the time metric, loss."""


@dataclass(frozen=True)
class CurveTask:
    """A task.

    Attributes:
        name: Such as "digits" or "lcdb 44".
        space: A `hyperparameters` block.
        curve: What a point reports.
        max_time: Value of the time metric when a point is done.
        best: The smallest loss that any point ever reports: regret 0.
        usual: The median of the last losses: regret 1.
        trials: Of random search, all trained to their ends: the budget of every method.
    """

    name: str
    space: dict[str, Any]
    curve: Callable[[Mapping[str, Any]], Curve]
    max_time: int
    best: float
    usual: float
    trials: int

    @property
    def budget(self) -> float:
        """Units of training that random search takes."""
        return float(self.trials * self.max_time)

    def regret(self, loss: float) -> float:
        """Normalise a loss."""
        return (loss - self.best) / max(self.usual - self.best, 1e-9)


def points(sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """List all points of a space of ordered values; the last name counts fastest."""
    for indices in itertools.product(*(range(size) for size in sizes.values())):
        yield dict(zip(sizes, indices, strict=True))


def network_tasks() -> list[str]:
    """List the tasks whose networks were trained."""
    return list(np.load(NETWORKS)) if NETWORKS.exists() else []


def network_task(name: str) -> CurveTask:
    """Return a task of networks."""
    losses = np.load(NETWORKS)[name].astype(np.float64)

    def curve(hparams: Mapping[str, Any]) -> Curve:
        row = 0
        for axis, size in SIZES.items():
            row = row * size + int(hparams[axis])
        return [(epoch + 1, float(loss)) for epoch, loss in enumerate(losses[row])]

    space = {axis: {"type": "int", "minval": 0, "maxval": size - 1} for axis, size in SIZES.items()}
    return CurveTask(name, space, curve, losses.shape[1], float(losses.min()), float(np.median(losses[:, -1])), 200)


@cache
def _lcdb() -> dict[str, Any]:
    return dict(np.load(LCDB))


def lcdb_tasks() -> list[str]:
    """List the 248 tasks."""
    return [f"lcdb {number}" for number in _lcdb()["tasks"]]


def lcdb_task(name: str) -> CurveTask:
    """Return a task of LCDB: 20 learners (those that have curves there) on 5 splits."""
    found = _lcdb()
    at = list(found["tasks"]).index(int(name.split()[1]))
    errors, sizes = found["errors"][at], found["sizes"][at]
    learners = {
        str(learner): errors[row] for row, learner in enumerate(found["learners"]) if (errors[row] != NONE).any()
    }

    def curve(hparams: Mapping[str, Any]) -> Curve:
        values = learners[hparams["learner"]][hparams["split"]]
        return [(int(size), int(value) / 1000) for size, value in zip(sizes, values, strict=True) if value != NONE]

    space = {
        "learner": {"type": "categorical", "vals": list(learners)},
        "split": {"type": "int", "minval": 0, "maxval": 4},
    }
    curves = [one for learner in learners for split in range(5) if (one := curve({"learner": learner, "split": split}))]
    last = sorted(one[-1][1] for one in curves)
    best = min(loss for one in curves for _, loss in one)
    return CurveTask(name, space, curve, int(sizes.max()), best, last[len(last) // 2], 40)

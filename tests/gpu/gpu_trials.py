"""The trial that most checks train: a small network with dropout on made-up data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

from detlab import pytorch

BATCH = 64
CONFIG: dict[str, Any] = {
    "searcher": {"name": "single", "metric": "validation_loss"},
    "reproducibility": {"experiment_seed": 7},
}


def network(dropout: float = 0.3) -> nn.Module:
    """Return the network with weights that are always the same."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Dropout(dropout), nn.Linear(256, 10))


def data(count: int = 40 * BATCH) -> TensorDataset:
    """Return samples of ten classes that a linear map tells apart."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(count, 64, generator=generator)
    return TensorDataset(x, (x @ torch.randn(64, 10, generator=generator)).argmax(1))


@dataclass
class Course:
    """How to train, and what was seen.

    Attributes:
        net: Makes the network.
        prepare: Called with the trial once it has context and network, before its optimizer is made.
        forward: Called with the trial and a batch's input; by default the model itself.
        overflows: Batches whose loss is so large that gradients are infinite.
        scaler: Of the trial, if `prepare` made one.
        batches: Inputs and targets of training, in order.
        losses: Of all batches, in order.
        scales: Of losses, when each batch begins.
        saved: Checkpoints by the number of batches.
    """

    net: Callable[[], nn.Module] = network
    prepare: Callable[[Any], None] = lambda trial: None
    forward: Callable[[Any, torch.Tensor], torch.Tensor] = lambda trial, x: trial.model(x)
    overflows: frozenset[int] = frozenset()
    scaler: Any = None
    batches: list[Any] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    scales: list[float] = field(default_factory=list)
    saved: dict[int, str] = field(default_factory=dict)


class Noting(pytorch.PyTorchCallback):
    """Remembers the checkpoint of each step."""

    def __init__(self, course: Course) -> None:
        self._course = course
        self._begun: list[int] = []

    def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
        self._begun.append(len(self._course.losses))

    def on_checkpoint_upload_end(self, uuid: str) -> None:
        if self._begun:  # only the chief has begun one; it is written in the background, in order
            self._course.saved[self._begun.pop(0)] = uuid


class CourseTrial(pytorch.PyTorchTrial):
    """Trains as a `Course` says."""

    def __init__(self, context: pytorch.PyTorchTrialContext, course: Course) -> None:
        self.context, self.course = context, course
        course.prepare(self)
        self.model = context.wrap_model(course.net())
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9))
        self.data = data()

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, torch.Tensor]:
        course = self.course
        x, y = batch
        if self.context._scaler is not None:
            course.scales.append(self.context._scaler.get_scale())
        course.batches.append((x.cpu(), y.cpu()))
        loss = nn.functional.cross_entropy(course.forward(self, x), y)
        course.losses.append(loss.item())
        factor = 1e36 if batch_idx in course.overflows else 1.0
        scaled = loss * factor
        self.context.backward(scaled if course.scaler is None else course.scaler.scale(scaled))
        self.context.step_optimizer(self.optimizer, scaler=course.scaler)
        if course.scaler is not None:
            course.scaler.update()
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, torch.Tensor]:
        x, y = batch
        return {"validation_loss": nn.functional.cross_entropy(self.course.forward(self, x), y)}

    def build_training_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(self.data, batch_size=BATCH, shuffle=True, drop_last=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(TensorDataset(*self.data[:BATCH]), batch_size=BATCH)

    def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
        return {"noting": Noting(self.course)}


def fit(course: Course, storage: Path, length: int, *, every: int | None = None, start: str | None = None) -> Course:
    """Train with the real `Trainer`, and check that it was on the device that is meant."""
    with pytorch.init(
        hparams={}, exp_conf=CONFIG, checkpoint_storage=str(storage), enable_tensorboard_logging=False
    ) as context:
        trial = CourseTrial(context, course)
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
        assert context.device.type == wanted, f"it trains on {context.device}, not on {wanted}"
        pytorch.Trainer(trial, context).fit(
            max_length=pytorch.Batch(length),
            checkpoint_period=None if every is None else pytorch.Batch(every),
            checkpoint_policy="none",
            latest_checkpoint=start,
        )
    return course

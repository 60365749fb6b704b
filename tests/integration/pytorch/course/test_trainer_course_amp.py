"""The course of a trial in fp16 with a gradient scaler, against formulas: weights, losses, the scale; and its resume.

With all x = 1 and a learning rate of 1/4 every weight, loss and gradient is a small multiple of a power of two, which
fp16 holds exactly: there is no rounding, only overflow. The gradient is 2 (1 - w), and overflows where `scale` times
that is more than fp16 can say; then the step is skipped, and the scale backs off.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from trainer_one_weight import Samples, newest, train

from detlab import pytorch
from detlab.pytorch import Batch

RATE = 0.25
OVERFLOW = 65520.0
"""From here on a number is infinite in fp16."""

SCALES = [8192.0, 32768, 131072, 65536, 262144, 131072, 524288, 262144, 1048576, 524288, 2097152, 1048576]
"""What the first scaler below has before each batch: four times as much after a good one, half after a bad one."""

Entry = tuple[int, float, float, float]
"""Batch, its loss, the weight and the scale before it."""


class Scaled(pytorch.PyTorchTrial):
    """One weight, its forward pass in fp16; `log` has an `Entry` for each batch."""

    def __init__(self, context: pytorch.PyTorchTrialContext, *, clip: float | None = None, **scaler: Any) -> None:
        self.context = context
        self.clip = clip
        model = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(model.weight)
        self.model = context.wrap_model(model)
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=RATE))
        self.scaler = self.make_scaler(**scaler)
        self.log: list[Entry] = []
        self.begun_with: dict[str, Any] | None = None

    def make_scaler(self, **scaler: Any) -> Any:
        return self.context.wrap_scaler(torch.amp.GradScaler("cpu", **scaler))

    def build_training_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(Samples(40), batch_size=4)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(Samples(8), batch_size=4)

    def loss(self, batch: torch.Tensor) -> torch.Tensor:
        x = batch.float()[:, None]
        with torch.autocast("cpu", dtype=torch.float16):
            output = self.model(x)
        assert output.dtype is torch.float16
        return ((output.float() - x) ** 2).mean()

    def train_batch(self, batch: torch.Tensor, epoch_idx: int, batch_idx: int) -> dict[str, torch.Tensor]:
        if self.begun_with is None:
            self.begun_with = self.scaler.state_dict()
        weight, scale = float(next(self.model.parameters()).detach()), self.scaler.get_scale()
        loss = self.loss(batch)
        self.context.backward(self.scaler.scale(loss))
        clip = None if self.clip is None else (lambda parameters: nn.utils.clip_grad_value_(parameters, self.clip))
        self.context.step_optimizer(self.optimizer, clip_grads=clip, scaler=self.scaler)
        if self.context._is_sync_step:
            self.scaler.update()
        self.log.append((batch_idx, float(loss.detach()), weight, scale))
        return {"loss": loss}

    def evaluate_batch(self, batch: torch.Tensor, batch_idx: int) -> dict[str, torch.Tensor]:
        return {"val_loss": self.loss(batch)}


class Automatic(Scaled):
    """The same by `experimental.use_amp()`: bf16 on a CPU, which overflows only where the loss is huge."""

    HUGE = (3, 4, 9)

    def make_scaler(self, **scaler: Any) -> Any:
        self.context.experimental.use_amp()
        made = self.context._scaler
        made.set_growth_interval(2)
        return made

    def loss(self, batch: torch.Tensor) -> torch.Tensor:
        x = batch.float()[:, None]
        return ((self.model(x) - x) ** 2).mean()

    def train_batch(self, batch: torch.Tensor, epoch_idx: int, batch_idx: int) -> dict[str, torch.Tensor]:
        if self.begun_with is None:
            self.begun_with = self.scaler.state_dict()
        weight, scale = float(next(self.model.parameters()).detach()), self.scaler.get_scale()
        loss = self.loss(batch)
        self.context.backward(loss * (1e38 if batch_idx in self.HUGE else 1.0))
        self.context.step_optimizer(self.optimizer)
        self.log.append((batch_idx, float(loss.detach()), weight, scale))
        return {"loss": loss}


def course(
    *, scale: float, growth: float, backoff: float, interval: int, aggregation: int = 1, clip: float | None = None
) -> Iterator[Entry]:
    """What the formulas say of each batch; the definition of loss scaling, in plain numbers."""
    weight, good = 0.0, 0
    for batch in itertools.count():
        yield batch, (1 - weight) ** 2, weight, scale
        if (batch + 1) % aggregation:
            continue
        gradient = 2 * (1 - weight)
        if gradient * scale >= OVERFLOW:
            scale, good = scale * backoff, 0
            continue
        weight += RATE * (gradient if clip is None else min(gradient, clip))
        good += 1
        if good == interval:
            scale, good = scale * growth, 0


def settings(scale: float, growth: float, backoff: float, interval: int) -> dict[str, Any]:
    return {"init_scale": scale, "growth_factor": growth, "backoff_factor": backoff, "growth_interval": interval}


SCALERS = [(8192.0, 4.0, 0.5, 1), (2.0**19, 2.0, 0.25, 2), (65536.0, 16.0, 0.5, 2)]


@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("aggregation", [1, 2])
@pytest.mark.parametrize("scaler", SCALERS)
def test_amp_scale_trace(storage: str, scaler: Any, aggregation: int, clip: float | None) -> None:
    batches = 12 * aggregation
    trial = train(
        storage, Scaled, fit={"max_length": Batch(batches)}, aggregation=aggregation, clip=clip, **settings(*scaler)
    )
    scale, growth, backoff, interval = scaler
    expected = course(
        scale=scale, growth=growth, backoff=backoff, interval=interval, aggregation=aggregation, clip=clip
    )
    assert trial.log == list(itertools.islice(expected, batches))  # to the bit
    scales = [entry[3] for entry in trial.log]
    if scaler == SCALERS[0] and aggregation == 1 and clip is None:
        assert scales == SCALES
    changes = {after / before for before, after in itertools.pairwise(scales)} - {1.0}
    assert changes == {growth, backoff}, "the scale should have grown and backed off"


def test_amp_scale_trace_of_use_amp(storage: str) -> None:
    trial = train(storage, Automatic, fit={"max_length": Batch(12)})
    scale, good, weight = 65536.0, 0, 0.0
    for batch, loss, seen, found in trial.log:
        assert (loss, seen, found) == ((1 - weight) ** 2, weight, scale)
        if batch in Automatic.HUGE:
            scale, good = scale / 2, 0
            continue
        weight, good = weight + RATE * 2 * (1 - weight), good + 1
        if good == 2:
            scale, good = scale * 2, 0
    assert [entry[3] / 65536 for entry in trial.log] == [1, 1, 2, 2, 1, 0.5, 0.5, 1, 1, 2, 1, 1]


@pytest.mark.parametrize("at", [1, 3, 6])
@pytest.mark.parametrize("scaler", SCALERS)
def test_amp_resume_is_exact(storage: str, scaler: Any, at: int) -> None:
    options = settings(*scaler)
    calm = train(storage, Scaled, fit={"max_length": Batch(14), "validation_period": Batch(at)}, **options)
    first = train(storage, Scaled, fit={"max_length": Batch(at)}, **options)
    other = settings(2.0, 3.0, 0.1, 7)  # all of it comes from the checkpoint, not from what the trial says now
    rest = train(storage, Scaled, fit={"max_length": Batch(14), "latest_checkpoint": newest(storage)}, **other)
    assert rest.begun_with == first.scaler.state_dict()
    assert first.log + rest.log == calm.log
    assert rest.scaler.state_dict() == calm.scaler.state_dict()
    assert torch.equal(next(rest.model.parameters()), next(calm.model.parameters()))

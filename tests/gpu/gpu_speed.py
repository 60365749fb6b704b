"""What the trainer costs over a loop written by hand: per step, and while a checkpoint is taken."""

from __future__ import annotations

import itertools
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from gpu_report import Run
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

from detlab import pytorch

BATCH = 64
TENSORS = 20
WARM_UP = 50
"""Steps that are not counted."""


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


class Samples(Dataset[Any]):
    """Data as users write it, sample by sample, which all loaders put together in the same way."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(1)
        self._x = torch.randn(400 * BATCH, 64, generator=generator)
        self._y = torch.randint(0, 10, (len(self._x),), generator=generator)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self._x[index], self._y[index]

    def __len__(self) -> int:
        return len(self._x)


class Clock:
    """Times a stretch of steps; `tick` is called once a step."""

    def __init__(self, device: torch.device, steps: int) -> None:
        self._device, self._steps = device, steps
        self._seen = 0
        self._began = 0.0
        self.per_step = 0.0

    def tick(self) -> None:
        if self._seen == WARM_UP:
            _synchronize(self._device)
            self._began = time.perf_counter()
        if self._seen == WARM_UP + self._steps:
            _synchronize(self._device)
            self.per_step = (time.perf_counter() - self._began) / self._steps
        self._seen += 1


def _by_hand(device: torch.device, steps: int) -> float:
    """Return the seconds per step of a loop that reports its loss every 100 batches, as the trainer does."""
    clock, model = Clock(device, steps), _network().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Samples(), batch_size=BATCH, shuffle=True, drop_last=True)
    running, count = torch.zeros((), device=device), 0
    while True:
        for x, y in loader:
            clock.tick()
            loss = nn.functional.cross_entropy(model(x.to(device, non_blocking=True)), y.to(device, non_blocking=True))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            running += loss.detach()
            count += 1
            if count % 100 == 0:
                running.item()
                running.zero_()
            if clock.per_step:
                return clock.per_step


class SpeedTrial(pytorch.PyTorchTrial):
    """The same loop as a trial."""

    def __init__(self, context: pytorch.PyTorchTrialContext, net: nn.Module, before: Any) -> None:
        self.context, self.before = context, before
        self.model = context.wrap_model(net)
        trained = [weight for weight in self.model.parameters() if weight.requires_grad]
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(trained, lr=0.01))
        self.data = Samples()

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, torch.Tensor]:
        self.before()
        x, y = batch
        loss = nn.functional.cross_entropy(self.model(x), y)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, torch.Tensor]:
        x, y = batch
        return {"validation_loss": nn.functional.cross_entropy(self.model(x), y)}

    def build_training_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(self.data, batch_size=BATCH, shuffle=True, drop_last=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(Subset(self.data, range(BATCH)), batch_size=BATCH)


def _trained(folder: Path, steps: int) -> float:
    """Return the seconds per step of `Trainer.fit`."""
    with pytorch.init(
        hparams={}, checkpoint_storage=str(folder / "storage"), enable_tensorboard_logging=False
    ) as context:
        clock = Clock(context.device, steps)
        trial = SpeedTrial(context, _network(), clock.tick)
        pytorch.Trainer(trial, context).fit(
            max_length=pytorch.Batch(WARM_UP + steps + 1), checkpoint_policy="none", reporting_period=pytorch.Batch(100)
        )
    return clock.per_step


def step(run: Run) -> None:
    """A step by hand, again by hand (what differs is noise), and of the trainer, in turns."""
    turns, steps = (2, 60) if run.cpu or run.quick else (5, 400)
    device = torch.device(run.device)
    found: dict[str, list[float]] = {"hand-written": [], "hand-written again": [], "detlab": []}
    for turn in range(turns):
        found["hand-written"].append(_by_hand(device, steps))
        found["detlab"].append(_trained(run.folder / str(turn), steps))
        found["hand-written again"].append(_by_hand(device, steps))
    base = found["hand-written"]
    for name, seconds in found.items():
        over = statistics.median(a - b for a, b in zip(seconds, base, strict=True))
        note = "" if name == "hand-written" else f"{over * 1e6:+.0f} us over the loop written by hand in the same turn"
        run.figure(f"step, {name}", f"{statistics.median(seconds) * 1e6:.0f} us", note)
    run.figure("steps", f"{turns} turns of {steps}", "MLP 64-512-512-10, batch size 64")
    assert min(found["detlab"]) < 3 * min(base), "a step of the trainer takes three times as long"


class Large(nn.Module):
    """A network most of whose weights are frozen: a step is small beside a checkpoint."""

    def __init__(self, megabytes: int) -> None:
        super().__init__()
        count = megabytes * 250_000 // TENSORS
        self.frozen = nn.ParameterList([nn.Parameter(torch.rand(count), requires_grad=False) for _ in range(TENSORS)])
        self.net = _network()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)


class Begun(pytorch.PyTorchCallback):
    """At which steps checkpoints were begun and were committed."""

    def __init__(self, seen: list[float]) -> None:
        self._seen = seen
        self.begun: list[int] = []
        self.ended: list[int] = []

    def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
        self.begun.append(len(self._seen))

    def on_checkpoint_upload_end(self, uuid: str) -> None:
        self.ended.append(len(self._seen))


def checkpoint(run: Run) -> None:
    """How long a checkpoint stops the loop: the trainer's, beside a bare copy to the host and `torch.save`."""
    megabytes, times, period = (50, 2, 40) if run.cpu or run.quick else (500, 4, 4000)
    seen: list[float] = []
    watch = Begun(seen)

    class Trial(SpeedTrial):
        def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
            return {"watch": watch}

    with pytorch.init(
        hparams={}, checkpoint_storage=str(run.folder / "storage"), enable_tensorboard_logging=False
    ) as context:
        device = context.device

        def before() -> None:
            _synchronize(device)
            seen.append(time.perf_counter())

        trial = Trial(context, Large(megabytes), before)
        pytorch.Trainer(trial, context).fit(
            max_length=pytorch.Batch(period * times + period // 2),
            checkpoint_period=pytorch.Batch(period),
            checkpoint_policy="none",
        )
        _beside(run, trial.model, megabytes, times)
    steps = [after - earlier for earlier, after in itertools.pairwise(seen)]
    holding = {begun - 1 for begun in watch.begun if 0 < begun <= len(steps)}
    writing = {step for begun, ended in zip(watch.begun, watch.ended, strict=False) for step in range(begun, ended)}
    calm = statistics.median(step for index, step in enumerate(steps) if index not in writing | holding)
    assert len(holding) >= times, (watch.begun, len(steps))
    stalls = [steps[index] - calm for index in sorted(holding)]
    run.figure("Trainer.fit: step without a checkpoint", f"{calm * 1e6:.0f} us")
    run.figure(
        "Trainer.fit: longer by, step with a checkpoint",
        f"{statistics.median(stalls):.4f} s",
        f"{min(stalls):.4f} … {max(stalls):.4f}, {megabytes} MB",
    )
    busy = [steps[index] for index in writing - holding if index < len(steps)]
    if busy:
        run.figure(
            "Trainer.fit: step while one is written", f"{statistics.median(busy) * 1e6:.0f} us", f"{len(busy)} steps"
        )


def _beside(run: Run, model: nn.Module, megabytes: int, times: int) -> None:
    """Time what a loop written by hand would do: copy the weights to the host, and `torch.save`."""
    tensors = [value.detach() for value in model.state_dict().values()]
    device = tensors[0].device
    kept = [torch.empty(value.shape, dtype=value.dtype, pin_memory=device.type == "cuda") for value in tensors]
    copies, saves = [], []
    for _ in range(times):
        _synchronize(device)
        began = time.perf_counter()
        for copy, value in zip(kept, tensors, strict=True):
            copy.copy_(value, non_blocking=True)
        _synchronize(device)
        copies.append(time.perf_counter() - began)
        began = time.perf_counter()
        torch.save(model.state_dict(), run.folder / "state.pth")
        saves.append(time.perf_counter() - began)
        (run.folder / "state.pth").unlink()
    run.figure("bare copy to page-locked memory", f"{statistics.median(copies):.4f} s", f"{megabytes} MB")
    run.figure("torch.save, not synced", f"{statistics.median(saves):.4f} s", f"{megabytes} MB")

"""How long a checkpoint stops the loop: the writer alone, and a whole `Trainer.fit`, beside a bare copy and torch.save.

python bench/trainer/trainer_checkpoint.py FOLDER MEGABYTES TIMES      started by bench/trainer/trainer.py
"""

from __future__ import annotations

import itertools
import shutil
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

from detlab import core, pytorch
from detlab.pytorch.checkpoint.writer import CheckpointWriter

GOAL = 0.05
"""Seconds for 500 MB."""
TENSORS = 20


def line(label: str, seconds: list[float], note: str = "") -> None:
    low, high = min(seconds), max(seconds)
    print(f"  {label:46}{statistics.median(seconds):9.4f} s   ({low:.4f} … {high:.4f})   {note}".rstrip(), flush=True)


def alone(folder: Path, megabytes: int, times: int) -> None:
    """Time, in turns: a copy into memory that is already there, `submit`, torch.save."""
    tensors = {f"layer{index}": torch.rand(megabytes * 250_000 // TENSORS) for index in range(TENSORS)}
    kept = {name: torch.rand_like(tensor) for name, tensor in tensors.items()}
    tree = {"models_state_dict": [tensors], "optimizers_state_dict": [], "trial_state": {"steps": 1}}
    found: dict[str, list[float]] = {"copy": [], "submit": [], "commit": [], "save": []}
    storage = folder / "alone"
    with core.init(checkpoint_storage=str(storage)) as context:
        writer = CheckpointWriter(context.checkpoint)
        writer.prepare(tree)
        writer._join_preparation()  # in training it runs beside the first batches
        for _ in range(times):
            begun = time.perf_counter()
            for name, tensor in tensors.items():
                kept[name].copy_(tensor)
            found["copy"].append(time.perf_counter() - begun)
            begun = time.perf_counter()
            writer.submit(tree, {"steps_completed": 1}, load_data={}, code=None)
            found["submit"].append(time.perf_counter() - begun)
            writer.wait()
            found["commit"].append(time.perf_counter() - begun)
            writer.poll()
            begun = time.perf_counter()
            torch.save(tree, folder / "state.pth")
            found["save"].append(time.perf_counter() - begun)
            (folder / "state.pth").unlink()
            for made in storage.iterdir():
                shutil.rmtree(made)
        writer.close()
    ratio = statistics.median(a / b for a, b in zip(found["submit"], found["copy"], strict=True))
    line("bare copy into memory kept for it", found["copy"], "the floor")
    line("detlab: submit (the loop stands still)", found["submit"], f"{ratio:.2f} times the bare copy")
    line("detlab: until committed, in the background", found["commit"])
    line("torch.save, not synced", found["save"])


class Times(pytorch.PyTorchCallback):
    """When checkpoints were begun and committed, in batches."""

    def __init__(self, seen: list[float]) -> None:
        self.seen = seen
        self.begun: list[int] = []
        self.ended: list[int] = []

    def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
        self.begun.append(len(self.seen))

    def on_checkpoint_upload_end(self, uuid: str) -> None:
        self.ended.append(len(self.seen))


class Large(nn.Module):
    """A model whose training step is small beside its weights: most of them are frozen."""

    def __init__(self, megabytes: int, seen: list[float]) -> None:
        super().__init__()
        count = megabytes * 250_000 // TENSORS
        self.frozen = nn.ParameterList([nn.Parameter(torch.rand(count), requires_grad=False) for _ in range(TENSORS)])
        self.net = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
        self._seen = seen

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self._seen.append(time.perf_counter())
        return self.net(x)


def in_training(folder: Path, megabytes: int, times: int, period: int) -> None:
    """Train with a checkpoint every `period` batches and look at the steps that hold one."""
    seen: list[float] = []
    watch = Times(seen)

    class Trial(pytorch.PyTorchTrial):
        def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
            self.context = context
            self.model = context.wrap_model(Large(megabytes, seen))
            self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.net.parameters(), lr=0.01))
            self.data = TensorDataset(torch.rand(6400, 64), torch.randint(0, 10, (6400,)))

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, torch.Tensor]:
            x, y = batch
            loss = nn.functional.cross_entropy(self.model(x), y)
            self.context.backward(loss)
            self.context.step_optimizer(self.optimizer)
            return {"loss": loss}

        def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, torch.Tensor]:
            x, y = batch
            return {"validation_loss": nn.functional.cross_entropy(self.model(x), y)}

        def build_training_data_loader(self) -> pytorch.DataLoader:
            return pytorch.DataLoader(self.data, batch_size=64, shuffle=True, drop_last=True)

        def build_validation_data_loader(self) -> pytorch.DataLoader:
            return pytorch.DataLoader(TensorDataset(*self.data[:64]), batch_size=64)

        def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
            return {"times": watch}

    with pytorch.init(hparams={}, checkpoint_storage=str(folder / "training")) as context:
        pytorch.Trainer(Trial(context), context).fit(
            max_length=pytorch.Batch(period * times + period // 2),
            checkpoint_period=pytorch.Batch(period),
            checkpoint_policy="none",
        )
    report(seen, watch)


def report(seen: list[float], watch: Times) -> None:
    steps = [after - before for before, after in itertools.pairwise(seen)]
    holding = {begun - 1 for begun in watch.begun if begun - 1 < len(steps)}
    writing = {step for begun, ended in zip(watch.begun, watch.ended, strict=True) for step in range(begun, ended)}
    calm = statistics.median(step for index, step in enumerate(steps) if index not in writing | holding)
    busy = [step for index, step in enumerate(steps) if index in writing - holding]
    line("Trainer.fit: step without a checkpoint", [step for i, step in enumerate(steps) if i not in writing | holding])
    line("Trainer.fit: step while one is written", busy or [calm], f"{len(busy)} steps")
    line("Trainer.fit: longer by, step with a checkpoint", [steps[index] - calm for index in sorted(holding)])
    late = sum(1 for begun, ended in zip(watch.begun[1:], watch.ended, strict=False) if ended > begun)
    print(f"  {len(holding)} checkpoints; {late} began before the last one was committed, and waited for it")


def main() -> None:
    folder = Path(sys.argv[1])
    megabytes, times, period = map(int, sys.argv[2:])
    torch.set_num_threads(1)
    print(f"\nCheckpoint of {megabytes} MB in {TENSORS} tensors, one thread; medians of {times} (least … most)")
    alone(folder, megabytes, times)
    in_training(folder, megabytes, times, period)
    print(f"  goal: the loop stands still for at most {GOAL} s with 500 MB")


if __name__ == "__main__":
    main()

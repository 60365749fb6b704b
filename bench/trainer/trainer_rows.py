"""The rows of the trainer's bench: one loop over the same model, data and loader, by hand and with each framework.

    python bench/trainer/trainer_rows.py ROW ADDRESS      started by bench/trainer/trainer.py, never by hand

Every row reports its loss every 100 batches and nothing else: no progress bar, no checkpoint, no validation in between.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torch.utils.data.distributed import DistributedSampler
from trainer_gate import BATCH, NEEDS, Course, Gate, serve

REPORT = 100
"""Batches between two reports of the loss."""


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(256, 10),
    )


def wide_mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


@dataclass(frozen=True)
class Case:
    """A model and its data.

    Attributes:
        model: Makes it.
        repeats: How often the digits are repeated in an epoch. Once: 28 batches; 36 times: 1010.
        columns: Whether the data is torch's own `TensorDataset`, of which detlab's loader picks whole batches at once.
    """

    model: Callable[[], nn.Module]
    repeats: int = 1
    columns: bool = False


CASES = {
    "MLP": Case(mlp),
    "CNN": Case(cnn),
    "MLP, long epochs": Case(mlp, repeats=36),
    "MLP, TensorDataset": Case(mlp, columns=True),
    "wide MLP": Case(wide_mlp, repeats=36),
}


class Digits(Dataset[Any]):
    """The digits as users write a dataset: sample by sample, which every loader puts together in the same way."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self.tensors = (x, y)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = self.tensors
        return x[index], y[index]

    def __len__(self) -> int:
        return len(self.tensors[0])


class Gated(nn.Module):
    """The model with the gate in its forward pass."""

    def __init__(self, net: nn.Module, gate: Gate) -> None:
        super().__init__()
        self.net = net
        self._gate = gate

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self._gate.tick()
        return self.net(x)


class Task:
    """What every row gets: model, optimizer and data of a case."""

    def __init__(self, course: Course, gate: Gate) -> None:
        case = CASES[course.case]
        torch.manual_seed(0)
        self.model = Gated(case.model(), gate)
        self.length = course.length
        digits = load_digits()
        x = torch.tensor(digits.data / 16, dtype=torch.float32).repeat(case.repeats, 1)
        y = torch.tensor(digits.target).repeat(case.repeats)
        self.data = TensorDataset(x, y) if case.columns else Digits(x, y)
        self.few = TensorDataset(x[:BATCH], y[:BATCH])
        self.loss = nn.functional.cross_entropy

    def optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)

    def loader(self) -> DataLoader[Any]:
        return DataLoader(self.data, batch_size=BATCH, shuffle=True, drop_last=True)

    def reached(self) -> float:
        """The mean loss over the data, to show that the row has trained."""
        x, y = self.data.tensors
        self.model.eval()
        with torch.no_grad():
            return float(self.loss(self.model(x), y))


def hand_written(task: Task) -> None:
    model, optimizer, loader = task.model, task.optimizer(), task.loader()
    running, batch = torch.zeros(()), 0
    while batch < task.length:
        for x, y in loader:
            loss = task.loss(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            running += loss.detach()
            batch += 1
            if batch % REPORT == 0:
                print(f"{batch}: loss {running.item() / REPORT:.4f}", flush=True)
                running.zero_()
            if batch == task.length:
                break


def hand_written_ddp(task: Task) -> None:
    torch.distributed.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(task.model)
    optimizer = task.optimizer()
    sampler: DistributedSampler[Any] = DistributedSampler(task.data, drop_last=True)
    loader = DataLoader(task.data, batch_size=BATCH, sampler=sampler, drop_last=True)
    running, batch, epoch = torch.zeros(()), 0, 0
    while batch < task.length:
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = task.loss(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            running += loss.detach()
            batch += 1
            if batch % REPORT == 0:
                torch.distributed.all_reduce(running)
                if torch.distributed.get_rank() == 0:
                    print(f"{batch}: loss {running.item() / REPORT / 2:.4f}", flush=True)
                running.zero_()
            if batch == task.length:
                break
        epoch += 1
    torch.distributed.destroy_process_group()


def detlab(task: Task) -> None:
    from detlab import pytorch

    class DigitsTrial(pytorch.PyTorchTrial):
        def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
            self.context = context
            self.model = context.wrap_model(task.model)
            self.optimizer = context.wrap_optimizer(task.optimizer())

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, torch.Tensor]:
            x, y = batch
            loss = task.loss(self.model(x), y)
            self.context.backward(loss)
            self.context.step_optimizer(self.optimizer)
            return {"loss": loss}

        def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, torch.Tensor]:
            x, y = batch
            return {"validation_loss": task.loss(self.model(x), y)}

        def build_training_data_loader(self) -> pytorch.DataLoader:
            return pytorch.DataLoader(task.data, batch_size=BATCH, shuffle=True, drop_last=True)

        def build_validation_data_loader(self) -> pytorch.DataLoader:
            return pytorch.DataLoader(task.few, batch_size=BATCH)

    with pytorch.init(hparams={}) as context:
        trainer = pytorch.Trainer(DigitsTrial(context), context)
        trainer.fit(
            max_length=pytorch.Batch(task.length), reporting_period=pytorch.Batch(REPORT), checkpoint_policy="none"
        )


def lightning(task: Task) -> None:
    import lightning as lit

    class DigitsModule(lit.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = task.model

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            x, y = batch
            loss = task.loss(self.model(x), y)
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return task.optimizer()

    trainer = lit.Trainer(
        accelerator="cpu",
        max_steps=task.length,
        log_every_n_steps=REPORT,
        enable_progress_bar=False,
        enable_checkpointing=False,
        enable_model_summary=False,
    )
    trainer.fit(DigitsModule(), task.loader())


def fabric(task: Task) -> None:
    from lightning.fabric import Fabric

    fabric_ = Fabric(accelerator="cpu", devices=1)
    fabric_.launch()
    model, optimizer = fabric_.setup(task.model, task.optimizer())
    loader = fabric_.setup_dataloaders(task.loader())
    running, batch = torch.zeros(()), 0
    while batch < task.length:
        for x, y in loader:
            loss = task.loss(model(x), y)
            fabric_.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            running += loss.detach()
            batch += 1
            if batch % REPORT == 0:
                print(f"{batch}: loss {running.item() / REPORT:.4f}", flush=True)
                running.zero_()
            if batch == task.length:
                break


def accelerate(task: Task) -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model, optimizer, loader = accelerator.prepare(task.model, task.optimizer(), task.loader())
    running, batch = torch.zeros(()), 0
    while batch < task.length:
        for x, y in loader:
            loss = task.loss(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            running += loss.detach()
            batch += 1
            if batch % REPORT == 0:
                accelerator.print(f"{batch}: loss {running.item() / REPORT:.4f}", flush=True)
                running.zero_()
            if batch == task.length:
                break


def hf_trainer(task: Task) -> None:
    import transformers

    class DigitsTrainer(transformers.Trainer):
        def get_train_dataloader(self) -> Any:
            return self.accelerator.prepare(task.loader())  # as its own method does with a loader of its own

        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
            x, y = inputs
            return task.loss(model(x), y)

    optimizer = task.optimizer()
    arguments = transformers.TrainingArguments(
        output_dir="hf",
        max_steps=task.length,
        per_device_train_batch_size=BATCH,
        logging_steps=REPORT,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        max_grad_norm=0.0,
        use_cpu=True,
    )
    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
    DigitsTrainer(task.model, arguments, train_dataset=task.data, optimizers=(optimizer, schedule)).train()


LOOPS: dict[str, Callable[[Task], None]] = {
    "hand-written": hand_written,
    "hand-written again": hand_written,
    "detlab": detlab,
    "Lightning": lightning,
    "Fabric": fabric,
    "Accelerate": accelerate,
    "HF Trainer": hf_trainer,
}


def main() -> None:
    name, address = sys.argv[1:]
    loop = LOOPS[name]
    torch.set_num_threads(1)
    if name.startswith("hand-written") and os.environ.get("WORLD_SIZE", "1") != "1":
        loop = hand_written_ddp
    importlib.import_module(NEEDS[name])

    def train(course: Course, gate: Gate) -> float:
        task = Task(course, gate)
        loop(task)
        return task.reached()

    serve(address, train)


if __name__ == "__main__":
    main()

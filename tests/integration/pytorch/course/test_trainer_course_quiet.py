"""`Trainer.fit` asks the device for nothing between two reports, and says what a trial did behind its back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from trainer_one_weight import OneWeightTrial, Samples

from detlab import pytorch
from detlab.pytorch import Batch, TrainerError

READS = ("item", "cpu", "tolist", "numpy", "to", "__bool__", "__float__", "__int__", "__index__", "__array__")


class Reads(TorchFunctionMode):
    """Counts what would wait for a GPU, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", "")
        if name in READS:
            self.seen.append(name)
        return function(*args, **(kwargs or {}))


class Quiet(pytorch.PyTorchTrial):
    """One weight; itself it reads nothing, unless it is told to."""

    def __init__(
        self, context: pytorch.PyTorchTrialContext, *, moves_at: int | None = None, reads: bool = False
    ) -> None:
        self.context = context
        self.moves_at = moves_at
        self.reads = reads
        self.model = context.wrap_model(torch.nn.Linear(1, 1, bias=False, dtype=torch.float64))
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.1))
        schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 7, 0.9)
        context.wrap_lr_scheduler(schedule, pytorch.LRScheduler.StepMode.STEP_EVERY_BATCH)

    def build_training_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(torch.utils.data.TensorDataset(torch.ones(40, 1, dtype=torch.float64)), 4)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(Samples(8), batch_size=4)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, torch.Tensor]:
        (x,) = batch
        loss = ((self.model(x) - x) ** 2).mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        if batch_idx == self.moves_at:
            self.model.to("meta")
        if self.reads:
            loss.item()
        return {"loss": loss, "twice": 2 * loss.detach()}

    def evaluate_batch(self, batch: torch.Tensor, batch_idx: int) -> dict[str, torch.Tensor]:
        return {"val_loss": batch.mean()}


def fit(storage: Path, trial_class: Any = Quiet, *, fit: dict[str, Any], **options: Any) -> None:
    torch.set_num_threads(1)
    with pytorch.init(
        hparams={}, exp_conf={}, enable_tensorboard_logging=False, checkpoint_storage=str(storage)
    ) as context:
        pytorch.Trainer(trial_class(context, **options), context).fit(**fit, checkpoint_policy="none")


def reads_of(folder: Path, batches: int, **options: Any) -> list[str]:
    with Reads() as reads:
        fit(folder, fit={"max_length": Batch(batches), "reporting_period": Batch(1000)}, **options)
    return sorted(reads.seen)


def test_no_device_sync_per_batch(tmp_path: Path) -> None:
    """However many batches lie between two reports, the host asks for equally many values."""
    few, many = (reads_of(tmp_path / str(batches), batches) for batches in (10, 240))
    assert "cpu" in few, "the report itself reads values"
    assert many == few
    assert len(reads_of(tmp_path / "reading", 240, reads=True)) == len(few) + 240


def test_a_model_moved_behind_the_contexts_back_is_named_before_it_is_saved(tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match=r"model 0 \(Linear\): weight is on meta.*moved after wrap_model"):
        fit(tmp_path, fit={"max_length": Batch(20), "checkpoint_period": Batch(5)}, moves_at=4)
    assert not list(tmp_path.glob("*/manifest.json"))


def test_an_optimizer_that_is_not_wrapped_is_named(tmp_path: Path) -> None:
    class Own(OneWeightTrial):
        def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
            super().__init__(context)
            self.optimizer = torch.optim.Adam(self.model.parameters())

    with pytest.raises(TrainerError, match=r"this Adam was not given to wrap_optimizer\(\) \(wrapped: SGD\)"):
        fit(tmp_path, Own, fit={"max_length": Batch(3)})

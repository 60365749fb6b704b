"""A model with one weight, y = w x, trained towards y = x: every loss and weight has a formula.

With all x = 1 and plain SGD: w_k = 1 - (1 - w_0)(1 - 2 lr)^k, and the loss of batch k is (1 - w_k)^2.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from detlab import pytorch


class OneWeight(nn.Module):
    def __init__(self, start: float = 0.0) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([start], dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w * x


class Samples(torch.utils.data.Dataset[Any]):
    """Sample i is x = value(i)."""

    def __init__(self, count: int, kind: str = "ones") -> None:
        self.count = count
        self.kind = kind

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        value = 1.0 if self.kind == "ones" else 0.5 + index / self.count
        return torch.tensor(value, dtype=torch.float64)


class OneWeightTrial(pytorch.PyTorchTrial):
    """Keeps a log of (batch, epoch, sample ids, loss, weight before the batch)."""

    def __init__(self, context: pytorch.PyTorchTrialContext, **options: Any) -> None:
        self.context = context
        self.options = {
            "lr": 0.1,
            "count": 40,
            "kind": "ones",
            "batch_size": 4,
            "shuffle": False,
            "momentum": 0.0,
            "clip": None,
            "step_mode": None,
            "frequency": 1,
            "gamma": 0.5,
            "noise": 0.0,
            "callbacks": None,
            "workers": 0,
            **options,
        }
        self.model = context.wrap_model(self.build_model())
        self.optimizer = context.wrap_optimizer(
            torch.optim.SGD(self.model.parameters(), lr=self.options["lr"], momentum=self.options["momentum"])
        )
        if self.options["step_mode"] is not None:
            scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=1, gamma=self.options["gamma"])
            self.scheduler = context.wrap_lr_scheduler(
                scheduler, self.options["step_mode"], frequency=self.options["frequency"]
            )
        self.log: list[tuple[int, int, tuple[int, ...], float, float]] = []

    def build_model(self) -> nn.Module:
        return OneWeight()

    @property
    def weight(self) -> float:
        return float(next(self.model.parameters()).detach())

    def build_training_data_loader(self) -> pytorch.DataLoader:
        options = self.options
        return pytorch.DataLoader(
            Samples(options["count"], options["kind"]),
            batch_size=options["batch_size"],
            shuffle=options["shuffle"],
            num_workers=options["workers"],
        )

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(Samples(8), batch_size=4)

    def build_callbacks(self) -> dict[str, pytorch.PyTorchCallback]:
        return self.options["callbacks"] or {}

    def train_batch(self, batch: torch.Tensor, epoch_idx: int, batch_idx: int) -> dict[str, torch.Tensor]:
        before = self.weight
        x = batch + self.options["noise"] * torch.randn(len(batch), dtype=torch.float64)
        loss = ((self.model(x) - batch) ** 2).mean()
        self.context.backward(loss)
        clip = self.options["clip"]
        clip_grads = None if clip is None else (lambda parameters: nn.utils.clip_grad_value_(parameters, clip))
        self.context.step_optimizer(self.optimizer, clip_grads=clip_grads)
        ids = tuple(self.context.current_sample_ids() or ())
        self.log.append((batch_idx, epoch_idx, ids, float(loss.detach()), before))
        return {"loss": loss, "w": torch.tensor(before)}

    def evaluate_batch(self, batch: torch.Tensor, batch_idx: int) -> dict[str, torch.Tensor]:
        return {"val_loss": ((self.model(batch) - batch) ** 2).mean(), "val_w": self.weight}


def train(
    storage: str | None = None,
    trial_class: Any = OneWeightTrial,
    *,
    fit: dict[str, Any],
    aggregation: int = 1,
    conf: Any = None,
    seed: int = 7,
    **options: Any,
) -> Any:
    """Train a trial of the class in this process; return it."""
    torch.set_num_threads(1)
    config = {"reproducibility": {"experiment_seed": seed}, **(conf or {})}
    with pytorch.init(
        hparams={},
        exp_conf=config,
        aggregation_frequency=aggregation,
        enable_tensorboard_logging=False,
        checkpoint_storage=storage,
    ) as context:
        trial = trial_class(context, **options)
        pytorch.Trainer(trial, context).fit(**fit)
    return trial


def newest(storage: str) -> str:
    """Return the id of the newest complete checkpoint in a folder."""
    folders = [path for path in Path(storage).iterdir() if (path / "manifest.json").exists()]
    return max(folders, key=lambda path: path.stat().st_mtime_ns).name


class Recorder(pytorch.PyTorchCallback):
    """Writes down every hook with what tells the calls apart."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.state: dict[str, Any] = {"seen": 0}

    def on_trial_startup(self, first_batch_idx: int, checkpoint_uuid: str | None) -> None:
        self.calls.append(("trial_startup", first_batch_idx, checkpoint_uuid is not None))

    def on_trial_shutdown(self) -> None:
        self.calls.append(("trial_shutdown",))

    def on_training_start(self) -> None:
        self.calls.append(("training_start",))

    def on_training_epoch_start(self, epoch_idx: int) -> None:
        self.calls.append(("epoch_start", epoch_idx))

    def on_training_epoch_end(self, epoch_idx: int) -> None:
        self.calls.append(("epoch_end", epoch_idx))

    def on_training_workload_end(self, avg_metrics: dict[str, Any], batch_metrics: list[dict[str, Any]]) -> None:
        self.calls.append(("workload_end", avg_metrics["batches"], len(batch_metrics)))

    def on_validation_start(self) -> None:
        self.calls.append(("validation_start",))

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        self.calls.append(("validation_end", metrics["batches"]))

    def on_validation_epoch_start(self) -> None:
        self.calls.append(("validation_epoch_start",))

    def on_validation_epoch_end(self, outputs: list[Any]) -> None:
        self.calls.append(("validation_epoch_end", len(outputs)))

    def on_checkpoint_load_start(self, checkpoint: dict[str, Any] | None) -> None:
        assert checkpoint is not None
        self.calls.append(("load_start", checkpoint.get("extra")))

    def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["extra"] = {"from": "the callback"}
        self.state["seen"] += 1
        self.calls.append(("save_start", sorted(checkpoint)[0]))

    def on_checkpoint_write_end(self, checkpoint_dir: str) -> None:
        Path(checkpoint_dir, "by_callback.txt").write_text("hello")
        self.calls.append(("write_end",))

    def on_checkpoint_end(self, checkpoint_dir: str) -> None:
        self.calls.append(("checkpoint_end",))

    def on_checkpoint_upload_end(self, uuid: str) -> None:
        self.calls.append(("upload_end",))

    def state_dict(self) -> dict[str, Any]:
        return dict(self.state)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.state = dict(state_dict)

    def named(self, *names: str) -> list[tuple[Any, ...]]:
        return [call for call in self.calls if call[0] in names]

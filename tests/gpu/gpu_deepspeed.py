"""DeepSpeed's engines on a GPU: half precision, and a stop that changes no loss."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any

import torch
from gpu_report import Run, SkippedError

from detlab import pytorch

STEPS, STOP = 40, 15
SAMPLES = 512


def deepspeed(run: Run) -> None:
    """A `DeepSpeedTrial` with ZeRO 2, in fp16 on a GPU: it learns, and goes on after a stop to the same losses."""
    if importlib.util.find_spec("deepspeed") is None:
        raise SkippedError("deepspeed is not installed")
    calm = losses(run, run.folder / "calm", STEPS)
    assert len(calm) == STEPS
    assert all(map(math.isfinite, calm)), calm
    assert sum(calm[-5:]) < 0.9 * sum(calm[:5]), f"it learns nothing: {calm}"
    stopped = losses(run, run.folder / "stopped", STOP)
    (uuid,) = {path.parent.name for path in (run.folder / "stopped").rglob("manifest.json")}
    resumed = losses(run, run.folder / "stopped", STEPS, latest_checkpoint=uuid)
    assert [*stopped, *resumed] == calm, f"{calm} without a stop, and {[*stopped, *resumed]} with one"
    run.figure("loss, first and last", f"{calm[0]:.3f}, {calm[-1]:.3f}", f"{STEPS} steps, ZeRO 2")


def losses(run: Run, storage: Path, steps: int, **more: Any) -> list[float]:
    """Train up to a step and return the loss of each."""
    from detlab.pytorch import deepspeed as det_ds

    seed = {"reproducibility": {"experiment_seed": 7}}
    with det_ds.init(exp_conf=seed, checkpoint_storage=str(storage)) as context:
        trial = trial_class(run)(context)
        det_ds.Trainer(trial, context).fit(max_length=pytorch.Batch(steps), **more)
        return [loss.item() for loss in trial.losses]


def trial_class(run: Run) -> Any:
    """Return a trial that keeps its losses."""
    import deepspeed as library

    from detlab.pytorch import deepspeed as det_ds

    config = {
        "train_micro_batch_size_per_gpu": 16,
        "gradient_accumulation_steps": 2,
        "zero_optimization": {"stage": 2},
        "optimizer": {"type": "Adam", "params": {"lr": 1e-2, "torch_adam": True}},
        "zero_force_ds_cpu_optimizer": False,
        "fp16": {"enabled": not run.cpu, "initial_scale_power": 8},
    }

    class KeptLosses(det_ds.DeepSpeedTrial):
        def __init__(self, context: Any) -> None:
            self.context, self.losses = context, []
            net = torch.nn.Sequential(
                torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(64, 10)
            )
            engine, *_ = library.initialize(model=net, model_parameters=net.parameters(), config=config)
            self.engine = context.wrap_model_engine(engine)

        def build_training_data_loader(self) -> pytorch.DataLoader:
            drawn = torch.Generator().manual_seed(1)
            x = torch.randn(SAMPLES, 32, generator=drawn)
            data = torch.utils.data.TensorDataset(x, x[:, :10].argmax(1))
            return pytorch.DataLoader(data, batch_size=self.context.train_micro_batch_size_per_gpu, shuffle=True)

        build_validation_data_loader = build_training_data_loader

        def _loss(self, dataloader_iter: Any) -> torch.Tensor:
            x, y = self.context.to_device(next(dataloader_iter))
            output = self.engine(x if run.cpu else x.half())
            return torch.nn.functional.cross_entropy(output.float(), y)

        def train_batch(self, dataloader_iter: Any, epoch_idx: int, batch_idx: int) -> torch.Tensor:
            loss = self._loss(dataloader_iter)
            self.engine.backward(loss)
            self.engine.step()
            if self.engine.micro_steps % 2 == 0:
                self.losses.append(loss.detach())
            return loss

        def evaluate_batch(self, dataloader_iter: Any, batch_idx: int) -> dict[str, Any]:
            return {"loss": self._loss(dataloader_iter)}

    return KeptLosses

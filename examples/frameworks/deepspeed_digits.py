"""Digits with a DeepSpeedTrial: ZeRO stage 2 on however many processes there are, on GPUs or CPUs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import deepspeed
import torch
from digits import load, wait

import detlab as det
from detlab import pytorch
from detlab.pytorch import deepspeed as det_ds

CONFIG = {
    "train_micro_batch_size_per_gpu": 32,
    "gradient_accumulation_steps": 1,
    "zero_optimization": {"stage": 2},
    "optimizer": {"type": "Adam", "params": {"lr": 3e-3, "torch_adam": True}},
    "zero_force_ds_cpu_optimizer": False,  # its own optimizer for CPUs would have to be compiled
}


def model() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Flatten(),
        torch.nn.Linear(64, 64),
        torch.nn.ReLU(),
        torch.nn.Dropout(0.2),
        torch.nn.Linear(64, 10),
    )


class DigitsTrial(det_ds.DeepSpeedTrial):
    def __init__(self, context: det_ds.DeepSpeedTrialContext) -> None:
        self.context = context
        self.training, self.validation = load()
        net = model()
        config = det_ds.overwrite_deepspeed_config(CONFIG, context.get_hparams().get("overwrite_deepspeed_args", {}))
        engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=config)
        self.engine = context.wrap_model_engine(engine)

    def loader(self, split: Any, shuffle: bool) -> pytorch.DataLoader:
        data = torch.utils.data.TensorDataset(*map(torch.from_numpy, split))
        return pytorch.DataLoader(data, batch_size=self.context.train_micro_batch_size_per_gpu, shuffle=shuffle)

    def build_training_data_loader(self) -> pytorch.DataLoader:
        return self.loader(self.training, shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return self.loader(self.validation, shuffle=False)

    def train_batch(self, dataloader_iter: Iterator[Any] | None, epoch_idx: int, batch_idx: int) -> torch.Tensor:
        assert dataloader_iter is not None
        images, labels = self.context.to_device(next(dataloader_iter))
        loss = torch.nn.functional.cross_entropy(self.engine(images), labels)
        self.engine.backward(loss)
        self.engine.step()
        wait()
        return loss

    def evaluate_batch(self, dataloader_iter: Iterator[Any] | None, batch_idx: int) -> dict[str, Any]:
        assert dataloader_iter is not None
        images, labels = self.context.to_device(next(dataloader_iter))
        return {"accuracy": (self.engine(images).argmax(-1) == labels).float().mean()}


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
    with det_ds.init() as context:
        trainer = det_ds.Trainer(DigitsTrial(context), context)
        trainer.fit(
            max_length=pytorch.Epoch(2),
            validation_period=pytorch.Epoch(1),
            reporting_period=pytorch.Batch(1),
        )

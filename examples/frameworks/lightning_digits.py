"""Digits with Lightning."""

from __future__ import annotations

import logging
from typing import Any

import lightning
import torch
from digits import Split, load, wait
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import detlab as det
from detlab.lightning import DetCheckpointCallback, DetLogger

OFF_CLUSTER = {"lr": 3e-3, "dropout": 0.2}
EPOCHS = 4


class Classifier(lightning.LightningModule):
    def __init__(self, lr: float, dropout: float) -> None:
        super().__init__()
        self.lr = lr
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Dropout(dropout), nn.Linear(64, 10))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        wait()
        images, labels = batch
        loss = nn.functional.cross_entropy(self.net(images), labels)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        images, labels = batch
        found = self.net(images)
        self.log("val_loss", nn.functional.cross_entropy(found, labels), sync_dist=True)
        self.log("val_accuracy", (found.argmax(1) == labels).float().mean(), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.lr)


def loader(split: Split, batch_size: int, *, shuffle: bool) -> DataLoader:
    images, labels = split
    data = TensorDataset(torch.from_numpy(images), torch.from_numpy(labels))
    return DataLoader(data, batch_size=batch_size, shuffle=shuffle)


def main(core_context: det.core.Context, seed: int, hparams: dict[str, Any]) -> None:
    lightning.seed_everything(seed)
    training, validation = load()
    ranks = core_context.distributed
    callback = DetCheckpointCallback(core_context)
    trainer = lightning.Trainer(
        accelerator="auto",
        devices=ranks.local_size,
        num_nodes=ranks.cross_size,
        strategy="ddp" if ranks.size > 1 else "auto",
        max_epochs=EPOCHS,
        log_every_n_steps=int(hparams.get("log_every_n_steps", 6)),
        logger=DetLogger(core_context),
        callbacks=[callback],
        enable_checkpointing=False,  # Lightning's own, in the working directory
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(
        Classifier(hparams["lr"], hparams["dropout"]),
        loader(training, 64 // ranks.size, shuffle=True),
        loader(validation, 215, shuffle=False),
        ckpt_path=callback.ckpt_path,
    )


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
    info = det.get_cluster_info()
    # With one process there is nothing to connect; under `detlab.launch.torch_distributed` there is.
    ranks = (
        det.core.DistributedContext.from_torch_distributed() if torch.distributed.is_torchelastic_launched() else None
    )
    with det.core.init(distributed=ranks) as core_context:
        main(
            core_context,
            seed=info.trial.trial_seed if info else 0,
            hparams=info.trial.hparams if info else OFF_CLUSTER,
        )

"""Digits with Lightning where an epoch is no whole number of anything: summed gradients, validations in it, workers."""

from __future__ import annotations

import lightning
import torch
from digits import load
from lightning_digits import Classifier
from torch.utils.data import DataLoader, TensorDataset

import detlab as det
from detlab.lightning import DetCheckpointCallback, DetLogger


class Uneven(Classifier):
    def on_train_epoch_start(self) -> None:
        print("epoch", self.current_epoch, flush=True)


def loader(images, labels, **options):
    return DataLoader(TensorDataset(torch.from_numpy(images), torch.from_numpy(labels)), **options)


if __name__ == "__main__":
    lightning.seed_everything(3)
    training, validation = load()
    with det.core.init() as core_context:
        callback = DetCheckpointCallback(core_context, checkpoint_epochs=0)
        trainer = lightning.Trainer(
            accelerator="cpu",
            devices=1,
            max_epochs=2,
            accumulate_grad_batches=3,
            val_check_interval=10,
            log_every_n_steps=1,
            logger=DetLogger(core_context),
            callbacks=[callback],
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(
            Uneven(3e-3, 0.2),
            loader(*training, batch_size=50, shuffle=True, num_workers=2),  # 24 batches, the last of 2
            loader(*validation, batch_size=215),
            ckpt_path=callback.ckpt_path,
        )
    print("after training")

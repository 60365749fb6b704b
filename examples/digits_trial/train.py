"""Train a small CNN on scikit-learn's digits (1,797 UCI images of 8x8) as a `PyTorchTrial`."""

import logging
import pathlib

import numpy as np
import torch
import yaml
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import TensorDataset

import detlab as det
from detlab import pytorch


def splits():
    """Return {"train", "validation", "test"}: datasets of (image [1, 8, 8] in 0..1, label), the same every time."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype(np.float32).reshape(-1, 1, 8, 8)
    rest_x, test_x, rest_y, test_y = train_test_split(images, labels, test_size=360, random_state=0, stratify=labels)
    train_x, val_x, train_y, val_y = train_test_split(rest_x, rest_y, test_size=287, random_state=1, stratify=rest_y)
    pairs = {"train": (train_x, train_y), "validation": (val_x, val_y), "test": (test_x, test_y)}
    return {name: TensorDataset(torch.from_numpy(x), torch.from_numpy(y)) for name, (x, y) in pairs.items()}


def build_model(channels, dropout):
    """Return the network: two convolutions, one linear layer."""
    return nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(),
        nn.Conv2d(channels, 2 * channels, 3, padding=1), nn.BatchNorm2d(2 * channels), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(dropout), nn.Linear(2 * channels * 16, 10),
    )  # fmt: skip


class DigitsTrial(pytorch.PyTorchTrial):
    """The model, its data, and what one batch does."""

    def __init__(self, context):
        self.context = context
        hparams = context.get_hparams()
        self.data = splits()
        self.model = context.wrap_model(build_model(hparams["channels"], hparams["dropout"]))
        optimizer = torch.optim.AdamW(self.model.parameters(), hparams["lr"], weight_decay=hparams["weight_decay"])
        self.optimizer = context.wrap_optimizer(optimizer)

    def build_training_data_loader(self):
        return pytorch.DataLoader(self.data["train"], self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self):
        return pytorch.DataLoader(self.data["validation"], batch_size=len(self.data["validation"]))

    def train_batch(self, batch, epoch_idx, batch_idx):
        images, labels = batch
        loss = nn.functional.cross_entropy(self.model(images), labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch, batch_idx=0):
        images, labels = batch
        logits = self.model(images)
        return {
            "loss": nn.functional.cross_entropy(logits, labels),
            "accuracy": (logits.argmax(1) == labels).double().mean(),
        }


def main():
    """Train: on a cluster with the trial's hyperparameters, elsewhere with those of const.yaml."""
    on_cluster = det.get_cluster_info() is not None
    config = {} if on_cluster else yaml.safe_load(pathlib.Path(__file__).with_name("const.yaml").read_text())
    with pytorch.init(hparams=config.get("hyperparameters"), exp_conf=config) as context:
        trainer = pytorch.Trainer(DigitsTrial(context), context)
        trainer.fit(
            max_length=pytorch.Epoch(context.get_hparam("max_epochs")),
            reporting_period=pytorch.Epoch(1),
            validation_period=pytorch.Epoch(1),
        )


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
    main()

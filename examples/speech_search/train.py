"""Tell nine speakers apart by how they say two vowels: an LSTM or a small transformer, as a `PyTorchTrial`."""

import logging
import math
import pathlib

import numpy as np
import torch
import yaml
from torch import nn
from torch.utils.data import TensorDataset

import detlab as det
from detlab import pytorch

SPEAKERS, COEFFICIENTS, FRAMES = 9, 12, 29


def splits():
    """Return {"train", "validation", "test"}: datasets of (series [29, 12], length, speaker), the same every time."""
    data = np.load("vowels.npz")  # in the working directory: a checkpoint keeps the code, but not the data
    arrays = {name: torch.from_numpy(data[name]) for name in data.files}
    train, test = ([arrays[f"{part}_{name}"] for name in ("x", "lengths", "y")] for part in ("train", "test"))
    held = torch.arange(len(train[0])) % 30 >= 20  # of each speaker's 30 utterances the last ten
    return {
        "train": TensorDataset(*(array[~held] for array in train)),
        "validation": TensorDataset(*(array[held] for array in train)),
        "test": TensorDataset(*test),
    }


class Recurrent(nn.Module):
    """An LSTM in both directions; the mean over the frames goes into one linear layer."""

    def __init__(self, width, layers, dropout):
        super().__init__()
        between = dropout if layers > 1 else 0.0
        self.lstm = nn.LSTM(COEFFICIENTS, width, layers, batch_first=True, bidirectional=True, dropout=between)
        self.head = nn.Sequential(nn.Dropout(dropout), nn.Linear(2 * width, SPEAKERS))

    def forward(self, series, there):
        return self.head(mean_over(self.lstm(series)[0], there))


class Transformer(nn.Module):
    """An encoder with sinusoidal positions."""

    def __init__(self, width, layers, dropout):
        super().__init__()
        self.enter = nn.Linear(COEFFICIENTS, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, SPEAKERS)
        angles = torch.arange(FRAMES)[:, None] * torch.exp(torch.arange(0, width, 2) * (-math.log(1e4) / width))
        self.register_buffer("positions", torch.stack([angles.sin(), angles.cos()], -1).reshape(FRAMES, width))

    def forward(self, series, there):
        frames = self.encoder(self.enter(series) + self.positions, src_key_padding_mask=~there)
        return self.head(mean_over(frames, there))


def mean_over(frames, there):
    """Return the mean [N, W] of the frames [N, T, W] that are there [N, T]."""
    weights = there[..., None].to(frames.dtype)
    return (frames * weights).sum(1) / weights.sum(1)


def build_model(hparams):
    kind = {"lstm": Recurrent, "transformer": Transformer}[hparams["model"]]
    return kind(hparams["width"], hparams["layers"], hparams["dropout"])


class SpeechTrial(pytorch.PyTorchTrial):
    """The model, its data, and what one batch does."""

    def __init__(self, context):
        self.context = context
        hparams = context.get_hparams()
        self.data = splits()
        self.model = context.wrap_model(build_model(hparams))
        self.noise = hparams["noise"]
        optimizer = torch.optim.AdamW(self.model.parameters(), hparams["lr"], weight_decay=hparams["weight_decay"])
        self.optimizer = context.wrap_optimizer(optimizer)

    def build_training_data_loader(self):
        return pytorch.DataLoader(self.data["train"], self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self):
        return pytorch.DataLoader(self.data["validation"], batch_size=len(self.data["validation"]))

    def logits(self, series, lengths):
        there = torch.arange(FRAMES, device=lengths.device) < lengths[:, None]
        return self.model(series, there)

    def train_batch(self, batch, epoch_idx, batch_idx):
        series, lengths, speakers = batch
        noisy = series + self.noise * torch.randn_like(series)
        loss = nn.functional.cross_entropy(self.logits(noisy, lengths), speakers)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch, batch_idx=0):
        series, lengths, speakers = batch
        logits = self.logits(series, lengths)
        return {
            "loss": nn.functional.cross_entropy(logits, speakers),
            "accuracy": (logits.argmax(1) == speakers).double().mean(),
        }


def main():
    """Train: on a cluster with the trial's hyperparameters, elsewhere with those of const.yaml."""
    on_cluster = det.get_cluster_info() is not None
    config = {} if on_cluster else yaml.safe_load(pathlib.Path(__file__).with_name("const.yaml").read_text())
    with pytorch.init(hparams=config.get("hyperparameters"), exp_conf=config) as context:
        trainer = pytorch.Trainer(SpeechTrial(context), context)
        trainer.fit(
            max_length=pytorch.Epoch(context.get_hparam("max_epochs")),
            reporting_period=pytorch.Epoch(1),
            validation_period=pytorch.Epoch(1),
        )


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
    main()

"""Train the network that the hyperparameters describe on scikit-learn's images of handwritten digits."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import detlab as det

ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh}
PIXELS, CLASSES, SIDE = 64, 10, 8


def dense_layers(spec: Mapping[str, Any]) -> Iterator[nn.Module]:
    """Build `layer_1` to `layer_N`; the search gives a trial only those that it has."""
    inputs = PIXELS
    for number in range(1, spec["layers"] + 1):
        layer = spec[f"layer_{number}"]
        yield nn.Linear(inputs, layer["width"])
        yield ACTIVATIONS[layer["act"]]()
        inputs = layer["width"]
    yield nn.Linear(inputs, CLASSES)


def conv_layers(spec: Mapping[str, Any]) -> Iterator[nn.Module]:
    """Build a convolution, a pooling if there is one, and a linear layer."""
    yield nn.Unflatten(1, (1, SIDE, SIDE))
    yield nn.Conv2d(1, spec["channels"], spec["kernel"], padding="same")
    yield nn.ReLU()
    if spec["pooled"]:
        yield nn.MaxPool2d(2)
    yield nn.Flatten()
    side = SIDE // 2 if spec["pooled"] else SIDE
    yield nn.Linear(spec["channels"] * side * side, CLASSES)


def build(hparams: Mapping[str, Any]) -> nn.Sequential:
    """Return the network of a trial."""
    kind = hparams["kind"]
    return nn.Sequential(*(dense_layers if kind == "dense" else conv_layers)(hparams[kind]))


def images() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return images and digits to train on, and others to judge by: 1,437 and 360."""
    data = load_digits()
    order = torch.randperm(len(data.target), generator=torch.Generator().manual_seed(0))
    pixels, digits = torch.tensor(data.data, dtype=torch.float32)[order] / 16, torch.tensor(data.target)[order]
    return pixels[360:], digits[360:], pixels[:360], digits[:360]


OFF_CLUSTER = {"lr": 0.003, "kind": "conv", "conv": {"channels": 8, "kernel": 3, "pooled": True}, "epochs": 3}


def main(core_context: det.core.Context, hparams: Mapping[str, Any], seed: int) -> None:
    """Train for `epochs`, and report the accuracy after each."""
    torch.manual_seed(seed)
    model = build(hparams)
    optimizer = torch.optim.Adam(model.parameters(), lr=hparams["lr"])
    pixels, digits, unseen, truth = images()
    size = sum(weights.numel() for weights in model.parameters())
    for epoch in range(1, hparams["epochs"] + 1):
        for batch in torch.randperm(len(pixels)).split(64):
            loss = nn.functional.cross_entropy(model(pixels[batch]), digits[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            accuracy = (model(unseen).argmax(1) == truth).float().mean().item()
        metrics = {"accuracy": accuracy, "parameters": size}
        core_context.train.report_validation_metrics(steps_completed=epoch, metrics=metrics)
        if core_context.preempt.should_preempt():
            return


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
    torch.set_num_threads(1)
    info = det.get_cluster_info()
    trial = info.trial if info else None
    with det.core.init() as core_context:
        main(core_context, trial.hparams if trial else OFF_CLUSTER, trial.trial_seed if trial else 0)

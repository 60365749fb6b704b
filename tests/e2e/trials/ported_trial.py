"""PortedTrial: a PyTorchTrial in the shape that ported scripts have, run from a shell, by torchrun or on a cluster.

In float64 and without dropout, so that what one process and two processes learn can be compared digit by digit.
"""

import argparse
import logging
import time

import torch

import detlab as det
from detlab import pytorch

TRAINING, VALIDATION, BATCH = 1280, 480, 32
OFF_CLUSTER = {"lr": 0.1, "width": 24}


def pictures(train):
    """1280 noisy pictures of ten shapes to learn from, or 480 others: whole batches for one process and for two."""
    chance = torch.Generator().manual_seed(0)
    shapes = torch.randn(10, 64, dtype=torch.float64, generator=chance)
    labels = torch.arange(TRAINING + VALIDATION) % 10
    images = shapes[labels] + 1.5 * torch.randn(len(labels), 64, dtype=torch.float64, generator=chance)
    part = slice(0, TRAINING) if train else slice(TRAINING, None)
    return torch.utils.data.TensorDataset(images[part], labels[part])


class PortedTrial(pytorch.PyTorchTrial):
    """A perceptron with one hidden layer; `pace` makes its batches long enough to be interrupted."""

    def __init__(self, context: pytorch.PyTorchTrialContext, hparams: dict, pace: float) -> None:
        self.context, self.pace, self.ran = context, pace, 0
        self.batch_size = BATCH // context.distributed.get_size()
        layers = (torch.nn.Linear(64, hparams["width"]), torch.nn.Tanh(), torch.nn.Linear(hparams["width"], 10))
        self.model = context.wrap_model(torch.nn.Sequential(*layers).double())
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=hparams["lr"]))

    def build_training_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(pictures(train=True), batch_size=self.batch_size, shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(pictures(train=False), batch_size=self.batch_size)

    def train_batch(self, batch: pytorch.TorchData, epoch_idx: int, batch_idx: int) -> dict:
        images, labels = batch
        loss = torch.nn.functional.cross_entropy(self.model(images), labels)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        time.sleep(self.pace)
        self.ran += 1
        return {"loss": loss}

    def evaluate_batch(self, batch: pytorch.TorchData, batch_idx: int) -> dict:
        images, labels = batch
        scores = self.model(images)
        right = (scores.argmax(dim=1) == labels).sum().item()
        loss = torch.nn.functional.cross_entropy(scores, labels).item()
        here = {"seen": self.context.current_train_batch(), "ran": self.ran}
        return {"loss": loss, "accuracy": right / len(images), **here}


def main() -> None:
    """Train as long as the command line says."""
    parser = argparse.ArgumentParser()
    lengths = parser.add_mutually_exclusive_group(required=True)
    lengths.add_argument("--epochs", type=int)
    lengths.add_argument("--batches", type=int)
    parser.add_argument("--pace", type=float, default=0.0)
    options = parser.parse_args()
    length = pytorch.Epoch(options.epochs) if options.epochs else pytorch.Batch(options.batches)
    info = det.get_cluster_info()
    with pytorch.init() as context:
        logging.info("process %d of %d", context.distributed.get_rank(), context.distributed.get_size())
        trial = PortedTrial(context, info.trial.hparams if info else OFF_CLUSTER, options.pace)
        trainer = pytorch.Trainer(trial, context)
        trainer.fit(max_length=length, latest_checkpoint=info.latest_checkpoint if info else None)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
    main()

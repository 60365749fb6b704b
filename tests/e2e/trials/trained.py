"""A small `PyTorchTrial` for faults: it can hang or be killed at a batch of its first attempt, on one rank."""

import logging
import os
import signal
import time

import torch
from torch.utils.data import TensorDataset

import detlab as det
from detlab import pytorch


class Trained(pytorch.PyTorchTrial):
    def __init__(self, context):
        self.context = context
        torch.manual_seed(1)
        self.model = context.wrap_model(torch.nn.Linear(4, 1))
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), lr=0.05))
        self.first_attempt = det.get_cluster_info().run == 1
        torch.manual_seed(2)
        self.xs = torch.randn(64, 4)

    def build_training_data_loader(self):
        return pytorch.DataLoader(TensorDataset(self.xs, self.xs.sum(1, keepdim=True)), batch_size=4, shuffle=True)

    def build_validation_data_loader(self):
        return pytorch.DataLoader(TensorDataset(self.xs, self.xs.sum(1, keepdim=True)), batch_size=16)

    def fault(self, batch_idx):
        hparams, rank = self.context.get_hparams(), self.context.distributed.rank
        if self.first_attempt and batch_idx == hparams.get("at") and rank == hparams.get("rank", 0):
            if hparams["fault"] == "hang":
                while True:
                    time.sleep(1)
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(hparams.get("pace", 0))

    def train_batch(self, batch, epoch_idx, batch_idx):
        self.fault(batch_idx)
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.model(x + 0.1 * torch.randn_like(x)), y)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch, batch_idx):
        x, y = batch
        return {"error": torch.nn.functional.mse_loss(self.model(x), y)}


logging.basicConfig(level=logging.INFO, format=det.LOG_FORMAT)
with pytorch.init(hang_timeout=4, enable_tensorboard_logging=False) as train_context:
    pytorch.Trainer(Trained(train_context), train_context).fit(
        max_length=pytorch.Batch(60),
        reporting_period=pytorch.Batch(1),
        validation_period=pytorch.Batch(20),
        checkpoint_period=pytorch.Batch(7),
        checkpoint_policy="none",
    )

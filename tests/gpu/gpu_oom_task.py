"""A trial whose batch needs more memory than there is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from gpu_trials import CONFIG, Course, CourseTrial

from detlab import pytorch
from detlab.pytorch.context.trial_context import share_of

TERABYTES = 1 << 46
"""More than any device has."""


class Greedy(CourseTrial):
    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, torch.Tensor]:
        whole = TERABYTES
        if self.context.device.type == "cuda":
            # More than the whole device; on a share what the device has, and the task must not take.
            share = share_of(0, os.environ)
            whole = int(torch.cuda.get_device_properties(0).total_memory * (1.2 if share == 1 else 2 * share))
        torch.empty(whole, dtype=torch.uint8, device=self.context.device)
        return super().train_batch(batch, epoch_idx, batch_idx)


with pytorch.init(
    hparams={}, exp_conf=CONFIG, checkpoint_storage=str(Path.cwd() / "storage"), enable_tensorboard_logging=False
) as context:
    trial = Greedy(context, Course())
    pytorch.Trainer(trial, context).fit(max_length=pytorch.Batch(3), checkpoint_policy="none")

"""DeepSpeed: `DeepSpeedTrial` and the trainer that drives its engines, with Determined's names.

    with deepspeed.init() as context:
        deepspeed.Trainer(MyTrial(context), context).fit(max_length=pytorch.Epoch(3))

Needs the extra `deepspeed`, which compiles nothing when it is installed.
"""

import os

import torch

from detlab.frameworks.versions import require

VERSION = require("deepspeed", extra="deepspeed", at_least="0.17", below="0.20")
"""Of the DeepSpeed that is installed."""

if not torch.cuda.is_available():
    os.environ.setdefault("DS_ACCELERATOR", "cpu")  # otherwise it warns that it found nothing else

from detlab.pytorch.deepspeed.context import DeepSpeedTrialContext, overwrite_deepspeed_config  # noqa: E402  # likewise
from detlab.pytorch.deepspeed.model_parallel import (  # noqa: E402  # likewise
    ModelParallelUnit,
    make_data_parallel_mpu,
    make_deepspeed_mpu,
)
from detlab.pytorch.deepspeed.trainer import DeepSpeedTrainer, init  # noqa: E402  # likewise
from detlab.pytorch.deepspeed.trial import DeepSpeedTrial  # noqa: E402  # likewise

Trainer = DeepSpeedTrainer
"""Determined's name."""

__all__ = [
    "DeepSpeedTrainer",
    "DeepSpeedTrial",
    "DeepSpeedTrialContext",
    "ModelParallelUnit",
    "Trainer",
    "init",
    "make_data_parallel_mpu",
    "make_deepspeed_mpu",
    "overwrite_deepspeed_config",
]

"""The trainer: write a `PyTorchTrial`, and `Trainer.fit` trains it, on one process or many, resumed to the bit.

Names and signatures are those of Determined 0.38's `determined.pytorch`.
"""

from detlab.pytorch import samplers
from detlab.pytorch.callback import PyTorchCallback
from detlab.pytorch.checkpoint.files import StateMismatch
from detlab.pytorch.checkpoint.governed import load_probe
from detlab.pytorch.checkpoint.load import CheckpointLoadContext, load_trial_from_checkpoint_path
from detlab.pytorch.checkpoint.writer import CheckpointWriteFailed
from detlab.pytorch.context.experimental import PyTorchExperimentalContext
from detlab.pytorch.context.lr_scheduler import LRScheduler
from detlab.pytorch.context.trial_context import PyTorchTrialContext
from detlab.pytorch.data.loader import (
    DataLoader,
    TorchData,
    adapt_batch_sampler,
    data_length,
    dataset_repro_warning,
    to_device,
)
from detlab.pytorch.errors import CallbackFailed, TrainerError
from detlab.pytorch.metrics.reducer import MetricReducer, Reducer
from detlab.pytorch.metrics.tensorboard import TorchWriter
from detlab.pytorch.trainer import Trainer, init
from detlab.pytorch.trial import PyTorchTrial
from detlab.pytorch.units import Batch, Epoch, TrainUnit

__all__ = [
    "Batch",
    "CallbackFailed",
    "CheckpointLoadContext",
    "CheckpointWriteFailed",
    "DataLoader",
    "Epoch",
    "LRScheduler",
    "MetricReducer",
    "PyTorchCallback",
    "PyTorchExperimentalContext",
    "PyTorchTrial",
    "PyTorchTrialContext",
    "Reducer",
    "StateMismatch",
    "TorchData",
    "TorchWriter",
    "TrainUnit",
    "Trainer",
    "TrainerError",
    "adapt_batch_sampler",
    "data_length",
    "dataset_repro_warning",
    "init",
    "load_probe",
    "load_trial_from_checkpoint_path",
    "samplers",
    "to_device",
]

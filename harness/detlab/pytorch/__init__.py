"""The trainer: write a `PyTorchTrial`, and `Trainer.fit` trains it, on one process or many, resumed to the bit.

Names and signatures are those of Determined 0.38's `determined.pytorch`.
"""

from detlab.pytorch import samplers
from detlab.pytorch._callback import PyTorchCallback
from detlab.pytorch._checkpoint import StateMismatch
from detlab.pytorch._context import PyTorchTrialContext
from detlab.pytorch._data import (
    DataLoader,
    TorchData,
    adapt_batch_sampler,
    data_length,
    dataset_repro_warning,
    to_device,
)
from detlab.pytorch._errors import CallbackFailed, TrainerError
from detlab.pytorch._experimental import PyTorchExperimentalContext
from detlab.pytorch._load import CheckpointLoadContext, load_trial_from_checkpoint_path
from detlab.pytorch._lr_scheduler import LRScheduler
from detlab.pytorch._reducer import MetricReducer, Reducer
from detlab.pytorch._tensorboard import TorchWriter
from detlab.pytorch._trainer import Trainer, init
from detlab.pytorch._trial import PyTorchTrial
from detlab.pytorch._units import Batch, Epoch, TrainUnit
from detlab.pytorch._writer import CheckpointWriteFailed

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
    "load_trial_from_checkpoint_path",
    "samplers",
    "to_device",
]

"""`PyTorchTrial`: what users write."""

from __future__ import annotations

import abc
import inspect
from typing import Any

import torch

from detlab.pytorch.callback import PyTorchCallback
from detlab.pytorch.context.trial_context import PyTorchTrialContext
from detlab.pytorch.data.loader import DataLoader, data_length
from detlab.pytorch.errors import TrainerError
from detlab.pytorch.metrics.reducer import Reducer


class PyTorchTrial(abc.ABC):
    """A model, its data, and how it trains on one batch; `Trainer` does the rest.

    Wrap models, optimizers and learning rate schedulers in `__init__` with the context's `wrap_…` methods. Define
    exactly one of `evaluate_batch` and `evaluate_full_dataset`.
    """

    trial_context_class = PyTorchTrialContext

    @abc.abstractmethod
    def __init__(self, context: PyTorchTrialContext) -> None:
        """Build and wrap models and optimizers."""

    @abc.abstractmethod
    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> torch.Tensor | dict[str, Any]:
        """Train on one batch, with `context.backward(loss)` and `context.step_optimizer(optimizer)`.

        Args:
            batch: What the data loader gave, on the context's device.
            epoch_idx: Of this epoch, from 0.
            batch_idx: Of this batch, from 0 and over all epochs and attempts.

        Returns:
            The loss, or metrics by name. Return tensors as they are: `.item()` would wait for the device.
        """

    @abc.abstractmethod
    def build_training_data_loader(self) -> DataLoader:
        """Return a `DataLoader` over the training data, with the batch size of one slot."""

    @abc.abstractmethod
    def build_validation_data_loader(self) -> DataLoader:
        """Return a `DataLoader` over the validation data, with the batch size of one slot."""

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        """Return callbacks by name; names stay the same over checkpoints."""
        return {}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        """Return the validation metrics of one batch; reduced by `evaluation_reducer`.

        Args:
            batch: What the data loader gave, on the context's device.
            batch_idx: Of this batch in this rank's part of the validation data, from 0.
        """
        raise NotImplementedError

    def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
        """Return the validation metrics of the whole validation data; runs on the chief alone."""
        raise NotImplementedError

    def evaluation_reducer(self) -> Reducer | dict[str, Reducer]:
        """Return how `evaluate_batch` metrics are reduced: one reducer for all, or one per metric."""
        return Reducer.AVG

    def get_batch_length(self, batch: Any) -> int:
        """Return the number of samples in a batch, for the log of a validation; override for custom batch types."""
        return data_length(batch)


def make(
    trial_class: Any,
    context: Any,
    hparams: dict[str, Any],
    arguments: dict[str, Any] | None = None,
    *,
    source: str,
    hint: str,
) -> Any:
    """Return a trial; its `__init__` takes the context, and hyperparameters if it names them.

    Args:
        trial_class: The class to instantiate.
        context: Its context.
        hparams: Passed as `hparams`, unless `arguments` contains them.
        arguments: Further arguments.
        source: What the trial is made from, for the error.
        hint: What to do when it needs more arguments, for the error.

    Raises:
        TrainerError: `__init__` needs more arguments.
    """
    signature = inspect.signature(trial_class)
    given = dict(arguments or {})
    if "hparams" in signature.parameters:
        given.setdefault("hparams", hparams)
    try:
        signature.bind(context, **given)
    except TypeError as error:
        raise TrainerError(
            f"{trial_class.__name__}{signature} cannot be made from {source}: {error}", hint=hint
        ) from error
    return trial_class(context, **given)


def overrides(trial: PyTorchTrial, method: str) -> bool:
    """Return whether a trial defines this method itself."""
    return getattr(type(trial), method, None) is not getattr(PyTorchTrial, method)

"""`DeepSpeedTrial`: what users write."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from detlab.pytorch.callback import PyTorchCallback
from detlab.pytorch.data.loader import DataLoader
from detlab.pytorch.deepspeed.context import DeepSpeedTrialContext
from detlab.pytorch.metrics.reducer import Reducer


class DeepSpeedTrial(abc.ABC):
    """Engines, their data, and how they train on one batch; `Trainer` does the rest.

    Make engines by `deepspeed.initialize` in `__init__` and give each to `context.wrap_model_engine`.
    """

    trial_context_class = DeepSpeedTrialContext

    @abc.abstractmethod
    def __init__(self, context: DeepSpeedTrialContext) -> None:
        """Build and wrap the engines."""

    @abc.abstractmethod
    def train_batch(self, dataloader_iter: Iterator[Any] | None, epoch_idx: int, batch_idx: int) -> Any:
        """Train on one micro-batch, with `engine.backward(loss)` and `engine.step()`.

        It is called `gradient_accumulation_steps` times for a batch; once with a pipeline engine, whose
        `train_batch(dataloader_iter)` takes all of them, and after `context.disable_auto_grad_accumulation()`.

        Args:
            dataloader_iter: Gives this rank's micro-batches, on the CPU; None on a rank that reads no data.
            epoch_idx: Of this epoch, from 0.
            batch_idx: Of this batch, from 0 and over all epochs and attempts.

        Returns:
            The loss, or metrics by name; None from a rank that has none.
        """

    @abc.abstractmethod
    def evaluate_batch(self, dataloader_iter: Iterator[Any] | None, batch_idx: int) -> dict[str, Any] | None:
        """Return the validation metrics of one batch; all ranks are called equally often.

        Args:
            dataloader_iter: As of `train_batch`. A rank with fewer batches than another gets one again, and what this
                method returns then does not count.
            batch_idx: Of this batch in this rank's part of the validation data, from 0.
        """

    @abc.abstractmethod
    def build_training_data_loader(self) -> DataLoader | None:
        """Return a `DataLoader` over the training data, whose batches are the micro-batches of one rank."""

    @abc.abstractmethod
    def build_validation_data_loader(self) -> DataLoader | None:
        """Return a `DataLoader` over the validation data, with the micro-batches of one rank."""

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        """Return callbacks by name; names stay the same over checkpoints."""
        return {}

    def evaluation_reducer(self) -> Reducer | dict[str, Reducer]:
        """Return how `evaluate_batch` metrics are reduced: one reducer for all, or one per metric."""
        return Reducer.AVG

    def save(self, context: DeepSpeedTrialContext, path: Path) -> None:
        """Write the engines into the folder of a checkpoint; all ranks do, each its own part."""
        for index, engine in enumerate(context.models):
            engine.save_checkpoint(str(path), tag=f"model{index}")

    def load(self, context: DeepSpeedTrialContext, path: Path) -> None:
        """Read the engines from the folder of a checkpoint; all ranks do."""
        for index, engine in enumerate(context.models):
            engine.load_checkpoint(str(path), tag=f"model{index}")

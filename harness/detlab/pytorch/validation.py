"""One validation of a trial, on all ranks."""

from __future__ import annotations

import inspect
import logging
import time
from typing import TYPE_CHECKING, Any

import torch

from detlab.core.distributed.heartbeat import LoopState
from detlab.pytorch.callback import CallbackSet
from detlab.pytorch.data.loader import DataLoader, dataset_repro_warning
from detlab.pytorch.data.resumable import ValidationShare, validation_loader
from detlab.pytorch.errors import LoaderRefused, TrainerError
from detlab.pytorch.governance.profiles import untouched_rng
from detlab.pytorch.metrics.aggregate import ValidationMetrics, to_plain
from detlab.pytorch.trial import PyTorchTrial, overrides

if TYPE_CHECKING:
    from detlab.pytorch.context.trial_context import PyTorchTrialContext

logger = logging.getLogger("detlab.pytorch")

VALIDATION_BUILDER = "build_validation_data_loader"
TRAINING_BUILDER = "build_training_data_loader"


def problems_of(trial: PyTorchTrial) -> list[str]:
    """Return what is wrong with the methods a trial defines."""
    batch, full = overrides(trial, "evaluate_batch"), overrides(trial, "evaluate_full_dataset")
    if batch == full:
        which = "both" if batch else "neither"
        return [
            f"{type(trial).__name__} defines {which} of evaluate_batch and evaluate_full_dataset: define exactly one"
        ]
    return []


def check_loader(loader: Any, builder: str, context: PyTorchTrialContext) -> Any:
    """Return a data loader that a trial has built, if the trainer can use it.

    Raises:
        LoaderRefused: It is not a data loader, or not detlab's own and the check is not disabled.
    """
    if loader is None:
        raise LoaderRefused(f"{builder}() returned None: return a detlab.pytorch.DataLoader")
    if not isinstance(loader, DataLoader) and not context.experimental._data_repro_checks_disabled:
        raise LoaderRefused(dataset_repro_warning(builder, loader))
    return loader


def _takes_index(evaluate_batch: Any) -> bool:
    """Return whether a trial's `evaluate_batch` wants the index; Determined lets it be left out."""
    parameters = inspect.signature(evaluate_batch).parameters
    return "batch_idx" in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values())


class Validation:
    """Evaluates a trial's model.

    Args:
        trial: The trial.
        context: Its context.
        callbacks: Their validation hooks are called.
        state: Of the training loop; updated at each batch.
        test_mode: One batch only.
    """

    def __init__(
        self,
        trial: PyTorchTrial,
        context: PyTorchTrialContext,
        callbacks: CallbackSet,
        state: LoopState,
        *,
        test_mode: bool,
    ) -> None:
        self._trial = trial
        self._context = context
        self._callbacks = callbacks
        self._state = state
        self._test_mode = test_mode
        self._full = overrides(trial, "evaluate_full_dataset")
        self._warned: set[str] = set()
        self._loader: Any = None
        distributed = context.distributed
        if not self._full:
            built = check_loader(trial.build_validation_data_loader(), VALIDATION_BUILDER, context)
            self._loader = validation_loader(built, rank=distributed.rank, size=distributed.size)
        elif distributed.rank == 0:
            built = check_loader(trial.build_validation_data_loader(), VALIDATION_BUILDER, context)
            self._loader = validation_loader(built, rank=0, size=1)

    def run(self) -> dict[str, Any]:
        """Return plain metrics, the same on all ranks.

        Raises:
            TrainerError: What the trial's methods returned cannot be used.
        """
        started = time.monotonic()
        context = self._context
        context.reset_reducers()
        context._eval()
        self._callbacks.call("on_validation_start")
        with torch.no_grad():
            metrics, counted = (self._evaluate_full(), "") if self._full else self._evaluate_batches()
        metrics.update(context.reduce_metrics(for_training=False))
        metrics = {name: to_plain(value, name) for name, value in metrics.items()}
        logger.info("validated%s in %.2f s", counted, time.monotonic() - started)
        return metrics

    def look(self) -> None:
        """Have the trial evaluate one batch, of which nothing is kept; all ranks call in step.

        Nothing is trained or drawn by it. A trial that evaluates the whole data set by itself is not asked.
        """
        if self._full:
            return
        evaluate: Any = self._trial.evaluate_batch
        self._context._eval()
        with torch.no_grad(), untouched_rng(self._context.device):
            for batch in self._loader:
                data = self._context.to_device(batch) if self._context.experimental._auto_to_device else batch
                _ = evaluate(batch=data, batch_idx=0) if _takes_index(evaluate) else evaluate(batch=data)
                break
        self._context.reset_reducers()
        self._context._train()

    def close(self) -> None:
        """Stop the workers of the validation data."""
        if isinstance(self._loader, ValidationShare):  # a foreign loader is the user's to close
            self._loader.close()

    def _evaluate_batches(self) -> tuple[dict[str, Any], str]:
        """Return the metrics, and how much data of all ranks together they are of."""
        self._callbacks.call("on_validation_epoch_start")
        collected = ValidationMetrics(self._warned)
        evaluate: Any = self._trial.evaluate_batch
        numbered = _takes_index(evaluate)
        outputs: list[Any] | None = [] if self._callbacks.wants("on_validation_epoch_end") else None
        for index, batch in enumerate(self._loader):
            self._state.part = index
            data = self._context.to_device(batch) if self._context.experimental._auto_to_device else batch
            metrics = evaluate(batch=data, batch_idx=index) if numbered else evaluate(batch=data)
            collected.add(metrics, self._trial.get_batch_length(data))
            if outputs is not None:
                outputs.append(metrics)
            if self._test_mode:
                break
        if outputs is not None:
            self._callbacks.call("on_validation_epoch_end", outputs)
        metrics = collected.reduce(self._context.distributed, self._trial.evaluation_reducer())
        return metrics, f" {collected.samples} samples ({collected.batches} batches)"

    def _evaluate_full(self) -> dict[str, Any]:
        distributed = self._context.distributed
        if distributed.rank != 0:
            shared: dict[str, Any] = distributed.broadcast(None)
            return shared
        metrics = self._trial.evaluate_full_dataset(data_loader=self._loader)
        if not isinstance(metrics, dict):
            raise TrainerError(f"evaluate_full_dataset() must return a dict of metrics, not {type(metrics).__name__}")
        plain: dict[str, Any] = distributed.broadcast({name: to_plain(value, name) for name, value in metrics.items()})
        return plain

"""The state of a trial's wrapped models, optimizers and schedulers, for checkpoints."""

from __future__ import annotations

import logging
from typing import Any

import torch

from detlab.pytorch.context.lr_scheduler import LRScheduler
from detlab.pytorch.errors import TrainerError
from detlab.pytorch.parallel.optimizer_step import OptimizerFacts
from detlab.pytorch.parallel.strategy import Shard, Strategy

logger = logging.getLogger("detlab.pytorch")


class WrappedState:
    """The part of `PyTorchTrialContext` that checkpoints hold.

    Args:
        aggregation_frequency: Batches whose gradients make one optimizer step.
        strategy: What spreads them over the ranks.
    """

    _batch_idx: int | None
    """Of `TrainingPosition`, the part beside this one."""

    def __init__(self, aggregation_frequency: int, strategy: Strategy) -> None:
        self._strategy = strategy
        self.models: list[torch.nn.Module] = []
        self.optimizers: list[torch.optim.Optimizer] = []
        self.lr_schedulers: list[LRScheduler] = []
        self._facts: dict[Any, OptimizerFacts] = {}
        self._scaler: Any = None
        self._aggregation_frequency = aggregation_frequency
        self._is_sync_step = aggregation_frequency == 1

    def _shard(self) -> Shard:
        """Return this rank's part of the state of models and optimizers; all ranks call it.

        Raises:
            TrainerError: The strategy has other ranks than the chief write some of it.
        """
        shard = self._strategy.state(self.models, self.optimizers)
        if shard.writers - {0}:
            raise TrainerError(
                f"the training strategy {self._strategy.name!r} has ranks {sorted(shard.writers)} write parts of a "
                "checkpoint, and the trainer stores those of the chief alone",
                hint="have Strategy.state() gather the state on the chief",
            )
        return shard

    def _schedulers_state(self) -> list[dict[str, Any]]:
        return [scheduler._state() for scheduler in self.lr_schedulers]

    def _load_schedulers_state(self, states: list[dict[str, Any]]) -> None:
        """Load the schedulers and their counters.

        Raises:
            TrainerError: They are others than those that were saved; nothing is loaded.
        """
        _same_number("learning rate scheduler", states, self.lr_schedulers)
        pairs = list(zip(self.lr_schedulers, states, strict=True))
        problems = [
            f"learning rate scheduler {index}: {problem}"
            for index, (scheduler, state) in enumerate(pairs)
            if (problem := scheduler._mismatch(state))
        ]
        if problems:
            raise TrainerError.of("the checkpoint is of another trial:", problems)
        for scheduler, state in pairs:
            scheduler._load_state(state)

    def _scaler_state(self) -> dict[str, Any] | None:
        return None if self._scaler is None else dict(self._scaler.state_dict())

    def _load_scaler_state(self, state: dict[str, Any] | None) -> None:
        """Load the scaler; a checkpoint from training without one leaves it as it is, and the other way round."""
        if self._scaler is None or not state:
            if state or (self._scaler is not None and self._scaler.state_dict()):
                logger.warning("the checkpoint and this trial differ in whether they scale gradients: scale not loaded")
            return
        if self._scaler.state_dict():
            self._scaler.load_state_dict(state)

    def _pending_gradients(self) -> list[torch.Tensor | None] | None:
        """Return this rank's gradients if training is between two steps of an aggregation, else None."""
        if self._is_sync_step or self._batch_idx is None:
            return None
        return [parameter.grad for parameter in self._optimized()]

    def _restore_gradients(self, gradients: list[torch.Tensor | None]) -> None:
        """Put back what `_pending_gradients` returned.

        Raises:
            TrainerError: They are of other parameters.
        """
        parameters = self._optimized()
        _same_number("gradient", gradients, parameters)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = None if gradient is None else gradient.to(parameter.device, parameter.dtype, copy=True)

    def _optimized(self) -> list[torch.nn.Parameter]:
        unique = {id(parameter): parameter for facts in self._facts.values() for parameter in facts.parameters()}
        return list(unique.values())

    def _all_parameters(self) -> list[torch.nn.Parameter]:
        """Return the parameters of all models and optimizers, each once."""
        of_models = (parameter for model in self.models for parameter in model.parameters())
        return list({id(parameter): parameter for parameter in (*of_models, *self._optimized())}.values())


def _same_number(what: str, saved: list[Any], present: list[Any]) -> None:
    if len(saved) != len(present):
        raise TrainerError(f"the checkpoint has {len(saved)} {what}(s), this trial has {len(present)}")

"""`DetLogger`: what a `LightningModule` logs becomes metrics of the trial."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.loggers.logger import Logger
from lightning.pytorch.trainer.states import RunningStage

from detlab import core
from detlab.frameworks.trial import TRAINING, VALIDATION, TrialControl, counts

logger = logging.getLogger("detlab.lightning")

_GROUPS = {
    RunningStage.TRAINING: TRAINING,
    RunningStage.VALIDATING: VALIDATION,
    RunningStage.TESTING: "test",
    RunningStage.PREDICTING: "prediction",
}


class DetLogger(Logger):
    """Reports what `self.log()` of a `LightningModule` logs.

    What a validation has logged at its end is reported as validation, with `batches` and `epochs` for the searcher;
    what is logged on each of its batches goes to the group `validation_batches`. Only the chief reports.

    With a `DetCheckpointCallback` in the same Trainer the group is the Trainer's stage; without one it follows the
    names (`val…`, `test…`, anything else).

    Args:
        core_context: What `core.init()` gave.
    """

    def __init__(self, core_context: core.Context) -> None:
        super().__init__()
        self._trial = TrialControl(core_context)
        self._trainer: Trainer | None = None

    @property
    def name(self) -> str:
        """The name of Determined's logger."""
        return "DetLogger"

    @property
    def version(self) -> str:
        """The trial's id; empty off-cluster."""
        return str(self._trial.trial_id or "")

    @property
    def experiment(self) -> core.Context:
        """The trial's context, for what Lightning does not log."""
        return self._trial.core

    def follow(self, trainer: Trainer, resumed_at: int | None) -> None:
        """Take groups and steps from a Trainer, which resumes at a step; `DetCheckpointCallback` calls it."""
        self._trainer = trainer
        self._trial.resumed_at = resumed_at

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Report metrics.

        Args:
            metrics: By name.
            step: Lightning's, which counts from 0 what it trains. It counts only without a Trainer to follow:
                `steps_completed` is the Trainer's `global_step`, the steps of its optimizers.
        """
        trainer = self._trainer
        if trainer is None or trainer.state.fn is None:
            self._trial.report(_group_by_name(metrics), (step or 0) + 1, metrics)
            return
        stage = trainer.state.stage
        if stage is RunningStage.SANITY_CHECKING:
            return
        group = _GROUPS.get(stage, TRAINING) if stage is not None else _group_by_name(metrics)
        if group == VALIDATION and trainer._logger_connector._first_loop_iter is not None:
            self._trial.report("validation_batches", (step or 0) + 1, metrics)  # of its batches, counted by themselves
            return
        step, epochs = trainer.global_step, epochs_of(trainer)
        if group == VALIDATION:
            self._trial.report_validation(step, metrics, epochs)
        else:
            self._trial.report(group, step, {**metrics, **counts(step, epochs)})

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Log them for people: the trial has its own from the search."""
        logger.debug("hyperparameters of the module: %s", params)


def epochs_of(trainer: Trainer) -> float:
    """Return how many epochs a Trainer has trained, with the part of the current one if its length is known."""
    loop = trainer.fit_loop
    length = trainer.num_training_batches
    done = loop.epoch_progress.current.processed
    within = loop.epoch_loop.batch_progress.current.ready
    if loop.epoch_progress.current.ready == done or not isinstance(length, int) or length < 1:
        return float(done)
    return done + within / length


def _group_by_name(metrics: Mapping[str, Any]) -> str:
    names = [name for name in metrics if name not in {"epoch", "step"}]
    for start, group in (("val", VALIDATION), ("test", "test")):
        if any(name.startswith(start) for name in names):
            return group
    return TRAINING

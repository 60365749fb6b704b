"""`DeterminedCallback`: reports, checkpoints, preemption and resuming of `model.fit` of Keras 3."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import keras
import numpy as np

from detlab import core
from detlab.frameworks import random_states
from detlab.frameworks.errors import FrameworkError
from detlab.frameworks.trial import TRAINING, TrialControl, counts

logger = logging.getLogger("detlab.keras")

WEIGHTS = "model_checkpoint.weights.h5"
"""Of a checkpoint: what `model.save_weights` writes, with the optimizer's state."""
STATE = "callback_state.json"
LENGTH_SETTING = "fit(epochs=…)"
SEEDS = "seed_generator_state"
"""Name of the variables that hold the states of Keras' own random number generators, which the weights lack."""


class DeterminedCallback(keras.callbacks.ProgbarLogger):
    """Connects `model.fit` with its trial.

    Metrics of training and validation are reported, weights and the optimizer's state are stored as checkpoints of the
    trial, and a checkpoint is restored before the first epoch. Whether the trial is to stop is asked after each epoch;
    then it stores a checkpoint, and the process ends. The bar of `verbose=1` is not drawn: it fills logs.

    Do not use it with `BackupAndRestore`, which restores too. `initial_epoch` of `model.fit` counts only where nothing
    is restored. All ranks make one.

    Args:
        core_context: What `core.init()` gave.
        checkpoint: The uuid of a checkpoint to start from, such as `det.get_cluster_info().latest_checkpoint`; None for
            none.
        continue_id: Stored with checkpoints, such as `det.get_cluster_info().trial.trial_id`. A checkpoint with the
            same one is continued at its epoch; of another one only the weights are taken.
        train_metrics_report_period: `epoch`, or after how many batches metrics of training are reported.
        checkpoint_epochs: Store a checkpoint after so many epochs; 0 stores only at the end and when the trial stops.

    Raises:
        FrameworkError: An argument is invalid.
    """

    def __init__(
        self,
        core_context: core.Context,
        checkpoint: str | None,
        continue_id: int | str,
        *,
        train_metrics_report_period: int | Literal["epoch"] = "epoch",
        checkpoint_epochs: int = 1,
    ) -> None:
        keras.callbacks.Callback.__init__(self)
        self._trial = TrialControl(core_context)
        self._check(train_metrics_report_period, checkpoint_epochs)
        self._checkpoint = checkpoint
        self._continue_id = continue_id
        self._period = train_metrics_report_period
        self._checkpoint_epochs = checkpoint_epochs
        self._steps = 0
        self._epoch_start = 0
        self._epoch = -1
        self._saved_epoch = -1

    @staticmethod
    def _check(period: Any, checkpoint_epochs: Any) -> None:
        problems = []
        if period != "epoch" and (isinstance(period, bool) or not isinstance(period, int) or period < 1):
            problems.append(f"train_metrics_report_period must be 'epoch' or an integer from 1, not {period!r}")
        if isinstance(checkpoint_epochs, bool) or not isinstance(checkpoint_epochs, int) or checkpoint_epochs < 0:
            problems.append(f"checkpoint_epochs must be an integer from 0, not {checkpoint_epochs!r}")
        if problems:
            raise FrameworkError("; ".join(problems))

    # --- what can be replaced, as in Determined

    def save_model(self, model: keras.Model, path: str, distributed: core.DistributedContext) -> None:
        """Write the model; on all ranks. Replace it together with `load_model` to write something else.

        Args:
            model: The model.
            path: A file to write; its name ends in `.weights.h5`.
            distributed: Ranks of the trial: files of one name must be written by one of them.
        """
        if distributed.rank == 0:
            model.save_weights(path)

    def load_model(self, model: keras.Model, path: str, distributed: core.DistributedContext) -> None:
        """Read what `save_model` wrote, on all ranks."""
        if model.optimizer is not None and not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        model.load_weights(path)

    # --- the course of model.fit

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Restore the checkpoint, if there is one.

        Raises:
            FrameworkError: `fit` trains for another length than the search, or the checkpoint is of something else.
            CheckpointError: It cannot be read.
        """
        if keras.backend.backend() != "torch":
            logger.warning("Keras runs on %s: DeterminedCallback was tested on torch", keras.backend.backend())
        self._check_length()
        if self._checkpoint is not None:
            self._trial.set_status("restoring")
            self._load(self._checkpoint)

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Note where the epoch begins."""
        self._epoch, self._epoch_start = epoch, self._steps
        self._trial.set_status("training")

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Count the batch; report metrics if they are due."""
        before, self._steps = self._steps, self._epoch_start + batch + 1
        period = self._period
        if period != "epoch" and self._steps // period > before // period:
            self._report(logs, self._done_epochs())

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Report metrics of training and progress; store a checkpoint if one is due; ask whether to stop."""
        if self._period == "epoch":
            training = {name: value for name, value in (logs or {}).items() if not name.startswith("val_")}
            self._report(training, epoch + 1)
        if epochs := self.params.get("epochs"):
            self._trial.report_progress((epoch + 1) / epochs)
        if self._checkpoint_epochs and (epoch + 1) % self._checkpoint_epochs == 0:
            self._save(epoch)
        if self._trial.ask(self._steps):
            self.model.stop_training = True

    def on_test_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Say that the model is validated."""
        self._trial.set_status("validating")

    def on_test_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """Report metrics of a validation, under their names without `val_`."""
        told = dict(logs or {})
        if any(name.startswith("val_") for name in self._trial.searched_names):
            told.update({f"val_{name}": value for name, value in told.items()})
        self._trial.report_validation(self._steps, told, self._epoch + 1)

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """Store the last checkpoint; end the process, if the trial is to stop before its end.

        Raises:
            SystemExit: With code 0.
        """
        self.model._initial_epoch = None  # a further fit() of this model begins where it is told to
        if self._epoch > self._saved_epoch:
            self._save(self._epoch)
        if self._trial.stopping and self._epoch + 1 < self.params.get("epochs", 0):
            self._trial.leave()
        self._trial.set_status("finishing")

    def _check_length(self) -> None:
        epochs, steps, length = self.params.get("epochs"), self.params.get("steps"), self._trial.length
        if length is None or not epochs:
            return
        if length.unit == "epochs":
            self._trial.check_length(batches=None, epochs=epochs, setting=LENGTH_SETTING)
        elif steps:
            self._trial.check_length(batches=epochs * steps, epochs=None, setting=LENGTH_SETTING)

    def _done_epochs(self) -> float | None:
        length = self.params.get("steps")
        if not length:
            return None
        return self._epoch + (self._steps - self._epoch_start) / length

    def _report(self, logs: Mapping[str, Any] | None, epochs: float | None) -> None:
        self._trial.report(TRAINING, self._steps, {**(logs or {}), **counts(self._steps, epochs)})

    # --- checkpoints

    def _save(self, epoch: int) -> None:
        self._trial.set_status("checkpointing")
        metadata = {
            "steps_completed": self._steps,
            "framework": f"keras-{keras.__version__}",
            "format": "keras-weights",
        }
        rank = self._trial.distributed.rank
        with self._trial.core.checkpoint.store_path(metadata, shard=True) as (folder, _):
            self.save_model(self.model, os.fspath(folder / WEIGHTS), self._trial.distributed)
            own = {"random": random_states.capture(), "seeds": [_values(seed) for seed in self._seeds()]}
            (folder / _rank_file(rank)).write_text(json.dumps(own), encoding="utf-8")
            if self._trial.chief:
                state = {"epoch": epoch, "steps_completed": self._steps, "continue_id": self._continue_id}
                (folder / STATE).write_text(json.dumps(state), encoding="utf-8")
        self._saved_epoch = epoch

    def _load(self, uuid: str) -> None:
        distributed = self._trial.distributed
        with self._trial.core.checkpoint.restore_path(uuid) as folder:
            if not (folder / STATE).is_file():
                raise FrameworkError(f"checkpoint {uuid} has no {STATE}: no DeterminedCallback wrote it")
            if not self.model.built:
                raise FrameworkError(
                    "the model has no weights yet, into which the checkpoint could be read",
                    hint="Give it an Input layer, or call model.build(shape) before fit().",
                )
            self.load_model(self.model, os.fspath(folder / WEIGHTS), distributed)
            state = json.loads((folder / STATE).read_text(encoding="utf-8"))
            if state["continue_id"] != self._continue_id:
                logger.info("the weights of checkpoint %s are taken: it is another trial's", uuid)
                return
            self._steps = self._trial.resumed_at = int(state["steps_completed"])
            self._epoch = self._saved_epoch = int(state["epoch"])
            self.model._initial_epoch = self._epoch + 1  # as Keras' BackupAndRestore does
            self._restore_random_states(folder / _rank_file(distributed.rank))
            logger.info("resumed from checkpoint %s after epoch %d", uuid, self._epoch + 1)

    def _restore_random_states(self, path: Path) -> None:
        if not path.is_file():
            return  # there are more ranks now than there were
        own = json.loads(path.read_text(encoding="utf-8"))
        for seed, values in zip(self._seeds(), own["seeds"], strict=False):
            seed.assign(np.array(values, dtype=seed.dtype))
        random_states.restore(own["random"])

    def _seeds(self) -> list[Any]:
        return [variable for variable in self.model.variables if variable.name == SEEDS]

    # --- what the bar of `verbose=1` would do

    def set_params(self, params: dict[str, Any]) -> None:
        """Take the parameters of `fit`, and draw no bar."""
        keras.callbacks.Callback.set_params(self, params)

    def on_test_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Draw no bar."""

    def on_predict_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Draw no bar."""

    def on_predict_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Draw no bar."""

    def on_predict_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """Draw no bar."""


def _values(variable: Any) -> list[Any]:
    found: list[Any] = np.asarray(keras.ops.convert_to_numpy(variable)).tolist()
    return found


def _rank_file(rank: int) -> str:
    return f"rank-{rank}.json"

"""Information about the trial: hyperparameters, batch sizes, ids, config, TensorBoard."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

from detlab import core
from detlab.errors import NotInCluster
from detlab.info import TrialInfo
from detlab.pytorch.errors import TrainerError
from detlab.pytorch.metrics.tensorboard import summary_writer

_INIT = "pytorch.init(hparams=…) gives hyperparameters off-cluster"


class TrialInformation:
    """The questions of `PyTorchTrialContext` whose answers stay the same while a trial runs.

    Args:
        core_context: The Core API of this process.
        trial_seed: Seed of the trial.
        hparams: Hyperparameters of the trial.
        slots_per_trial: Processes that share the global batch; 0 counts as 1.
        exp_conf: The experiment config.
        steps_completed: Batches trained before this process started.
        enable_tensorboard_logging: Whether the trainer writes metrics to TensorBoard.
    """

    def __init__(
        self,
        core_context: core.Context,
        trial_seed: int | None,
        hparams: dict[str, Any] | None,
        slots_per_trial: int,
        exp_conf: dict[str, Any] | None,
        steps_completed: int,
        enable_tensorboard_logging: bool,
    ) -> None:
        self._core = core_context
        self._trial_seed = trial_seed
        self._hparams = hparams
        self._slots_per_trial = max(slots_per_trial, 1)
        self._exp_conf = exp_conf
        self._steps_completed = steps_completed
        self._enable_tensorboard_logging = enable_tensorboard_logging
        self._tensorboard_writer: Any = None

    def get_hparams(self) -> dict[str, Any]:
        """Return the hyperparameters of this trial.

        Raises:
            TrainerError: The context was created without hyperparameters.
        """
        if self._hparams is None:
            raise TrainerError("this trial has no hyperparameters", hint=_INIT)
        return self._hparams

    def get_hparam(self, name: str) -> Any:
        """Return the value of one hyperparameter.

        Raises:
            TrainerError: There is no hyperparameter of this name; the message lists those that exist.
        """
        hparams = self.get_hparams()
        if name in hparams:
            return hparams[name]
        close = difflib.get_close_matches(str(name), map(str, hparams), n=1)
        known = ", ".join(map(str, hparams)) or "none"
        raise TrainerError(
            f"there is no hyperparameter {name!r}; known: {known}",
            hint=f"did you mean {close[0]!r}?" if close else _INIT if not hparams else None,
        )

    def get_per_slot_batch_size(self) -> int:
        """Return how many samples of a batch each process takes: `global_batch_size // slots`.

        Raises:
            TrainerError: The hyperparameter `global_batch_size` is missing, not an integer, or too small.
        """
        size, slots = self.get_hparam("global_batch_size"), self._slots_per_trial
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise TrainerError(f"the hyperparameter global_batch_size must be a positive integer, not {size!r}")
        if size < slots:
            raise TrainerError(
                f"the hyperparameter global_batch_size is {size}, too small for {slots} slots",
                hint="raise global_batch_size, or lower resources.slots_per_trial",
            )
        return int(size // slots)

    def get_global_batch_size(self) -> int:
        """Return how many samples all processes take together.

        It is the hyperparameter `global_batch_size`, rounded down to a multiple of the number of slots.

        Raises:
            TrainerError: As in `get_per_slot_batch_size`.
        """
        return self.get_per_slot_batch_size() * self._slots_per_trial

    def get_trial_seed(self) -> int:
        """Return the seed of the trial.

        Raises:
            TrainerError: The trial has no seed.
        """
        if self._trial_seed is None:
            raise TrainerError("this trial has no seed", hint="make the context with `with pytorch.init() as context:`")
        return self._trial_seed

    def get_initial_batch(self) -> int:
        """Return how many batches were trained before this process started."""
        return self._steps_completed

    def get_experiment_config(self) -> dict[str, Any]:
        """Return the experiment config.

        Raises:
            TrainerError: There is no experiment config.
        """
        if self._exp_conf is None:
            raise TrainerError(
                "this trial has no experiment config", hint="pytorch.init(exp_conf=…) gives one off-cluster"
            )
        return self._exp_conf

    def get_data_config(self) -> dict[str, Any]:
        """Return the block `data` of the experiment config, empty if there is none."""
        return self.get_experiment_config().get("data") or {}

    def get_experiment_id(self) -> int:
        """Return the experiment's id.

        Raises:
            NotInCluster: This process runs off-cluster.
        """
        return self._trial_info("experiment").experiment_id

    def get_trial_id(self) -> int:
        """Return the trial's id.

        Raises:
            NotInCluster: This process runs off-cluster.
        """
        return self._trial_info("trial").trial_id

    def _trial_info(self, what: str) -> TrialInfo:
        info = self._core.info
        if info is None:
            raise NotInCluster(
                f"this process runs off-cluster, where there is no {what} id",
                hint="call it only if `detlab.get_cluster_info()` is not None",
            )
        return info.trial

    def get_tensorboard_path(self) -> Path:
        """Return the directory for TensorBoard files of this rank; it exists, and is copied to storage."""
        return self._core.train.get_tensorboard_path()

    def get_tensorboard_writer(self) -> Any:
        """Return a `torch.utils.tensorboard.SummaryWriter` on that directory, always the same one.

        Raises:
            TrainerError: The package tensorboard is not installed.
        """
        if self._tensorboard_writer is None:
            self._tensorboard_writer = summary_writer(self.get_tensorboard_path())
        return self._tensorboard_writer

    def set_enable_tensorboard_logging(self, enable_tensorboard_logging: bool) -> None:
        """Set whether the trainer writes metrics to TensorBoard.

        Raises:
            TrainerError: The argument is not a boolean.
        """
        if not isinstance(enable_tensorboard_logging, bool):
            raise TrainerError(
                f"set_enable_tensorboard_logging() takes True or False, not {enable_tensorboard_logging!r}"
            )
        self._enable_tensorboard_logging = enable_tensorboard_logging

    def get_enable_tensorboard_logging(self) -> bool:
        """Return whether the trainer writes metrics to TensorBoard."""
        return self._enable_tensorboard_logging

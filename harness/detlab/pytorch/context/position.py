"""The position of training: the batch, its index in the epoch, and whether a stop is requested."""

from __future__ import annotations

import logging
from typing import Any

from detlab.pytorch.errors import NotTraining, TrainerError

logger = logging.getLogger("detlab.pytorch")


class TrainingPosition:
    """The part of `PyTorchTrialContext` that the loop moves on, batch by batch."""

    def __init__(self) -> None:
        self._batch_idx: int | None = None
        self._epoch_idx = 0
        self._starts_epoch = self._ends_epoch = False
        self._sample_ids: Any = None
        self._stop_requested = False

    def is_epoch_start(self) -> bool:
        """Return whether the current batch is the first of its epoch."""
        self.current_train_batch()
        return self._starts_epoch

    def is_epoch_end(self) -> bool:
        """Return whether the current batch is the last of its epoch."""
        self.current_train_batch()
        return self._ends_epoch

    def current_train_epoch(self) -> int:
        """Return the index of the current epoch, from 0."""
        self.current_train_batch()
        return self._epoch_idx

    def current_train_batch(self) -> int:
        """Return the index of the current batch, from 0 and over all epochs and attempts.

        Raises:
            NotTraining: Training has not started.
        """
        if self._batch_idx is None:
            raise self._not_started("the current batch")
        return self._batch_idx

    def current_sample_ids(self) -> Any:
        """Return the dataset indices of the samples in this rank's batch; None if the data loader is a foreign one.

        None of them are this rank's, and the list is empty, if it only takes part in a step that has too few samples
        for all ranks: the rest of an epoch that fewer processes began. Not a method of Determined.
        """
        self.current_train_batch()
        return self._sample_ids

    def set_stop_requested(self, stop_requested: bool) -> None:
        """Request the end of training; within about a second it validates, checkpoints and stops.

        Raises:
            TrainerError: The argument is not a boolean.
        """
        if not isinstance(stop_requested, bool):
            raise TrainerError(f"set_stop_requested() takes True or False, not {stop_requested!r}")
        if stop_requested and not self._stop_requested:
            logger.info("the trial has asked to stop")
        self._stop_requested = stop_requested

    def get_stop_requested(self) -> bool:
        """Return whether the end of training was requested on this rank."""
        return self._stop_requested

    @staticmethod
    def _not_started(what: str) -> NotTraining:
        return NotTraining(f"{what} is known while train_batch runs, and training has not started yet")

    def _move_to(self, batch_idx: int, epoch_idx: int, starts_epoch: bool, ends_epoch: bool, ids: Any) -> None:
        self._batch_idx = batch_idx
        self._epoch_idx = epoch_idx
        self._starts_epoch = starts_epoch
        self._ends_epoch = ends_epoch
        self._sample_ids = ids

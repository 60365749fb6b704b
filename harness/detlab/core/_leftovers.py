"""What is left in the storage of checkpoints that were begun and never committed, and its removal."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable

from detlab.errors import CheckpointError, DetlabError, StorageError
from detlab.storage import StorageManager

logger = logging.getLogger("detlab.core")

ABANDONED = 7 * 86400.0
"""A stage that nothing was written to for so many seconds is nobody's any more."""
_NOT_IN_NAMES = re.compile(r"[^0-9A-Za-z_-]")


class Leftovers:
    """Removes old stages of anybody, once; for training off a cluster there is no more to know.

    Args:
        storage: Where checkpoints lie.
    """

    def __init__(self, storage: StorageManager) -> None:
        self._storage = storage
        self._cleared = False

    def begin(self, uuid: str) -> None:
        """Clear up, if that was not done yet, and note that `uuid` is being written or removed."""
        if self._cleared:
            return
        try:
            self._clear()
        except DetlabError as error:  # tried again at the next checkpoint, which it must not keep from being stored
            logger.warning("what earlier attempts left of checkpoints was not removed: %s", error.message)
        else:
            self._cleared = True

    def settle(self, uuid: str) -> None:
        """Note that `uuid` is committed, or that nothing is left of it."""

    def give_up(self, uuid: str) -> None:
        """Remove the stage of a checkpoint that failed. What is published stays: the master may have committed it."""
        self._storage.discard(uuid)

    def _clear(self) -> None:
        for uuid in self._storage.sweep(ABANDONED):
            logger.info("removed an abandoned part of checkpoint %s", uuid)


class TrialLeftovers(Leftovers):
    """Knows, by marks in the storage, what earlier attempts of this trial have begun, and asks the master about it.

    A checkpoint that the master does not have by then will never be committed: only the current attempt can.

    Args:
        storage: Where checkpoints lie.
        cluster_id: Id of the cluster.
        trial_id: Id of the trial.
        run: Number of this attempt; those of earlier ones are smaller.
        is_committed: Asks the master whether it has a checkpoint.
    """

    def __init__(
        self, storage: StorageManager, cluster_id: str, trial_id: int, run: int, is_committed: Callable[[str], bool]
    ) -> None:
        super().__init__(storage)
        self._owner = _NOT_IN_NAMES.sub("_", f"{cluster_id}-{trial_id}")
        self._run = run
        self._is_committed = is_committed

    def begin(self, uuid: str) -> None:
        """See `Leftovers.begin`."""
        super().begin(uuid)
        self._mark(uuid)

    def settle(self, uuid: str) -> None:
        """See `Leftovers.settle`."""
        with contextlib.suppress(DetlabError):  # a mark that stays is looked at again by the next attempt
            self._storage.unmark(uuid, self._owner, self._run)

    def give_up(self, uuid: str) -> None:
        """See `Leftovers.give_up`."""
        super().give_up(uuid)
        try:
            self._storage.manifest(uuid)
        except CheckpointError:
            self.settle(uuid)
        else:
            self._mark(uuid)

    def _mark(self, uuid: str) -> None:
        try:
            self._storage.mark(uuid, self._owner, self._run)
        except StorageError as error:  # as on a full disk: that it could not be cleared up later is not the worst of it
            logger.debug("checkpoint %s is begun without a mark: %s", uuid, error.message)

    def _clear(self) -> None:
        super()._clear()
        for run, uuid in self._storage.marked(self._owner):
            if run >= self._run:
                continue
            if not self._is_committed(uuid):
                logger.info("removing what attempt %d left of checkpoint %s, which was never committed", run, uuid)
                self._storage.discard(uuid)
                self._storage.delete(uuid)
            self._storage.unmark(uuid, self._owner, run)

"""What is left in the storage of checkpoints that were begun and never stored, and its removal.

Stages are removed. What is published stays, unless the master itself says, by its uuid, that it is none: begun by an
earlier attempt, and never committed. No other answer (a proxy's, another master's) must ever cost a checkpoint.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from detlab.errors import CheckpointError, DetlabError
from detlab.schemas.taskwire import StoredItem, StoredMark, StoredPage, StoredVerdicts
from detlab.storage import StorageManager
from detlab.storage.inventory import StoredCheckpoint, remove

logger = logging.getLogger("detlab.core")

ABANDONED = 7 * 86400.0
"""Seconds without a write after which a stage counts as abandoned."""
_NOT_IN_NAMES = re.compile(r"[^0-9A-Za-z_-]")


_MARKS = 100
Asks = Callable[[Sequence[StoredCheckpoint]], Mapping[str, str]]
"""Returns what the master knows of some checkpoints: see `StoredVerdicts`."""


class Calls(Protocol):
    """What is needed of a `TaskSession`."""

    def call(self, method: str, path: str, *, body: Any = None) -> Any:
        """Send a request and return the decoded reply."""


def ask(session: Calls, items: Sequence[StoredCheckpoint], place: int | None = None) -> Mapping[str, str]:
    """Return what the master knows of some checkpoints, at most `MOST_ASKED`; see `StoredPage`."""
    told = [
        StoredItem(uuid=one.uuid, marks=[StoredMark(owner=name, run=run) for name, run in one.marks[:_MARKS]])
        for one in items
    ]
    body = StoredPage(items=told, place=place).model_dump(exclude_none=True)
    return StoredVerdicts.model_validate(session.call("POST", "task/storage-check", body=body)).verdicts


class Leftovers:
    """Removes old stages of every process, once per process; off a cluster their age is the only clue.

    Args:
        storage: Where checkpoints lie. One that knows no marks is left alone.
    """

    def __init__(self, storage: StorageManager) -> None:
        self._storage = storage
        self._cleared = not isinstance(storage, StorageManager)

    def begin(self, uuid: str) -> None:
        """Clean up, if that was not done yet, and note that `uuid` is being written."""
        if self._cleared:
            return
        try:
            self._clear()
        except (DetlabError, OSError) as error:  # tried again at the next checkpoint, which it must not stop
            logger.warning("the checkpoint storage was not searched for parts of abandoned checkpoints: %s", error)
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
    """Knows, by marks in the storage, what earlier attempts of this trial have begun.

    A stage of theirs will never be published, nor could it be committed: only the current attempt can.

    Args:
        storage: Where checkpoints lie. In one that knows no marks nothing is cleared up.
        cluster_id: Id of the cluster.
        trial_id: Id of the trial.
        run: Number of this attempt; those of earlier ones are smaller.
        asks: Asks the master about what is published; None: it stays.
    """

    def __init__(
        self, storage: StorageManager, cluster_id: str, trial_id: int, run: int, asks: Asks | None = None
    ) -> None:
        super().__init__(storage)
        self._asks = asks
        self._marks = isinstance(storage, StorageManager)
        self._owner = _NOT_IN_NAMES.sub("_", f"{cluster_id}-{trial_id}")
        self._run = run

    def begin(self, uuid: str) -> None:
        """See `Leftovers.begin`."""
        super().begin(uuid)
        self._mark(uuid)

    def settle(self, uuid: str) -> None:
        """See `Leftovers.settle`."""
        if self._marks:
            with contextlib.suppress(DetlabError, OSError):  # a mark that stays is looked at by the next attempt
                self._storage.unmark(uuid, self._owner, self._run)

    def give_up(self, uuid: str) -> None:
        """See `Leftovers.give_up`."""
        super().give_up(uuid)
        self.settle(uuid)

    def _mark(self, uuid: str) -> None:
        if not self._marks:
            return
        try:
            self._storage.mark(uuid, self._owner, self._run)
        except (DetlabError, OSError) as error:  # as on a full disk: that nobody clears it up is not the worst of it
            logger.debug("checkpoint %s is begun without a mark: %s", uuid, error)

    def _clear(self) -> None:
        super()._clear()
        for run, uuid in self._storage.marked(self._owner):
            if run < self._run:
                try:
                    self._clear_one(run, uuid)
                except (DetlabError, OSError) as error:
                    logger.info("what attempt %d left of checkpoint %s was not removed: %s", run, uuid, error)

    def _clear_one(self, run: int, uuid: str) -> None:
        published = self._is_published(uuid)
        found = StoredCheckpoint(uuid, published=published, marks=[(self._owner, run)])
        verdict = self._verdict(found)
        if verdict == "never":  # also what a removal that was killed has left, without its manifest
            logger.info("removing checkpoint %s, which attempt %d has begun and never committed", uuid, run)
            remove(self._storage, found)
        elif not published or verdict in {"kept", "trash"}:
            self._storage.discard(uuid)
            self._storage.unmark(uuid, self._owner, run)

    def _is_published(self, uuid: str) -> bool:
        try:
            self._storage.manifest(uuid)
        except CheckpointError:
            return False
        return True

    def _verdict(self, found: StoredCheckpoint) -> str:
        """Return what the master knows; one of an earlier version, or that is away, says nothing."""
        if self._asks is None:
            return "unknown"
        try:
            return self._asks([found]).get(found.uuid, "unknown")
        except DetlabError as error:
            logger.debug("the master did not say what it knows of checkpoint %s: %s", found.uuid, error)
            return "unknown"

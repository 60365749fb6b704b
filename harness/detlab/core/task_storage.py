"""The checkpoint storage of a task: what its config says, with credentials that the master may hand out."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from detlab.core.session import COMMIT_LIMIT, INTERACTIVE_LIMIT
from detlab.errors import DetlabError, NotFound
from detlab.info import ClusterInfo
from detlab.schemas.wire import StorageCredentials
from detlab.storage import StorageManager, from_config
from detlab.storage.objects.store import ObjectStorage
from detlab.storage.ownership import StorageHolder
from detlab.storage.posix import PosixStorage

logger = logging.getLogger("detlab.core")

AT_ONCE = 30.0
"""Seconds for which a store itself goes on asking one that is away; then the waiting is that of `full_disk`, which ends
with the trial and is no hang to the watchdog."""
EARLY = 300.0
"""Seconds before their end at which credentials are renewed; fewer for those that hold for some minutes."""
_OWN = ("access_key", "secret_key", "connection_string", "credential")


class Asks(Protocol):
    """What is needed of a `TaskSession`."""

    def get(self, path: str, *, limit: float = INTERACTIVE_LIMIT) -> Any:
        """GET a path and return the decoded reply."""


class MasterCredentials:
    """Gives an object store's client the credentials that the master hands out, and new ones before those expire.

    Called by the client's threads, as obstore's `credential_provider`. While the master is away, the old ones serve for
    as long as they hold.

    Args:
        session: Calls the master.
        first: What it gave already.
        clock: Seconds since the epoch.
    """

    def __init__(self, session: Asks, first: StorageCredentials, clock: Callable[[], float] = time.time) -> None:
        self._session = session
        self._clock = clock
        self._lock = threading.Lock()
        self._now = first
        self._got = clock()

    def __call__(self) -> dict[str, Any]:
        """Return credentials as obstore takes them, with `expires_at`."""
        with self._lock:
            if self._is_old():
                self._renew()
            expires = self._now.expires_at
            return {**self._now.values, "expires_at": None if expires is None else datetime.fromtimestamp(expires, UTC)}

    def _is_old(self) -> bool:
        expires = self._now.expires_at
        return expires is not None and self._clock() > expires - min(EARLY, (expires - self._got) / 4)

    def _renew(self) -> None:
        holds = (self._now.expires_at or 0.0) - self._clock()
        try:
            # Those that have expired are of no use, so that their successors are waited for like a commit.
            fresh = _ask(self._session, 1.0 if holds > 0 else COMMIT_LIMIT)
        except DetlabError as error:
            if holds <= 0:
                raise
            logger.warning("storage credentials were not renewed, those at hand hold for %.0f s: %s", holds, error)
            return
        if fresh.values:
            self._now, self._got = fresh, self._clock()

    def __repr__(self) -> str:
        return "MasterCredentials(…)"


def held(store: StorageManager, info: ClusterInfo | None) -> StorageManager:
    """Return a store that is changed only while the cluster of this task owns it; see `detlab.storage.ownership`."""
    if info is not None and info.storage_instance and isinstance(store, ObjectStorage | PosixStorage):
        return store.held_by(StorageHolder(info.cluster_id, info.storage_instance, info.storage_epoch))
    return store


def open_storage(block: Mapping[str, Any], session: Asks, info: ClusterInfo | None = None) -> StorageManager:
    """Return the storage of a task.

    Credentials in the block come first, then those of the master, then the node's.

    Args:
        block: The `checkpoint_storage` block of the experiment.
        session: Calls the master, if the storage is an object store without credentials.
        info: The task, which changes only what its cluster owns; None: whoever asks owns nothing.

    Raises:
        StorageError: No storage of this type is installed, or the block cannot be used.
        ClusterUnreachable: The master did not say whether it has credentials.
    """
    store = held(from_config(block), info)
    if not isinstance(store, ObjectStorage):
        return store
    objects = store.objects
    make = _makers().get(str(block.get("type")))
    if make is not None and not any(block.get(key) for key in _OWN):
        first = _ask(session, INTERACTIVE_LIMIT)
        if first.values:
            logger.info("the master gives the credentials of the checkpoint storage")
            objects = make(block, credentials=MasterCredentials(session, first))
    return store.again(objects, patience=AT_ONCE)


def for_task(store: StorageManager) -> StorageManager:
    """Return a store that leaves the waiting for one that is away to the task; see `AT_ONCE`."""
    return store.again(patience=AT_ONCE) if isinstance(store, ObjectStorage) else store


def _makers() -> Mapping[str, Callable[..., Any]]:
    from detlab.storage.objects import obstores

    return {"s3": obstores.s3_objects, "gcs": obstores.gcs_objects, "azure": obstores.azure_objects}


def _ask(session: Asks, limit: float) -> StorageCredentials:
    try:
        return StorageCredentials.model_validate(session.get("task/storage-credentials", limit=limit))
    except NotFound:  # of a master that is older than this harness
        return StorageCredentials()

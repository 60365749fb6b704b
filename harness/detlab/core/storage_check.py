"""Asking the checkpoint storage, before the first step, whether it takes checkpoints."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from detlab.backoff import Backoff
from detlab.core.full_disk import is_away
from detlab.errors import DetlabError, StorageAway, StorageDenied, StorageError, StorageRefused
from detlab.storage import StorageManager

logger = logging.getLogger("detlab.core")

ONE_CHECK = 10.0
"""Seconds after which a store that does not answer counts as away."""
PATIENCE = 300.0
"""Seconds of waiting for a store that is away, after which training begins and its first checkpoint waits."""
_FOLDERS = frozenset({"directory", "shared_fs"})
_PLACES = ("bucket", "container", "url", "host_path", "container_path")


def check_storage(
    store: StorageManager,
    config: Mapping[str, Any],
    *,
    patience: float = PATIENCE,
    one_check: float = ONE_CHECK,
    sleep: Callable[[float], Any] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Fail now if checkpoints cannot be stored; wait for a store that is only away, as long as `patience`.

    Args:
        store: Asked by its `check`, if it has one.
        config: The `checkpoint_storage` block, of which errors name the key; {} if the store was given in code.
        patience: In seconds.
        one_check: How long one attempt may take, in seconds.
        sleep: Pauses between attempts.
        clock: Monotonic seconds.

    Raises:
        StorageDenied: This user may not write there, on this node.
        StorageRefused: The store says no, in its own words: no other attempt would do better.
    """
    check = getattr(store, "check", None)
    if check is None:
        return
    give_up, backoff, told = clock() + patience, Backoff(1.0, 15.0), False
    while True:
        try:
            _within(check, one_check)
        except StorageError as error:
            if not is_away(error):
                raise _refusal(error, config) from None
            if clock() > give_up:
                logger.warning("the checkpoint storage is still away: training begins, checkpoints wait for it")
                return
            if not told:
                told = True
                logger.warning("waiting for the checkpoint storage, which is away: %s", error.message)
        else:
            if told:
                logger.warning("the checkpoint storage answers again")
            return
        sleep(backoff.next_pause())


def _within(check: Callable[[], None], seconds: float) -> None:
    """Call `check` in a thread, which is left behind if it hangs, as on a file system whose server is away."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            check()
        except BaseException as error:  # raised by the thread that waits
            failed.append(error)

    thread = threading.Thread(target=run, name="detlab-storage-check", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise StorageAway(f"it did not answer within {seconds:g} s")
    if failed:
        raise failed[0]


def _refusal(error: StorageError, config: Mapping[str, Any]) -> DetlabError:
    """Return the error to show: that of the file system as it is, that of a store with the key to look at."""
    if type(error) is StorageDenied:
        return error
    key = next((name for name in _PLACES if config.get(name)), None)
    where = f"checkpoint_storage.{key}" if key else "checkpoint_storage"
    look = f"look at {where} and at the credentials, then: det config check --storage CONFIG"
    if config.get("type") in _FOLDERS:
        look = f"the checkpoint storage must be there, and writable for the task's user, on its agent: {where}"
    return StorageRefused(
        f"checkpoints cannot be stored ({where}): {error.message}", hint=f"{error.hint}; {look}" if error.hint else look
    )

"""Asking the checkpoint storage, before the first step, whether it takes checkpoints and keeps them."""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from detlab.backoff import Backoff
from detlab.core.full_disk import is_away
from detlab.errors import DetlabError, StorageAway, StorageDenied, StorageError, StorageRefused
from detlab.schemas.runtimes import DOCKER, KUBERNETES
from detlab.storage import StorageManager
from detlab.storage.posix import PosixStorage

logger = logging.getLogger("detlab.core")

ONE_CHECK = 10.0
"""Seconds after which a store that does not answer counts as away."""
PATIENCE = 300.0
"""Seconds of waiting for a store that is away, after which training begins and its first checkpoint waits."""
WAITS = "waits for the checkpoint storage, which is away"
"""The trial's status meanwhile."""
_FOLDERS = frozenset({"directory", "shared_fs"})
_REMOVED_AFTERWARDS = {DOCKER: "container", KUBERNETES: "pod"}
"""Runtimes whose containers are removed with all that they wrote into themselves, and what users call those."""
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_ESCAPED = re.compile(r"\\([0-7]{3})")
"""How mountinfo writes a space."""
_EMPTY_DIR = "/volumes/kubernetes.io~empty-dir/"
_PLACES = ("bucket", "container", "url", "host_path", "container_path")


def check_storage(
    store: StorageManager,
    config: Mapping[str, Any],
    *,
    patience: float = PATIENCE,
    one_check: float = ONE_CHECK,
    say: Callable[[str], Any] = lambda status: None,
    sleep: Callable[[float], Any] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Fail now if checkpoints cannot be stored; wait for a store that is only away, as long as `patience`.

    Args:
        store: Asked by its `check`, if it has one.
        config: The `checkpoint_storage` block, of which errors name the key; {} if the store was given in code.
        patience: In seconds.
        one_check: How long one attempt may take, in seconds.
        say: Called with the trial's status when the waiting begins, and with "" when it is over.
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
                say("")
                return
            if not told:
                told = True
                logger.warning("waiting for the checkpoint storage, which is away: %s", error.message)
                say(WAITS)
        else:
            if told:
                logger.warning("the checkpoint storage answers again")
                say("")
            return
        sleep(backoff.next_pause())


def check_kept(store: StorageManager, config: Mapping[str, Any], runtime: str, mountinfo: str | None = None) -> None:
    """Refuse a folder of the task's own container: its checkpoints would be removed when the task ends.

    Args:
        store: Where checkpoints go.
        config: The `checkpoint_storage` block; {} if the store was given in code.
        runtime: How this task runs; see `detlab.schemas.runtimes`.
        mountinfo: Text as of /proc/self/mountinfo; read from there if None.

    Raises:
        StorageRefused: The folder is on no volume that stays.
    """
    word = _REMOVED_AFTERWARDS.get(runtime)
    if word is None or not isinstance(store, PosixStorage):
        return
    if mountinfo is None:
        try:
            mountinfo = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return
    if not _ends_with_container(os.path.realpath(store.root), mountinfo):
        return
    key = next((name for name in ("host_path", "container_path") if config.get(name)), None)
    where = f"checkpoint_storage.{key}" if key else "checkpoint_storage"
    own = "volumes and volume_mounts of the agent's settings" if runtime == KUBERNETES else "bind_mounts of the config"
    raise StorageRefused(
        f"checkpoints would be lost: {store.root} is in this {word} only, and is removed with it ({where})",
        hint="use an object store, such as checkpoint_storage: {type: s3, bucket: NAME}, or mount a folder there that "
        f"all nodes share: det agent run --volume {store.root}, or {own}",
    )


def _ends_with_container(path: str, mountinfo: str) -> bool:
    """Tell whether the mount that a path is on ends with the container: its root, memory, or an emptyDir of a pod."""
    holder: tuple[str, str, str] | None = None
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        words = before.split()
        if len(words) < 5 or not after:
            continue
        root, at = (_ESCAPED.sub(lambda found: chr(int(found[1], 8)), word) for word in words[3:5])
        inside = at in {"/", path} or path.startswith(at + "/")
        if inside and (holder is None or len(at) >= len(holder[0])):  # the last one mounted at a place hides the others
            holder = (at, root, after.split()[0])
    if holder is None:
        return False
    at, root, kind = holder
    return at == "/" or _EMPTY_DIR in root or (kind in _IN_MEMORY and root == "/")


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

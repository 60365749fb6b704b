"""Files of checkpoints as the master reads and removes them, by `detlab.storage`.

Where they are comes from an experiment's config, so it is a user's word: only checkpoints named by a committed UUID
are touched, and bytes are given out only after their digest was found to be the one that was committed. A master run by
root could read and remove what its user cannot: there, everything must also belong to the uid that the user's tasks run
under. That no link is followed is the storage's own promise.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from detlab.errors import CheckpointError, CheckpointMissing, NotFound, StorageError
from detlab.storage.clearing import clear_checkpoint, clear_folders
from detlab.storage.manifest import MANIFEST_NAME, MOST_MANIFEST
from detlab.storage.posix import PosixStorage
from detlab_hub.services.checkpoints.manifests import check_path, is_uuid
from detlab_hub.services.checkpoints.stores import OpenStore

_log = logging.getLogger(__name__)
_CHUNK = 1024 * 1024
_STEP = 32 * _CHUNK


def open_found(store: OpenStore, uuid: str, path: str, size: int, owner: int | None = None) -> BinaryIO:
    """Open one file of a checkpoint that has the committed size; its bytes are yet to be checked.

    Args:
        store: Where it is.
        uuid: The checkpoint.
        path: The file's path in it.
        size: Bytes as committed.
        owner: uid to whom the file must belong; None: any (this process has no more rights than they).

    Raises:
        StorageError: The checkpoint is in a store that this master cannot read.
        NotFound: The file is not there.
        CheckpointError: It does not have the committed size, or its path leads out of the checkpoint.
    """
    opened = store.open()
    if not is_uuid(uuid):
        raise NotFound(f"there is no checkpoint {uuid[:80]}")
    check_path(path)
    try:
        file = opened.open_file(uuid, path, owner=owner)
    except CheckpointMissing as error:
        raise NotFound(error.message) from error
    # The size first: a sparse file of a terabyte takes an hour to digest and a moment to make.
    if file.seek(0, os.SEEK_END) != size:
        file.close()
        raise _altered(path, uuid)
    file.seek(0)
    return file


def committed_manifest(store: OpenStore, uuid: str, digest: str, owner: int | None = None) -> bytes:
    """Return the manifest of a checkpoint, as its file has it.

    Args:
        store: Where it is.
        uuid: The checkpoint.
        digest: Of the manifest, as committed.
        owner: uid to whom the file must belong; None: any.

    Raises:
        StorageError: The checkpoint is in a store that this master cannot read.
        NotFound: There is none.
        CheckpointError: It is not the one that was committed.
    """
    try:
        with store.open().open_file(uuid, MANIFEST_NAME, owner=owner) as file:
            data = file.read(MOST_MANIFEST + 1)
    except CheckpointMissing as error:
        raise NotFound(error.message) from error
    if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
        raise _altered(MANIFEST_NAME, uuid)
    return data


def check_sizes(store: OpenStore, uuid: str, sizes: Mapping[str, int]) -> None:
    """Compare the sizes that a checkpoint claims with its files, where this master can see them.

    Files that cannot be seen from here (another machine's disk, a network file system that lags behind) are not judged.

    Raises:
        CheckpointError: A file has another size.
    """
    if not is_uuid(uuid):
        return
    try:
        found = store.open().file_sizes(uuid, sizes)
    except StorageError:
        return
    for path, size in found.items():
        if size != sizes[path]:
            raise CheckpointError(
                f"the file {path[:80]} of checkpoint {uuid} has {size:,} bytes in the storage, not the {sizes[path]:,}"
                " that its manifest says",
                hint="Something wrote to it after it was uploaded, or its upload is not complete: save it again.",
            )


def verifying(file: BinaryIO, uuid: str, path: str, digest: str, size: int) -> Generator[None]:
    """Check the bytes of a file that `open_found` has opened, in steps of a fraction of a second, and rewind it.

    A sparse file of a terabyte takes hours: its client may be gone by then, and others need the thread.

    Raises:
        CheckpointError: They are not those that were committed; the file is closed.
    """
    found, done = hashlib.sha256(), 0
    # at most `size` bytes, and one chunk more if the file grows meanwhile
    while done <= size and (chunk := file.read(_CHUNK)):
        found.update(chunk)
        done += len(chunk)
        if done % _STEP == 0:
            yield
    if f"sha256:{found.hexdigest()}" != digest:
        file.close()
        raise _altered(path, uuid)
    file.seek(0)


def _altered(path: str, uuid: str) -> CheckpointError:
    return CheckpointError(f"the file {path} of checkpoint {uuid} is not what was committed")


def remove(store: OpenStore, uuid: str, names: Sequence[str], paths: Sequence[str] | None, owner: int | None) -> str:
    """Remove a checkpoint, or some of its files, and see that they are gone.

    Args:
        store: Where it is.
        uuid: The checkpoint.
        names: Its files as they were committed.
        paths: The files that go; None: all of it.
        owner: uid to whom all of it must belong; None: any.

    Returns:
        Why some may still be there; empty if they are gone, also if they never were there.
    """
    if not is_uuid(uuid):
        return f"{uuid[:80]!r} is no checkpoint"
    try:
        clear_checkpoint(store.open(), uuid, names, paths, owner=owner)
    except (StorageError, CheckpointError) as error:
        _log.warning("files of checkpoint %s stay: %s", uuid, error.message)
        return error.message
    return ""


def remove_folders(store: OpenStore, names: Sequence[str], owner: int | None) -> int | None:
    """Remove folders of event files where this master can, and see that they are gone.

    Args:
        store: Where they are.
        names: Of the folders.
        owner: uid to whom all of it must belong; None: this process's own.

    Returns:
        Bytes that were there; None: a task on an agent must remove them.
    """
    if store.block.get("type") == "directory":
        return None
    try:
        return clear_folders(store.open(), names, owner=owner)
    except (StorageError, CheckpointError) as error:
        _log.warning("event files stay for a task: %s", error.message)
        return None


def is_reachable(storage: Mapping[str, Any], uuid: str) -> bool:
    """Whether a checkpoint is on a file system that this master sees: else a task on an agent must remove it.

    A `directory` is a path as tasks see it: a folder of this name is here by chance, unless it has the checkpoint.
    """
    path = storage.get("host_path" if storage.get("type") == "shared_fs" else "container_path")
    if storage.get("type") not in {"shared_fs", "directory"} or not isinstance(path, str) or not Path(path).is_dir():
        return False
    return storage.get("type") == "shared_fs" or _is_there(Path(path, uuid)) is True


def are_gone(store: OpenStore, uuid: str, sizes: Mapping[str, int]) -> bool:
    """Whether the files of a checkpoint are missing for sure, where this master can look: some, or all of them.

    Not judged are a `directory`, which may be another machine's, a store that is away or refuses, and what is in a
    folder that is there: this master may have no right to see it.
    """
    if store.block.get("type") == "directory" or not sizes:
        return False
    try:
        opened = store.open()
        if isinstance(opened, PosixStorage):
            return _is_there(opened.root) is True and _is_there(opened.root / uuid) is False
        return len(opened.file_sizes(uuid, sizes)) < len(sizes)
    except StorageError:
        return False


def _is_there(path: Path) -> bool | None:
    """Whether something is there; None: it cannot be said."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return None
    return True

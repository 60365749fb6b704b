"""Files of checkpoints on shared file systems, reached without following any link.

The root comes from an experiment's config, so it is a user's word: below it only directories named by a
committed UUID are touched, every step is opened with O_NOFOLLOW, and bytes are given out only after their
digest was found to be the one that was committed. A master run by root could read and remove what its user cannot:
there, everything must also belong to the uid that the user's tasks run under.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from detlab.errors import CheckpointError, NotFound, StorageError
from detlab.launch.host.trees import remove_below
from detlab_hub.services.checkpoints.manifests import check_path, is_uuid

_log = logging.getLogger(__name__)
_CHUNK = 1024 * 1024
_STEP = 32 * _CHUNK
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def storage_root(storage: dict[str, Any]) -> Path | None:
    """The directory that holds the checkpoints of a `checkpoint_storage` block; None if it is not one."""
    match storage.get("type"):
        case "shared_fs":
            host, below = storage.get("host_path"), storage.get("storage_path")
            if not host:
                return None
            return Path(host) / below if below else Path(host)
        case "directory":
            path = storage.get("container_path")
            return Path(path) if path else None
        case _:
            return None


def open_verified(
    storage: dict[str, Any], uuid: str, path: str, digest: str, size: int, owner: int | None = None
) -> tuple[BinaryIO, int]:
    """Open one file of a checkpoint after checking its bytes; returns it with its size.

    Args:
        storage: The `checkpoint_storage` block.
        uuid: The checkpoint.
        path: Of the file in it.
        digest: `sha256:<hex>` as committed.
        size: Bytes as committed.
        owner: uid to whom the file must belong; None: whoever it is (this process has no more rights than they).

    Raises:
        StorageError: The checkpoint does not lie on a file system that this master can read.
        NotFound: The file is not there.
        CheckpointError: Its bytes are not those that were committed.
    """
    file = open_found(storage, uuid, path, size, owner)
    for _ in verifying(file, uuid, path, digest, size):
        pass
    return file, size


def open_found(storage: dict[str, Any], uuid: str, path: str, size: int, owner: int | None = None) -> BinaryIO:
    """Open one file of a checkpoint that has the committed size; its bytes are yet to be checked.

    Takes and raises what `open_verified` does.
    """
    root = storage_root(storage)
    if root is None:
        raise StorageError(
            f"checkpoints of type {storage.get('type')!r} cannot be read through the master",
            hint="download them from the storage itself",
        )
    if not is_uuid(uuid):
        raise NotFound(f"there is no checkpoint {uuid[:80]}")
    check_path(path)
    try:
        file = _open_below(root, (uuid, *path.split("/")))
    except OSError as error:
        raise NotFound(f"the file {path} of checkpoint {uuid} cannot be read: {error.strerror}") from error
    info = os.fstat(file.fileno())
    if owner is not None and (info.st_uid != owner or info.st_nlink != 1):
        file.close()
        raise NotFound(f"the file {path} of checkpoint {uuid} cannot be read: it is not its user's own")
    # The size first: a sparse file of a terabyte takes an hour to digest and a moment to make.
    if info.st_size != size:
        file.close()
        raise _altered(path, uuid)
    return file


def check_sizes(storage: dict[str, Any], uuid: str, sizes: Mapping[str, int]) -> None:
    """Compare what a checkpoint says of its files with the files, where this master can see them.

    What cannot be seen from here (another machine's disk, a network file system that lags behind) is not judged.

    Raises:
        CheckpointError: A file has another size.
    """
    root = storage_root(storage)
    if root is None or not is_uuid(uuid) or not (root / uuid).is_dir():
        return
    for path, size in sizes.items():
        try:
            with _open_below(root, (uuid, *path.split("/"))) as file:
                found = os.fstat(file.fileno()).st_size
        except OSError:
            continue
        if found != size:
            raise CheckpointError(
                f"the file {path[:80]} of checkpoint {uuid} has {found:,} bytes in the storage, not the {size:,} that"
                " its manifest says",
                hint="Something wrote to it after it was uploaded, or its upload is not complete: save it again.",
            )


def verifying(file: BinaryIO, uuid: str, path: str, digest: str, size: int) -> Generator[None]:
    """Check the bytes of a file that `open_found` has opened, in steps of a fraction of a second; it is then rewound.

    A sparse file of a terabyte takes hours: whoever waits for it may be gone by then, and others want the thread.

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


def _open_below(root: Path, parts: tuple[str, ...]) -> BinaryIO:
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            deeper = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = deeper
        # O_NONBLOCK: opening a FIFO must not hang the master.
        handle = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    finally:
        os.close(folder)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise FileNotFoundError(2, "not a regular file")
    return os.fdopen(handle, "rb")


def remove_checkpoint(storage: dict[str, Any], uuid: str, owner: int | None = None) -> bool:
    """Remove a checkpoint's directory; returns whether it is gone (also if it never was there).

    Args:
        storage: The `checkpoint_storage` block.
        uuid: The checkpoint.
        owner: uid to whom every directory of it must belong; None: whoever it is.
    """
    root = storage_root(storage)
    if root is None or not is_uuid(uuid):
        return False
    try:
        folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        _log.warning("checkpoint %s stays: %s: %s", uuid, root, error.strerror)
        return False
    try:
        remove_below(folder, uuid, owner)
    except OSError as error:
        _log.warning("checkpoint %s stays in %s: %s", uuid, root, error.strerror)
        return False
    finally:
        os.close(folder)
    return True

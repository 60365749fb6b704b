"""Files that are complete or not there: the atomic write, and waiting until names are on the disk."""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from pathlib import Path
from typing import Any

_numbers = itertools.count()


class Below:
    """An attribute that is a path below the `root` of its object."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __get__(self, of: Any, owner: object) -> Path:
        return Path(of.root / self._path)


def write_atomic(
    path: Path, data: bytes, *, mode: int | None = 0o600, durable: bool = False, replace: bool = True
) -> Path:
    """Put `data` at `path` in one step: a reader sees the old content or the new, never a part.

    Args:
        path: The file; its folder must exist.
        data: Its new content.
        mode: Permission bits, from the first moment and regardless of the umask; None: those of any new file.
        durable: Wait until the content and the name are on the disk.
        replace: False keeps a file that is there already.

    Returns:
        `path`.

    Raises:
        OSError: Writing failed. The old file stays until the new content is on the disk.
    """
    temporary, descriptor = _new_beside(path, 0o666 if mode is None else mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if mode is not None and stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:
                os.fchmod(descriptor, mode)  # the umask took some
            file.write(data)
            file.flush()
            if durable:
                os.fsync(descriptor)
        if replace:
            temporary.replace(path)
        else:
            with contextlib.suppress(FileExistsError):
                os.link(temporary, path)
            temporary.unlink()
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    if durable:
        sync_directory(path.parent)
    return path


def _new_beside(path: Path, mode: int) -> tuple[Path, int]:
    """Make a file in the folder of `path`; return it, and its descriptor."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    while True:
        # Without the end of a long name: a name has at most 255 bytes.
        found = path.with_name(f".{path.name[:50]}.{os.getpid():x}-{next(_numbers):x}.partial")
        # Another container may have a process of this number, and a process of an earlier life may have left its file.
        with contextlib.suppress(FileExistsError):
            return found, os.open(found, flags, mode)


def sync_directory(path: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""Read files that a task's user may have replaced: never through a link, and only regular files.

A root agent reads exits and spools in directories that belong to other users. A file that is not clearly theirs is
treated as missing.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

_MAX_JSON = 4 << 20


def open_owned(root: Path, relative: str, owner: int) -> BinaryIO:
    """Open a regular file below `root` that belongs to `owner` and has no second name.

    (If the kernel lets users make hard links to files of others, the second name may be one of root's files.)

    Raises:
        FileNotFoundError: It is missing, a link is on the way, or it is not theirs.
    """
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        *directories, name = PurePosixPath(relative).parts
        for directory in directories:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            deeper = os.open(directory, flags, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = deeper
        # Non-blocking: opening a FIFO must not wait for somebody to write to it.
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=descriptor)
    except OSError as error:
        raise FileNotFoundError(f"{root / relative}: {error}") from error
    finally:
        os.close(descriptor)
    info = os.fstat(file)
    if not stat.S_ISREG(info.st_mode) or info.st_uid != owner or info.st_nlink != 1:
        os.close(file)
        raise FileNotFoundError(f"{root / relative} is no regular file of the task")
    return os.fdopen(file, "rb")


def open_owned_log(root: Path, owner: int) -> int:
    """Open `launcher.log`, which was made before the directory was given away, for appending; return the descriptor.

    Raises:
        OSError: It is missing.
        FileExistsError: Something else is in its place.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(root / "launcher.log", flags)
    info = os.fstat(descriptor)
    if not stat.S_ISREG(info.st_mode) or info.st_uid != owner or info.st_nlink != 1:
        os.close(descriptor)
        raise FileExistsError(f"{root / 'launcher.log'} was replaced")
    return descriptor


def read_owned_object(root: Path, relative: str, owner: int) -> dict[str, Any] | None:
    """Return the JSON object in such a file, or None."""
    try:
        with open_owned(root, relative, owner) as file:
            value = json.loads(file.read(_MAX_JSON))
    except (FileNotFoundError, ValueError, RecursionError):  # the last: brackets in brackets, thousands deep
        return None
    return value if isinstance(value, dict) else None


def read_owned_tail(root: Path, relative: str, owner: int, size: int = 2000) -> str:
    """Return the last `size` bytes of such a file as text; empty if there is none."""
    try:
        with open_owned(root, relative, owner) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - size))
            return file.read(size).decode("utf-8", errors="replace").strip()
    except FileNotFoundError:
        return ""

"""Files that are complete or not there: the atomic write, and waiting until names are on the disk."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path


def write_atomic(
    path: Path, data: bytes, *, mode: int | None = 0o600, durable: bool = False, replace: bool = True
) -> Path:
    """Put `data` at `path` in one step: a reader sees the old content or the new, never a part.

    Args:
        path: The file; its folder must exist.
        data: Its new content.
        mode: Permission bits, from the first moment and whatever the umask; None: those of any new file.
        durable: Wait until the content and the name are on the disk.
        replace: False keeps a file that is there already.

    Returns:
        `path`.

    Raises:
        OSError: As the operating system says. Until the content is on the disk the old file stays.
    """
    # Not the whole of a long name: a name has at most 255 bytes.
    temporary = path.with_name(f".{path.name[:50]}.{secrets.token_hex(4)}.partial")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o666 if mode is None else mode)
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


def sync_directory(path: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

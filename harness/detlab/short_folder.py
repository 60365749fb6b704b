"""A private folder with a short name, for Unix sockets: their path may have 107 bytes, a task's directory has more.

Each folder holds a lock for as long as its process lives; what a killed process left is removed by the next one of the
same user. Only the standard library is imported here.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "det-"
UNLOCKED = f".{PREFIX}"
"""What a folder's name begins with until its lock is held."""
LOCK = ".lock"
CANDIDATES = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108  (the folder itself is made by mkdtemp, for its user alone)
"""The last is for containers whose root is read-only; a folder is small."""


@contextlib.contextmanager
def short_folder() -> Iterator[Path]:
    """Make a folder that only this user may enter; remove it at the end, unless that is in a fork of this process.

    Raises:
        OSError: No directory for temporary files can be written to.
    """
    parent = next((path for path in CANDIDATES if os.access(path, os.W_OK | os.X_OK)), tempfile.gettempdir())
    remove_abandoned(Path(parent))
    made = Path(tempfile.mkdtemp(prefix=UNLOCKED, dir=parent))
    folder = made.with_name(made.name.removeprefix("."))  # only a folder that is locked has a name that is looked for
    owner = os.getpid()
    lock = os.open(made / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)
        made.rename(folder)
        yield folder
    finally:
        if os.getpid() == owner:  # a fork has neither the descriptor nor a folder of its own
            os.close(lock)
            shutil.rmtree(folder, ignore_errors=True)
            shutil.rmtree(made, ignore_errors=True)


def remove_abandoned(parent: Path) -> None:
    """Remove this user's folders whose process has ended without removing them."""
    for lock in parent.glob(f"{PREFIX}*/{LOCK}"):
        with contextlib.suppress(OSError), contextlib.ExitStack() as opened:  # another user's, gone, or in use
            folder = os.open(lock.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
            opened.callback(os.close, folder)
            if os.fstat(folder).st_uid != os.getuid():  # of a file in it the owner says nothing: it may be a hard link
                continue
            descriptor = os.open(LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=folder)
            opened.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)

"""Which event files a script writes: those that its processes have open, and those in its folders.

Links are never followed, and devices and pipes never opened. A search looks at so many entries and no more.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

MARK = "tfevents"
"""In the name of each event file."""
MOST_ENTRIES = 20_000
"""Of all folders of one search."""
MOST_IN_FOLDER = 2_000
"""Entries of one folder: one with a data set in it must not hide those beside it."""
DEEPEST = 8
_PASSED_OVER = frozenset({"node_modules", "__pycache__", "site-packages"})
_OF_PROCESS = re.compile(r"tfevents\.(\d+)\..+\.(\d+)\.(\d+)(?:\.v2)?$")
"""The second, the process and the number of a writer in the name of its file."""
_PROC = Path("/proc")
_RANK = b"RANK="


def in_folders(folders: Iterable[Path]) -> list[Path]:
    """Return the event files below folders, those of upper folders first."""
    found: list[Path] = []
    queue = deque((folder, 0) for folder in folders)
    left = MOST_ENTRIES
    while queue and left > 0:
        folder, depth = queue.popleft()
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in islice(entries, min(left, MOST_IN_FOLDER)):
                left -= 1
                if MARK in entry.name:
                    found.append(Path(entry.path))
                if depth < DEEPEST and entry.name not in _PASSED_OVER and not entry.name.startswith("."):
                    with contextlib.suppress(OSError):
                        if entry.is_dir(follow_symlinks=False):
                            queue.append((Path(entry.path), depth + 1))
    return found


def open_in(processes: Iterable[int]) -> Iterator[tuple[Path, int]]:
    """Yield the event files that processes write now, each with the process; nothing where there is no `/proc`."""
    for process in processes:
        place = _PROC / str(process)
        with contextlib.suppress(OSError):
            for name in os.listdir(place / "fd"):  # noqa: PTH208  (names are all that is wanted)
                with contextlib.suppress(OSError):
                    target = os.readlink(place / "fd" / name)  # noqa: PTH115  (as text)
                    if target.startswith("/") and MARK in target.rpartition("/")[2] and _is_written(place, name):
                        yield Path(target), process


def _is_written(place: Path, descriptor: str) -> bool:
    """Whether a process has opened a file for writing."""
    for line in (place / "fdinfo" / descriptor).read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("flags:"):
            return int(line.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
    return False


def rank_of(process: int) -> int | None:
    """Return the rank with which a process was started; None: it has none, or has ended."""
    with contextlib.suppress(OSError, ValueError):
        for item in (_PROC / str(process) / "environ").read_bytes().split(b"\0"):
            if item.startswith(_RANK):
                return int(item[len(_RANK) :])
    return None


def writer_of(path: Path) -> int | None:
    """Return the process that has made an event file, as its name says."""
    found = _OF_PROCESS.search(path.name)
    return None if found is None else int(found[2]) if len(found[2]) < 10 else None


def age_order(path: Path) -> tuple[int, int, int, str]:
    """Return by what event files are sorted: upper folders first, then in the order in which they were begun."""
    found = _OF_PROCESS.search(path.name)
    second, number = (0, 0) if found is None else (int(found[1][:12]), int(found[3][:12]))
    return len(path.parts), second, number, str(path)


class NoEventFile(ValueError):
    """A path leads to something that is no file of this user's own to read; says what."""


def open_regular(path: Path) -> int:
    """Open an event file for reading, if it is a plain file, and return its descriptor.

    Raises:
        NoEventFile: It is a link, a folder, a device or a pipe.
        OSError: It cannot be opened.
    """
    kind = _kind(path.lstat())
    if kind:
        raise NoEventFile(kind)
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if kind := _kind(os.fstat(descriptor)):
            raise NoEventFile(kind)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _kind(found: os.stat_result) -> str:
    """Return what it is if it is no plain file."""
    if stat.S_ISREG(found.st_mode):
        return ""
    if stat.S_ISLNK(found.st_mode):
        return "a symbolic link"
    return "a folder" if stat.S_ISDIR(found.st_mode) else "a device or a pipe"

"""The files that one rank has written, and which of them are stored in which part."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RANK = "rank"
"""Folder of a rank's output, followed by its number."""
_Stamp = tuple[int, int, int]


def owner_of(name: str) -> int | None:
    """Return the rank in whose folder a file of a checkpoint is; None if it is no output."""
    folder, slash, _ = name.partition("/")
    number = folder.removeprefix(RANK)
    return int(number) if slash and folder.startswith(RANK) and number.isascii() and number.isdigit() else None


class RankOutputs:
    """The output folders that a rank holds on its node: its own, and those of ranks that there are no longer.

    Args:
        root: Folder that holds them, as the checkpoint will.
        rank: This rank.
        size: Ranks.
    """

    def __init__(self, root: Path, rank: int, size: int) -> None:
        self.root = root
        self.folder = root / f"{RANK}{rank}"
        self.folder.mkdir()
        self._rank = rank
        self._size = size
        self._stamps: dict[str, _Stamp] = {}
        self._part: dict[str, int] = {}
        self.removed: set[str] = set()

    def is_mine(self, name: str) -> bool:
        """Whether this rank holds a file that is stored under this name."""
        owner = owner_of(name)
        return owner is not None and owner % self._size == self._rank

    def restored(self, part: int) -> None:
        """Note that the files of a part, counted from the oldest, have just been fetched over those before."""
        for name, stamp in self._found():
            if self._stamps.get(name) != stamp:
                self._stamps[name], self._part[name] = stamp, part

    def forget(self, names: list[str]) -> None:
        """Remove what the rank had removed before the parts were stored."""
        for name in filter(self.is_mine, names):
            (self.root / name).unlink(missing_ok=True)
            self._stamps.pop(name, None)
            self._part.pop(name, None)
            self.removed.add(name)

    def collect(self, kept: int) -> set[str]:
        """Return the files that the next part holds: what changed since the last one, and what only later parts have.

        Args:
            kept: Parts that stay, the oldest; the next part comes after them.
        """
        found = dict(self._found())
        for name in self._stamps.keys() - found.keys():
            self._part.pop(name, None)
            self.removed.add(name)
        self.removed -= found.keys()
        wanted = {
            name
            for name, stamp in found.items()
            if self._stamps.get(name) != stamp or self._part.get(name, kept) >= kept
        }
        self._stamps = found
        self._part |= dict.fromkeys(wanted, kept)
        return wanted

    def listed(self) -> dict[str, int]:
        """Return all files that this rank holds, with their bytes."""
        return {name: stamp[0] for name, stamp in sorted(self._found())}

    def _found(self) -> Iterator[tuple[str, _Stamp]]:
        for folder, folders, names in os.walk(self.root):
            links = (name for name in folders if Path(folder, name).is_symlink())  # refused when they are stored
            for name in (*names, *links):
                path = Path(folder, name)
                relative = path.relative_to(self.root).as_posix()
                if owner_of(relative) is not None:
                    status = path.lstat()
                    yield relative, (status.st_size, status.st_mtime_ns, status.st_ino)


def summary(progress: dict[str, Any], files: list[dict[str, int]]) -> dict[str, Any]:
    """Return what `outputs.json` of the last checkpoint says.

    Args:
        progress: What all attempts have processed.
        files: Each rank's files with their bytes.
    """
    named: dict[int, dict[str, int]] = {}
    for mine in files:
        for name, size in mine.items():
            named.setdefault(owner_of(name) or 0, {})[name] = size
    ranks = [{"rank": rank, "files": dict(sorted(found.items()))} for rank, found in sorted(named.items())]
    return {"complete": True, **progress, "ranks": ranks}

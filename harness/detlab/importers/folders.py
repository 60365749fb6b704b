"""Reading folders that anybody may have filled: no link is followed, and everything has a limit."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from detlab.storage.files import open_below

MOST_FILES, MOST_DEPTH = 20_000, 30
YAML_BYTES = 1024 * 1024
YAML_NODES = 20_000
YAML_DEPTH = 40


class Unreadable(ValueError):
    """A file or a folder that is not read; says why."""


class _PlainLoader(yaml.SafeLoader):
    """YAML without aliases, of bounded size: a few lines of others would fill the memory."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.nodes = self.depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose one node, and count it."""
        self.nodes += 1
        self.depth += 1
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "an alias", self.get_mark())
        if self.nodes > YAML_NODES or self.depth > YAML_DEPTH:
            raise yaml.composer.ComposerError(None, None, "too many values", self.get_mark())
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def read_yaml(root: Path, name: str) -> dict[str, Any]:
    """Return the mapping in a YAML file below a folder.

    Raises:
        Unreadable: There is none, or it is none of a tracking system.
    """
    said = read_text(root, name, YAML_BYTES)
    try:
        found = yaml.load(said, Loader=_PlainLoader)  # noqa: S506  (a safe loader)
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        raise Unreadable(f"{name} is no YAML that is read here: {str(error).splitlines()[0]}") from error
    if not isinstance(found, dict):
        raise Unreadable(f"{name} has no mapping")
    return {str(key): value for key, value in found.items()}


def read_text(root: Path, name: str, most: int) -> str:
    """Return the text of a file below a folder.

    Raises:
        Unreadable: There is none, it has over `most` bytes, or it is a link or no file.
    """
    with opened(root, name) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise Unreadable(f"{name} has over {most:,} bytes")
    return data.decode("utf-8", "replace")


@contextmanager
def opened(root: Path, name: str) -> Iterator[BinaryIO]:
    """Open a regular file below a folder.

    Raises:
        Unreadable: It cannot be read, or is a link or no file.
    """
    try:
        file = os.fdopen(open_below(root, name), "rb")
    except (OSError, ValueError) as error:
        raise Unreadable(f"{name} cannot be read: {_why(error)}") from error
    with file:
        try:
            yield file
        except OSError as error:
            raise Unreadable(f"{name} cannot be read: {_why(error)}") from error


def _why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


def folders(root: Path) -> list[str]:
    """Return the names of the folders in a folder, sorted; none if there is no such folder. Links are none."""
    return sorted(name for name, mode, _ in _entries(root) if stat.S_ISDIR(mode))


def files_below(root: Path) -> Iterator[tuple[str, int | None]]:
    """Yield (relative path, size) of the files below a folder; None for the size of what is a link or no file.

    Raises:
        Unreadable: There are too many, or they lie too deep.
    """
    pending, seen = [""], 0
    while pending:
        folder = pending.pop()
        for name, mode, size in sorted(_entries(root / folder)):
            path = f"{folder}/{name}" if folder else name
            seen += 1
            if seen > MOST_FILES:
                raise Unreadable(f"{root.name} has over {MOST_FILES:,} files")
            if not stat.S_ISDIR(mode):
                yield path, size if stat.S_ISREG(mode) else None
            elif path.count("/") >= MOST_DEPTH:
                raise Unreadable(f"{path} lies over {MOST_DEPTH} folders deep")
            else:
                pending.append(path)


def _entries(folder: Path) -> list[tuple[str, int, int]]:
    found = []
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        for name in os.listdir(descriptor):  # noqa: PTH208  (a descriptor, which leads through no link)
            try:
                status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            except OSError:
                continue
            found.append((name, status.st_mode, status.st_size))
            if len(found) > 200_000:
                break
    finally:
        os.close(descriptor)
    return found

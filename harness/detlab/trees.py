"""Remove directories of other users, of any depth, without following a link.

`shutil.rmtree` follows no link either, but it calls itself once per level and holds a descriptor for each: a tree
that is some thousand directories deep ends it with RecursionError. Here directories are lifted to the top before
they are emptied, so that no more than two of them are ever open.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

PATIENCE = 600.0
"""Seconds after which the removal gives up on a tree that keeps being filled."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: Path) -> None:
    """Remove a directory with all that is in it; do nothing if it does not exist.

    Raises:
        OSError: It is not a directory, or something in it cannot be removed.
    """
    with contextlib.suppress(FileNotFoundError):
        remove_below(path.parent, path.name)


def remove_below(parent: Path, name: str, *, owner: int | None = None, first: str | None = None) -> None:
    """Remove the directory `name` in a directory; do nothing if it does not exist.

    Args:
        parent: A directory; links on the way to it are followed.
        name: One path component.
        owner: uid to whom every directory must belong. Who owns a directory may empty it anyway, so that a remover
            with more rights than its client does nothing that the client could not.
        first: Name of the file in it to remove before all others.

    Raises:
        FileNotFoundError: There is no `parent`.
        PermissionError: A directory does not belong to `owner`.
        OSError: It is not a directory, or something in it cannot be removed.
    """
    outside = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(FileNotFoundError):
            top = os.open(name, _FOLDER, dir_fd=outside)
            try:
                _check_owner(top, name, owner)
                _empty(top, name, owner, first)
            finally:
                os.close(top)
            os.rmdir(name, dir_fd=outside)
    finally:
        os.close(outside)


def remove_files_below(parent: Path, name: str, paths: Iterable[str], *, owner: int | None = None) -> None:
    """Remove some files of the directory `name` in a directory; those that are gone already are no mistake.

    Args:
        parent: A directory; links on the way to it are followed, none below it.
        name: One path component.
        paths: Relative POSIX paths in `name`, without `..`; folders that become empty stay.
        owner: uid to whom every directory on the way must belong; see `remove_below`.

    Raises:
        FileNotFoundError: There is no `parent`.
        PermissionError: A directory does not belong to `owner`.
        OSError: A file cannot be removed, or is behind a link.
    """
    outside = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                _unlink_below(outside, [name, *path.split("/")], owner)
    finally:
        os.close(outside)


def bytes_below(path: Path) -> int:
    """Return the bytes of the files in a directory and below it; no link is followed; 0 if it is gone."""
    total = 0
    with contextlib.suppress(FileNotFoundError):
        for _, _, names, folder in os.fwalk(path, follow_symlinks=False):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    total += os.stat(name, dir_fd=folder, follow_symlinks=False).st_size
    return total


def _unlink_below(outside: int, parts: Sequence[str], owner: int | None) -> None:
    folder = os.dup(outside)
    try:
        for part in parts[:-1]:
            deeper = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = deeper
            _check_owner(folder, part, owner)
        os.unlink(parts[-1], dir_fd=folder)
    finally:
        os.close(folder)


def _empty(top: int, name: str, owner: int | None, first: str | None) -> None:
    if first is not None:
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):
            os.unlink(first, dir_fd=top)
    deadline = time.monotonic() + PATIENCE
    while folders := _unlink_files(top):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{name} is being filled while it is removed")
        for folder in folders:
            _lift(top, folder, owner)


def _unlink_files(folder: int) -> list[str]:
    """Remove everything but directories; return their names."""
    folders = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            else:
                os.unlink(entry.name, dir_fd=folder)
    return folders


def _lift(top: int, name: str, owner: int | None) -> None:
    """Remove a directory of `top` after moving the directories in it up to `top`."""
    try:
        inner = os.open(name, _FOLDER, dir_fd=top)
    except FileNotFoundError:
        return
    try:
        _check_owner(inner, name, owner)
        for deeper in _unlink_files(inner):
            os.rename(deeper, f".{secrets.token_hex(8)}", src_dir_fd=inner, dst_dir_fd=top)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=top)


def _check_owner(folder: int, name: str, owner: int | None) -> None:
    """Let the directory pass, and make it writable where it is ours and is not.

    Raises:
        PermissionError: It does not belong to `owner`.
    """
    info = os.fstat(folder)
    if owner is not None and info.st_uid != owner:
        raise PermissionError(1, f"{name} belongs to uid {info.st_uid}, not {owner}")
    if info.st_uid == os.geteuid() and not info.st_mode & stat.S_IWUSR:
        os.fchmod(folder, 0o700)

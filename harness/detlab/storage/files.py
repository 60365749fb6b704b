"""Copying and digesting files: streaming, durable, and never through a link."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from detlab.errors import CheckpointError
from detlab.schemas.wire import CheckpointFile

PATH_CHARS = 1024
"""Of the path of a file in a checkpoint, at most."""
PATH_BYTES = 3072
"""Likewise: what a path may have (4,096) with a folder before it."""
NAME_BYTES = 255
"""Of one name in a path: what file systems take."""
_BLOCK = 4 * 1024 * 1024
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a FIFO must not wait for somebody to write to it.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FICLONE = 0x40049409  # ioctl of btrfs, xfs and others: share the blocks of a file (linux/fs.h)
_CANNOT_CLONE = {errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.EPERM, errno.ENOSYS}


@dataclass(frozen=True, slots=True)
class Found:
    """What lies below a directory, by relative POSIX path, sorted."""

    files: tuple[str, ...]
    empty_directories: tuple[str, ...]


def walk(root: Path, selector: Callable[[str], bool] | None = None) -> Found:
    """List files and empty folders below `root`.

    Args:
        root: The folder.
        selector: Tells, given a relative POSIX path, whether a file is wanted. What cannot be stored is skipped if it
            is not wanted; files that can be are all listed.

    Raises:
        CheckpointError: There is a link, a special file, or a name that no checkpoint can hold; the message names it.
    """
    files: list[str] = []
    empty: list[str] = []
    for folder, names, entries in _walk(root, selector):
        relative = folder.relative_to(root)
        files.extend((relative / name).as_posix() for name in entries)
        if not names and not entries and folder != root:
            empty.append(relative.as_posix())
    return Found(tuple(sorted(files)), tuple(sorted(empty)))


def chosen_folders(empty: Iterable[str], selector: Callable[[str], bool] | None) -> tuple[str, ...]:
    """Return the empty folders that a selector wants, which is asked for each with a `/` after its path."""
    return tuple(name for name in empty if selector is None or selector(f"{name}/"))


def _walk(root: Path, selector: Callable[[str], bool] | None) -> Iterator[tuple[Path, list[str], list[str]]]:
    pending = [root]
    while pending:
        folder = pending.pop()
        names: list[str] = []
        files: list[str] = []
        with os.scandir(folder) as entries:
            for entry in entries:
                kind = entry.stat(follow_symlinks=False).st_mode
                if stat.S_ISDIR(kind):
                    names.append(entry.name)
                elif stat.S_ISREG(kind):
                    files.append(entry.name)
                elif selector is None or selector((folder / entry.name).relative_to(root).as_posix()):
                    what = "a symbolic link" if stat.S_ISLNK(kind) else "not a regular file"
                    raise CheckpointError(
                        f"{entry.path} is {what}: a checkpoint holds regular files and folders only",
                        hint="Copy what it points to (shutil.copytree follows links), or leave it out with a selector."
                        " A link may lead to any file that this task can read, so it is not followed.",
                    )
        for name in (*names, *files):
            _check_name(root, folder / name)
        pending.extend(folder / name for name in names)
        yield folder, names, files


def _check_name(root: Path, path: Path) -> None:
    """Refuse what the master would refuse at the commit, after the upload."""
    relative = path.relative_to(root).as_posix()
    try:
        relative.encode()
    except UnicodeEncodeError as error:
        raise CheckpointError(f"the name of {str(path)!r} is not valid UTF-8") from error
    why = _unfit(relative)
    if why:
        raise CheckpointError(
            f"the path {relative[:80]!r} {why}: a checkpoint cannot hold it", hint="rename it, or leave it out"
        )


def _unfit(relative: str) -> str:
    """Return why a checkpoint cannot hold a path; empty: it can, and each file system can hold it again."""
    if "\\" in relative:
        return "has a backslash"
    if len(relative) > PATH_CHARS or len(relative.encode()) > PATH_BYTES:
        return f"has over {PATH_CHARS} characters or {PATH_BYTES} bytes"
    if any(len(part.encode()) > NAME_BYTES for part in relative.split("/")):
        return f"has a name of over {NAME_BYTES} bytes"
    return ""


def partial_of(path: Path) -> Path:
    """Return the name beside a file under which it is written first: its own, and short whatever the file's is."""
    return path.with_name(f".{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:24]}.partial")


def check_apart(folder: Path, names: Iterable[str]) -> None:
    """Check that a folder holds each of the files that were written into it.

    A file system that takes `A` and `a`, or two spellings of an accented letter, for one name has kept the last alone.

    Raises:
        CheckpointError: Two names are one file there; both are said.
    """
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold()), []).append(name)
    for group in alike.values():
        found: dict[tuple[int, int], str] = {}
        for name in group if len(group) > 1 else ():
            status = (folder / name).lstat()
            other = found.setdefault((status.st_dev, status.st_ino), name)
            if other != name:
                raise CheckpointError(
                    f"{other!r} and {name!r} are two files of the checkpoint, and one name on the file system of"
                    f" {folder}, where only the last of them is now",
                    hint="download it to a file system that tells them apart, or one of them at a time (--glob)",
                )


def open_regular(path: Path) -> int:
    """Open a regular file for reading without following a link in its last part.

    Raises:
        OSError: It cannot be opened, or is a link or not a regular file (`ELOOP`).
    """
    return _regular(os.open(path, _READ), path)


def open_below(root: Path, name: str) -> int:
    """Open a regular file below a folder for reading without following a link anywhere below that folder.

    Args:
        root: A folder; links on the way to it are followed.
        name: Relative POSIX path without `..`.

    Raises:
        OSError: It cannot be opened, is not a regular file, or is behind a link (`ELOOP`, `ENOTDIR`).
    """
    *folders, last = name.split("/")
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in folders:
            deeper = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = deeper
        descriptor = os.open(last, _READ, dir_fd=folder)
    finally:
        os.close(folder)
    return _regular(descriptor, root / name)


def _regular(descriptor: int, path: Path) -> int:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.ELOOP, "not a regular file", str(path))
    return descriptor


def describe(path: Path) -> CheckpointFile:
    """Return size, digest and permission bits of a regular file."""
    descriptor = open_regular(path)
    try:
        checksum, size = digest_of(descriptor)
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode) & 0o777
        return CheckpointFile(size=size, digest=checksum, mode=mode)
    finally:
        os.close(descriptor)


def digest_of(descriptor: int) -> tuple[str, int]:
    """Return digest `sha256:<hex>` and size in bytes of what can be read from an open file."""
    size, checksum = 0, hashlib.sha256()
    for block in _blocks(descriptor):
        checksum.update(block)
        size += len(block)
    return "sha256:" + checksum.hexdigest(), size


def copy(source: Path, target: Path) -> CheckpointFile:
    """Copy a regular file durably, with its permission bits; see `copy_from`.

    Args:
        source: A regular file, not a link.
        target: Where to; its folder must exist, it must not.

    Raises:
        OSError: As the operating system says.
    """
    descriptor = open_regular(source)
    try:
        return copy_from(descriptor, target, stat.S_IMODE(os.fstat(descriptor).st_mode) & 0o777)
    finally:
        os.close(descriptor)


def copy_from(descriptor: int, target: Path, mode: int) -> CheckpointFile:
    """Copy an open file durably, sharing blocks where the file system can, and describe the copy.

    Args:
        descriptor: Of a file at its start.
        target: Where to; its folder must exist, it must not.
        mode: Permission bits of the copy, to which its owner's right to read is added.

    Raises:
        OSError: As the operating system says.
    """
    mode |= stat.S_IRUSR
    write_fd = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        checksum = _clone(descriptor, write_fd) or _stream(descriptor, write_fd)
        os.fchmod(write_fd, mode)
        os.fsync(write_fd)
        return CheckpointFile(size=os.fstat(write_fd).st_size, digest="sha256:" + checksum, mode=mode)
    finally:
        os.close(write_fd)


def sync_file(path: Path) -> None:
    """Force a regular file to disk."""
    fd = open_regular(path)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _clone(read_fd: int, write_fd: int) -> str | None:
    try:
        fcntl.ioctl(write_fd, _FICLONE, read_fd)
    except OSError as error:
        if error.errno in _CANNOT_CLONE:
            return None
        raise
    checksum = hashlib.sha256()
    for block in _blocks(write_fd):
        checksum.update(block)
    return checksum.hexdigest()


def _stream(read_fd: int, write_fd: int) -> str:
    checksum = hashlib.sha256()
    for block in _blocks(read_fd):
        checksum.update(block)
        view = memoryview(block)
        while view:
            view = view[os.write(write_fd, view) :]
    return checksum.hexdigest()


def _blocks(fd: int) -> Iterator[bytes]:
    while block := os.read(fd, _BLOCK):
        yield block

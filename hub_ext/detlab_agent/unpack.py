"""Unpack a code bundle that somebody sent, possibly an enemy, as root.

Only regular files and directories, only below the target, only so many and so large. Everything else is an error,
not skipped: a bundle that our client made has none of it. (Python's own `tarfile` filters were escaped more than
once, CVE-2024-12718; here no link is ever made, so that there is nothing to escape through.)
"""

from __future__ import annotations

import gzip
import os
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Self

_HEADERS = frozenset(
    {
        tarfile.XHDTYPE,
        tarfile.XGLTYPE,
        tarfile.SOLARIS_XHDTYPE,
        tarfile.GNUTYPE_LONGNAME,
    }
)
_FILES = frozenset({tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE})
_MAX_HEADER = 64 << 10
_COPY = 1 << 20


class UnsafeBundle(Exception):
    """The bundle is damaged or holds what no bundle may hold; the message says what."""


@dataclass(frozen=True)
class Limits:
    """Caps of one bundle: entries, bytes of all files together, characters of a path, levels of directories."""

    entries: int = 50_000
    size: int = 2 << 30
    path: int = 1024
    depth: int = 64


class _CheckedInfo(tarfile.TarInfo):
    """A header that is judged before tarfile acts on it (a long-name header is read into memory whole)."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        info = super().frombuf(buf, encoding, errors)
        if info.type in _HEADERS:
            if info.size > _MAX_HEADER:
                raise UnsafeBundle(f"a header of {info.size} bytes")
        elif info.type not in _FILES and info.type != tarfile.DIRTYPE:
            raise UnsafeBundle(f"{info.name!r} is no regular file and no directory (type {info.type!r})")
        return info


def unpack(archive: Path, target: Path, limits: Limits | None = None) -> int:
    """Unpack a tar.gz into the empty directory `target`; return how many files were written.

    Args:
        archive: The bundle.
        target: An existing directory that nobody else can write to.
        limits: Caps.

    Raises:
        UnsafeBundle: See there; what was unpacked so far is left for the caller to remove.
        OSError: The disk is full or failing.
    """
    limits = limits or Limits()
    try:
        with gzip.open(archive, "rb") as stream, _open_tar(stream) as tar:
            return _unpack_members(tar, target, limits)
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise UnsafeBundle(f"{error.filename!r} is both a file and something else") from error
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error, UnicodeError, ValueError) as error:
        raise UnsafeBundle(f"no valid tar.gz: {error}") from error


def _open_tar(stream: gzip.GzipFile) -> tarfile.TarFile:
    return tarfile.open(fileobj=stream, mode="r|", tarinfo=_CheckedInfo, errorlevel=2)


def _unpack_members(tar: tarfile.TarFile, target: Path, limits: Limits) -> int:
    entries = files = size = 0
    for member in tar:
        entries += 1
        if entries > limits.entries:
            raise UnsafeBundle(f"more than {limits.entries} entries")
        path = target / safe_path(member.name, limits)
        if member.isdir():
            path.mkdir(mode=0o755, parents=True, exist_ok=True)
            continue
        if not member.isreg() or member.issparse():
            raise UnsafeBundle(f"{member.name!r} is no regular file and no directory")
        size += member.size
        if member.size < 0 or size > limits.size:
            raise UnsafeBundle(f"more than {limits.size} bytes unpacked")
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        _write_file(tar, member, path)
        files += 1
    return files


def safe_path(name: str, limits: Limits | None = None) -> PurePosixPath:
    """Return the relative path of a member, checked.

    Raises:
        UnsafeBundle: Absolute, with `..`, too long or too deep.
    """
    limits = limits or Limits()
    path = PurePosixPath(name)
    if not name or "\0" in name or path.is_absolute() or ".." in path.parts:
        raise UnsafeBundle(f"the path {name!r} leads out of the bundle")
    if len(name) > limits.path or len(path.parts) > limits.depth:
        raise UnsafeBundle(f"the path {name[:80]!r}… is too long")
    return path


def _write_file(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    source = tar.extractfile(member)
    if source is None:
        raise UnsafeBundle(f"{member.name!r} has no content")
    mode = 0o755 if member.mode & 0o111 else 0o644
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, mode)
    except (FileExistsError, IsADirectoryError) as error:
        raise UnsafeBundle(f"{member.name!r} is in the bundle twice") from error
    with os.fdopen(descriptor, "wb") as file:
        left = member.size
        while left > 0:
            piece = source.read(min(left, _COPY))
            if not piece:
                raise UnsafeBundle(f"{member.name!r} ends early")
            file.write(piece)
            left -= len(piece)

"""What a code bundle may hold, judged before anything of it is acted on; for whoever lists or unpacks one.

A bundle comes from somebody, possibly an enemy: only regular files and directories, only below the target, only so
many and so large. `tarfile` by itself reads a long-name header of any size into memory, and a gzip stream of a few
kilobytes may be gigabytes long.
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def open_bundle(archive: Path) -> Iterator[tarfile.TarFile]:
    """Open a tar.gz as a stream whose headers are judged; what is wrong with it comes out as `UnsafeBundle`.

    Raises:
        UnsafeBundle: In the body of `with`, too.
    """
    try:
        with (
            gzip.open(archive, "rb") as stream,
            tarfile.open(fileobj=stream, mode="r|", tarinfo=_CheckedInfo, errorlevel=2) as tar,
        ):
            yield tar
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error, UnicodeError, ValueError) as error:
        raise UnsafeBundle(f"no valid tar.gz: {error}") from error


def members(tar: tarfile.TarFile, limits: Limits) -> Iterator[tuple[tarfile.TarInfo, PurePosixPath]]:
    """Yield the entries of an open bundle with their checked relative paths.

    Raises:
        UnsafeBundle: An entry is of another kind, leads out, or there are too many or too large ones.
    """
    size = 0
    for count, member in enumerate(tar, 1):
        if count > limits.entries:
            raise UnsafeBundle(f"more than {limits.entries} entries")
        path = safe_path(member.name, limits)
        if not member.isdir():
            if not member.isreg() or member.issparse():
                raise UnsafeBundle(f"{member.name!r} is no regular file and no directory")
            size += member.size
            if member.size < 0 or size > limits.size:
                raise UnsafeBundle(f"more than {limits.size} bytes unpacked")
        yield member, path


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

"""Checks of a code bundle before it is listed or unpacked.

A bundle is untrusted: only regular files and directories are allowed, only below the target, limited in number and
size. `tarfile` by itself reads a long-name header of any size into memory, follows a chain of headers by recursion,
takes quadratic time over some of them and over the map of a sparse file, and keeps all that it has seen; and a gzip
stream of a few kilobytes may be gigabytes long.
"""

from __future__ import annotations

import gzip
import hashlib
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Self

from detlab.schemas.bundles import PACKED, TREE, BundleEntry, digest_of

_HEADERS = frozenset(
    {
        tarfile.XHDTYPE,
        tarfile.XGLTYPE,
        tarfile.SOLARIS_XHDTYPE,
        tarfile.GNUTYPE_LONGNAME,
    }
)
_DAMAGE = (tarfile.InvalidHeaderError, tarfile.TruncatedHeaderError)  # type: ignore[attr-defined]  # not in the stubs
"""What tarfile takes for the end of the archive, in the middle of it."""
_FILES = frozenset({tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE})
_MAX_HEADER = 64 << 10
_MAX_CHAIN = 8
"""Headers before one entry; with names of any length there are four."""
_MAX_HEADERS = 128 << 20
"""Bytes of all headers: enough for 50,000 entries with long names."""
_MAX_PADDING = 64 << 20
_CHUNK = 256 << 10
RATIO = 100
"""Largest ratio of a bundle's unpacked to its packed size: code and text reach 10, a bomb 1,000."""
SMALL = 64 << 20
"""Bytes that any bundle may have unpacked, whatever its ratio."""


class UnsafeBundle(Exception):
    """The bundle is damaged or contains something that is not allowed; the message says what."""


@dataclass(frozen=True)
class ArchiveLimits:
    """Caps of one bundle: entries, bytes of all files together, characters of a path, levels of directories."""

    entries: int = 50_000
    size: int = 2 << 30
    path: int = 1024
    depth: int = 64


class _Metered:
    """A decompressed stream that ends in an error where no bundle within the limits reaches."""

    def __init__(self, stream: gzip.GzipFile, limits: ArchiveLimits, packed: int) -> None:
        self.size = min(limits.size, max(SMALL, RATIO * packed))
        """Bytes that all files together may have."""
        self._stream = stream
        self._left = self.size + min(_MAX_HEADERS, self.size) + min(_MAX_PADDING, self.size)
        self._bomb = self.size < limits.size

    def too_large(self) -> UnsafeBundle:
        """Return the refusal."""
        times = f", over {RATIO} times its packed size" if self._bomb else ""
        return UnsafeBundle(f"more than {self.size} bytes unpacked{times}")

    def read(self, count: int) -> bytes:
        found = self._stream.read(count)
        self._left -= len(found)
        if self._left < 0:
            raise self.too_large()
        return found


class CheckedTar(tarfile.TarFile):
    """An archive that counts its headers, and forgets entries as they are done with."""

    members: list[tarfile.TarInfo]
    fileobj: Any
    metered: _Metered
    chain = 0
    header_bytes = 0


class _CheckedInfo(tarfile.TarInfo):
    """A header that is judged before tarfile acts on it (a long-name header is read into memory whole)."""

    @classmethod
    def fromtarfile(cls, tarfile: tarfile.TarFile) -> Self:
        if not isinstance(tarfile, CheckedTar):
            raise TypeError("bundles are opened by open_bundle")
        if tarfile.chain >= _MAX_CHAIN:
            raise UnsafeBundle(f"more than {_MAX_CHAIN} headers before one entry")
        begin = tarfile.fileobj.tell()
        tarfile.chain += 1
        try:
            info = super().fromtarfile(tarfile)
        except _DAMAGE as error:
            raise UnsafeBundle(f"not a valid tar.gz: {error} at byte {begin}") from None
        finally:
            tarfile.chain -= 1
        if not tarfile.chain:
            tarfile.header_bytes += tarfile.fileobj.tell() - begin
        if tarfile.header_bytes > _MAX_HEADERS:
            raise UnsafeBundle("more headers than any bundle has")
        return info

    def _proc_pax(self, tar: CheckedTar) -> Self:
        """Take the name out of an extended header, and nothing else; tarfile calls this where it would do more."""
        fields = _fields(tar.fileobj.read(-(-self.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE)[: self.size])
        if "size" in fields or any(key.startswith("GNU.sparse") for key in fields):
            raise UnsafeBundle(f"{self.name!r} is a sparse file, or one of more than 8 GiB")
        try:
            info = self.fromtarfile(tar)
        except tarfile.HeaderError as error:  # tarfile would take it for the end of the archive
            raise tarfile.ReadError(f"nothing after an extended header: {error}") from None
        if self.type != tarfile.XGLTYPE:
            info.name = fields.get("path", info.name).rstrip("/")
        return info

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        info = super().frombuf(buf, encoding, errors)
        if info.type in _HEADERS:
            if info.size > _MAX_HEADER:
                raise UnsafeBundle(f"a header of {info.size} bytes")
        elif info.type not in _FILES and info.type != tarfile.DIRTYPE:
            raise UnsafeBundle(f"{info.name!r} is neither a regular file nor a directory (type {info.type!r})")
        return info


def _fields(body: bytes) -> dict[str, str]:
    """Parse the `LENGTH KEY=VALUE` records of an extended header.

    Raises:
        ValueError: The header contains anything else.
    """
    found: dict[str, str] = {}
    start = 0
    while start < len(body):
        space = body.index(b" ", start, start + 20)
        end = start + int(body[start:space])
        key, equals, value = body[space + 1 : end].partition(b"=")
        if not equals or not value.endswith(b"\n") or end > len(body):
            raise ValueError("not a tar header")
        found[key.decode(errors="surrogateescape")] = value[:-1].decode(errors="surrogateescape")
        start = end
    return found


@contextmanager
def open_bundle(archive: Path, limits: ArchiveLimits | None = None) -> Iterator[CheckedTar]:
    """Open a tar.gz as a stream whose headers are judged; what is wrong with it comes out as `UnsafeBundle`.

    Args:
        archive: The bundle.
        limits: Caps; nothing beyond them is decompressed.

    Raises:
        UnsafeBundle: The bundle is damaged or unsafe; also raised while the body of `with` reads it.
    """
    try:
        with gzip.open(archive, "rb") as stream:
            metered = _Metered(stream, limits or ArchiveLimits(), archive.stat().st_size)
            source: Any = metered  # tarfile only ever reads it
            with CheckedTar.open(fileobj=source, mode="r|", tarinfo=_CheckedInfo, errorlevel=2) as tar:
                tar.metered = metered
                yield tar
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error, UnicodeError, ValueError) as error:
        raise UnsafeBundle(f"not a valid tar.gz: {error}") from error


def members(tar: CheckedTar, limits: ArchiveLimits) -> Iterator[tuple[tarfile.TarInfo, PurePosixPath]]:
    """Yield the entries of an open bundle with their checked relative paths.

    Raises:
        UnsafeBundle: An entry is neither a file nor a directory, or leads out, or entries are too many or too large.
    """
    size = 0
    for count, member in enumerate(tar, 1):
        if count > limits.entries:
            raise UnsafeBundle(f"more than {limits.entries} entries")
        path = safe_path(member.name, limits)
        if not member.isdir():
            if not member.isreg() or member.issparse():
                raise UnsafeBundle(f"{member.name!r} is neither a regular file nor a directory")
            size += member.size
            if member.size < 0 or size > min(limits.size, tar.metered.size):
                raise tar.metered.too_large()
        yield member, path
        tar.members.clear()  # else each stays in memory with all its headers


def safe_path(name: str, limits: ArchiveLimits | None = None) -> PurePosixPath:
    """Return the relative path of a member, checked.

    Raises:
        UnsafeBundle: The path is absolute, contains `..`, or is too long or too deep.
    """
    limits = limits or ArchiveLimits()
    path = PurePosixPath(name)
    if not name or "\0" in name or path.is_absolute() or ".." in path.parts:
        raise UnsafeBundle(f"the path {name!r} is outside of the bundle")
    if len(name) > limits.path or len(path.parts) > limits.depth:
        raise UnsafeBundle(f"the path {name[:80]!r}… is too long")
    return path


def is_executable(member: tarfile.TarInfo) -> bool:
    """Return whether a file of a bundle may be run: nothing else of its mode counts."""
    return bool(member.mode & 0o111)


def sha256_of(tar: CheckedTar, member: tarfile.TarInfo) -> str:
    """Return the digest of a file's content, 64 hex digits; the entry must be the last one that was yielded."""
    found = hashlib.sha256()
    source = tar.extractfile(member)
    while source is not None and (chunk := source.read(_CHUNK)):
        found.update(chunk)
    return found.hexdigest()


def digest_like(asked: str, archive: Path, limits: ArchiveLimits | None = None) -> str:
    """Return the digest of a bundle, of the same kind as the one asked for: they differ if it is another bundle.

    Args:
        asked: A digest of a bundle.
        archive: The bundle.
        limits: Caps.

    Raises:
        UnsafeBundle: See `tree_digest`.
    """
    if asked.startswith(f"{TREE}:"):
        return tree_digest(archive, limits)
    with archive.open("rb") as file:
        return f"{PACKED}:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def tree_digest(archive: Path, limits: ArchiveLimits | None = None) -> str:
    """Return the digest of a bundle's files; nothing is unpacked.

    Args:
        archive: The bundle.
        limits: Caps.

    Raises:
        UnsafeBundle: It is damaged or unsafe, or holds what the digest does not cover: a directory, a path twice.
    """
    limits, found = limits or ArchiveLimits(), dict[str, BundleEntry]()
    with open_bundle(archive, limits) as tar:
        for member, path in members(tar, limits):
            if member.isdir():
                raise UnsafeBundle(f"{member.name!r} is a directory; a bundle lists files, whose paths say the rest")
            name = str(path)
            if name in found:
                raise UnsafeBundle(f"{member.name!r} is in the bundle twice")
            found[name] = BundleEntry(name, is_executable(member), sha256_of(tar, member))
    return digest_of(found.values())

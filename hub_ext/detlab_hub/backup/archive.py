"""Archives as files: a compressed tar whose last member lists the others with their digests.

Reading does not trust the archive: only regular files and folders, only names that detlab's archives have, each once,
and nothing that does not fit on the disk.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import os
import shutil
import stat
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from detlab_hub.backup.contents import MANIFEST, MANIFEST_LIMIT, PARTS, BackupManifest, BackupMember, read_manifest
from detlab_hub.embedded.moves import ArchiveError

_CHUNK = 1 << 20
_LEVEL = 3
_LEAST_ROOM = 16 << 20
_KNOWN = {name for names in PARTS.values() for name in names}
_OWNED_BY_USERS = "checkpoints"
_PUBLIC_FILES = {"certificate.pem", "servers.pem"}
_GONE = {errno.ENOENT, errno.ELOOP, errno.ENXIO}
"""Errors for a file that was removed, or has become a link or a pipe, since it was listed."""

Progress = Callable[[int], None]
"""Called with the number of bytes of each read."""


class ArchiveWriter:
    """Writes members one after the other, and notes their digests."""

    def __init__(self, file: IO[bytes], progress: Progress) -> None:
        self._gzip = gzip.GzipFile(fileobj=file, mode="wb", compresslevel=_LEVEL, mtime=0)
        self._tar = tarfile.open(fileobj=self._gzip, mode="w|", format=tarfile.PAX_FORMAT)  # noqa: SIM115  (finish)
        self._progress = progress
        self.members: dict[str, BackupMember] = {}

    def add_file(self, path: Path, name: str) -> None:
        """Add a file that only the operator can have written."""
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._add_open(descriptor, name)

    def add_tree(self, root: Path, name: str, *, skip: Callable[[str], bool] = lambda name: False) -> None:
        """Add a folder with all files and folders in it. Links and devices, which users may plant, are left out.

        Args:
            root: The folder; a missing one is left out.
            name: Its name in the archive.
            skip: Whether an entry of the folder itself is left out.
        """
        if not root.is_dir():
            return
        for where, folders, files, handle in os.fwalk(root):
            within = PurePosixPath(name) / Path(where).relative_to(root)
            if Path(where) == root:
                folders[:] = [entry for entry in folders if not skip(entry)]
            folders[:] = sorted(entry for entry in folders if self._add_folder(handle, entry, within))
            for entry in sorted(files):
                self._add_entry(handle, entry, within)

    def _add_folder(self, handle: int, entry: str, within: PurePosixPath) -> bool:
        try:
            found = os.stat(entry, dir_fd=handle, follow_symlinks=False)
        except FileNotFoundError:
            return False
        if not stat.S_ISDIR(found.st_mode):
            return False
        info = tarfile.TarInfo(str(within / entry))
        info.type = tarfile.DIRTYPE
        _own(info, found)
        self._tar.addfile(info)
        return True

    def _add_entry(self, handle: int, entry: str, within: PurePosixPath) -> None:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            if not stat.S_ISREG(os.stat(entry, dir_fd=handle, follow_symlinks=False).st_mode):
                return
            descriptor = os.open(entry, flags, dir_fd=handle)
        except OSError as error:
            if error.errno in _GONE:
                return
            raise ArchiveError(f"{within / entry} cannot be read: {error.strerror}") from error
        self._add_open(descriptor, str(within / entry))

    def _add_open(self, descriptor: int, name: str) -> None:
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                return
            info = tarfile.TarInfo(name)
            info.size = found.st_size
            _own(info, found)
            reader = _Padded(file, self._progress)
            self._tar.addfile(info, reader)
        self.members[name] = BackupMember(size=info.size, sha256=reader.digest)

    def finish(self, manifest: BackupManifest) -> None:
        """Add the manifest and end the archive."""
        raw = manifest.model_dump_json(indent=1).encode()
        info = tarfile.TarInfo(MANIFEST)
        info.size, info.mode, info.mtime = len(raw), 0o600, int(manifest.created_at)
        with tempfile.TemporaryFile() as file:
            file.write(raw)
            file.seek(0)
            self._tar.addfile(info, file)
        self._tar.close()
        self._gzip.close()


def _own(info: tarfile.TarInfo, found: os.stat_result) -> None:
    info.mode, info.uid, info.gid, info.mtime = (
        stat.S_IMODE(found.st_mode) & 0o777,
        found.st_uid,
        found.st_gid,
        int(found.st_mtime),
    )


class _Hashing:
    """A file that is read once, and the digest of what was read."""

    def __init__(self, file: IO[bytes], progress: Progress) -> None:
        self._file = file
        self._sha = hashlib.sha256()
        self._progress = progress

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._sha.update(data)
        self._progress(len(data))
        return data

    @property
    def digest(self) -> str:
        return self._sha.hexdigest()


class _Padded(_Hashing):
    """A file that its owner may shorten meanwhile: the missing part is read as zeros."""

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size).ljust(max(size, 0), b"\0")
        self._sha.update(data)
        self._progress(len(data))
        return data


# --- reading ----------------------------------------------------------------------------------------------


def verify(path: Path, progress: Progress = lambda count: None) -> BackupManifest:
    """Read a whole archive and compare it with its manifest; write nothing.

    Raises:
        ArchiveError: It is damaged, incomplete, or not one of detlab's.
    """
    return _read(path, None, progress)


def unpack(path: Path, into: Path, progress: Progress = lambda count: None) -> BackupManifest:
    """Write an archive's files into our empty folder, and compare them with its manifest.

    Raises:
        ArchiveError: It is damaged, incomplete, or not one of detlab's; the written files are useless.
    """
    return _read(path, into, progress)


def _read(path: Path, into: Path | None, progress: Progress) -> BackupManifest:
    reading = _Reading(into, progress)
    try:
        for member, content in _members(path):
            reading.take(member, content)
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, UnicodeError) as error:
        raise ArchiveError(f"{path} is not a valid archive: {error}", hint=_HINT) from error
    except ArchiveError as error:
        raise ArchiveError(f"{path} is not restored: {error.message}", hint=error.hint or _HINT) from error
    except OSError as error:
        raise ArchiveError(f"{path} cannot be read or unpacked: {error}", hint="df -h; ls -l") from error
    if reading.manifest is None:
        raise ArchiveError(f"{path} is not a valid archive: it has no end", hint=_HINT)
    _compare(path, reading.manifest, reading.found)
    for folder, member in reversed(reading.folders):
        _give(folder, member)
    return reading.manifest


class _Reading:
    """The members of an archive that were read so far."""

    def __init__(self, into: Path | None, progress: Progress) -> None:
        self._into = into
        self._progress = progress
        self.found: dict[str, BackupMember] = {}
        self.folders: list[tuple[Path, tarfile.TarInfo]] = []
        self.manifest: BackupManifest | None = None

    def take(self, member: tarfile.TarInfo, content: IO[bytes] | None) -> None:
        """Read the next member; write it, if anything is written.

        Raises:
            ArchiveError: It does not belong in such an archive.
        """
        if self.manifest is not None:
            raise ArchiveError(f"{member.name!r} comes after its end")
        if member.name == MANIFEST and content is not None:
            self.manifest = _manifest(member, content)
            return
        if member.name in self.found or any(str(parent) in self.found for parent in PurePosixPath(member.name).parents):
            raise ArchiveError(f"it holds {member.name!r} twice, or below a file")
        if content is not None:
            self.found[member.name] = _take(member, content, self._into, self._progress)
        elif self._into is not None:
            self.folders.append((_make_folder(self._into, member), member))


_HINT = "take another one: an archive that `det backup` has made was whole when it was made"


def _members(path: Path) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """Yield each member, checked, with its content; None for a folder."""
    with path.open("rb") as raw, tarfile.open(fileobj=raw, mode="r|gz") as tar:
        for member in tar:
            _check(member)
            yield member, (tar.extractfile(member) if member.isreg() else None)


def _check(member: tarfile.TarInfo) -> None:
    """Refuse a member that no archive of detlab's has; Python's own filter for that came with 3.11.4."""
    name = member.name
    parts = name.split("/")
    if not (member.isreg() or member.isdir()):
        raise ArchiveError(f"{name!r} is neither a file nor a folder")
    if any(part in {"", ".", ".."} or "\0" in part for part in parts):
        raise ArchiveError(f"{name!r} is not a valid name of a file in an archive")
    if name != MANIFEST and parts[0] not in _KNOWN:
        raise ArchiveError(f"{name!r} is not part of a cluster's state")


def _manifest(member: tarfile.TarInfo, content: IO[bytes]) -> BackupManifest:
    if member.size > MANIFEST_LIMIT:
        raise ArchiveError(f"its {MANIFEST} is too large")
    return read_manifest(content.read(MANIFEST_LIMIT))


def _take(member: tarfile.TarInfo, content: IO[bytes], into: Path | None, progress: Progress) -> BackupMember:
    reader = _Hashing(content, progress)
    if into is None:
        size = sum(len(data) for data in iter(lambda: reader.read(_CHUNK), b""))
        return BackupMember(size=size, sha256=reader.digest)
    if member.size + _LEAST_ROOM > (free := shutil.disk_usage(into).free):
        raise ArchiveError(
            f"{member.name!r} needs {member.size} bytes of room in {into.parent}, and {free} are free", hint="df -h"
        )
    path = into / member.name
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        shutil.copyfileobj(reader, file, _CHUNK)
        file.flush()
        os.fsync(descriptor)
    _give(path, member)
    return BackupMember(size=path.stat().st_size, sha256=reader.digest)


def _make_folder(into: Path, member: tarfile.TarInfo) -> Path:
    path = into / member.name
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def _give(path: Path, member: tarfile.TarInfo) -> None:
    """Restore owner and mode of users' files; everything else belongs to the operator alone."""
    of_users = member.name.split("/")[0] == _OWNED_BY_USERS
    if of_users and os.geteuid() == 0:
        os.chown(path, member.uid, member.gid, follow_symlinks=False)
    if of_users:
        path.chmod(member.mode & 0o777)
    elif member.name in _PUBLIC_FILES:
        path.chmod(0o644)
    else:
        path.chmod(0o700 if member.isdir() else 0o600)


def _compare(path: Path, manifest: BackupManifest, found: dict[str, BackupMember]) -> None:
    said = manifest.members
    wrong = sorted(name for name in said.keys() | found.keys() if said.get(name) != found.get(name))
    if wrong:
        what = "altered, missing, or not in its list"
        raise ArchiveError(f"{path} is damaged: {what}: {', '.join(map(repr, wrong[:3]))}", hint=_HINT)

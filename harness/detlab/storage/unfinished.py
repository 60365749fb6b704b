"""Checkpoints that are not finished: their stages, and the marks that say who began them."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import platform
import pwd
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath

from detlab.errors import CheckpointError, StorageDenied, StorageError
from detlab.files import sync_directory
from detlab.pasted import word
from detlab.storage import files
from detlab.storage.manifest import MANIFEST_NAME, METADATA_NAME, ManifestPart
from detlab.storage.own_folders import OwnFolders, unfinished_folder

logger = logging.getLogger("detlab.storage")

_STAGE_PREFIX = ".stage-"
_MARK_PREFIX = ".pending-"
_PROBE_PREFIX = ".probe-"
_OWNER = re.compile(r"[0-9A-Za-z_-]{1,200}")
_UUID = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,127}")
_DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_RUN = re.compile(r"[1-9][0-9]{0,17}")


class Unfinished:
    """What lies in `<root>/.unfinished-<uid>/`, a folder of our user's own: `.stage-<uuid>/` and `.pending-…`.

    No other user can list it, so that no one else knows the uuid of a checkpoint, and can take its name, before it is
    published. Earlier versions kept all of this in the root itself; what is there and ours is still found.

    Args:
        folders: Of our user in the root of the store.
    """

    def __init__(self, folders: OwnFolders) -> None:
        self._own = folders

    def make_stage(self, uuid: str) -> Path:
        """Return the stage of `uuid`, created if it is missing.

        Raises:
            StorageError: It cannot be created, or its path is not a folder of our user.
        """
        name = _STAGE_PREFIX + check_uuid(uuid)
        with storage_errors("make", self._own.root / name):
            path = self._make_folder() / name
            try:
                path.mkdir(mode=0o700)
            except FileExistsError:
                if not self._own.owns(path):
                    raise StorageError(f"cannot use {path}: it is no folder of uid {os.geteuid()}") from None
        return path

    def find_stage(self, uuid: str) -> Path | None:
        """Return the stage of `uuid`, if there is one."""
        return next(self._stages(uuid), None)

    def discard(self, uuid: str) -> None:
        """Remove a stage; harmless if there is none."""
        for path in self._stages(uuid):
            remove_tree(path)

    def check(self) -> None:
        """Make the folder and a file in it, as stages and marks need, and remove the file."""
        probe = self._own.root / f"{_PROBE_PREFIX}{os.getpid()}"
        with storage_errors("write", probe):
            try:
                probe = self._make_folder() / probe.name
                probe.write_bytes(b"detlab")
                probe.unlink()
            except OSError as error:
                with contextlib.suppress(OSError):
                    probe.unlink(missing_ok=True)
                if error.errno not in _FULL:
                    raise

    def mark(self, uuid: str, owner: str, run: int) -> None:
        """Note that a run of `owner` writes `uuid`."""
        name = _mark_name(uuid, owner, run)
        with storage_errors("write", self._own.root / name):
            (self._make_folder() / name).touch(mode=0o600)

    def unmark(self, uuid: str, owner: str, run: int) -> None:
        """Remove a mark; harmless if there is none."""
        name = _mark_name(uuid, owner, run)
        with storage_errors("remove", self._own.root / name):
            for folder in self._folders():
                if self._is_mark(folder / name):
                    (folder / name).unlink(missing_ok=True)
                    return

    def marked(self, owner: str) -> list[tuple[int, str]]:
        """Return the marks of `owner` that our user made, as run and uuid, oldest run first.

        Others may write into the root, so that a name alone proves nothing there.
        """
        return sorted({(run, uuid) for uuid, name, run in self.notes(f"{owner}.") if name == owner})

    def notes(self, prefix: str = "") -> list[tuple[str, str, int]]:
        """Return uuid, owner and run of all marks that our user made and whose names go on with a prefix."""
        found = set()
        for path in self._named(f"{_MARK_PREFIX}{prefix}"):
            owner, _, rest = path.name.removeprefix(_MARK_PREFIX).partition(".")
            run, _, uuid = rest.partition(".")
            if _OWNER.fullmatch(owner) and _RUN.fullmatch(run) and _UUID.fullmatch(uuid) and self._is_mark(path):
                found.add((uuid, owner, int(run)))
        return sorted(found)

    def stages(self) -> dict[str, Path]:
        """Return our user's stages by uuid."""
        found = {path.name.removeprefix(_STAGE_PREFIX): path for path in self._named(_STAGE_PREFIX)}
        return {uuid: path for uuid, path in found.items() if is_uuid(uuid) and self._own.owns(path)}

    def sweep(self, older_than: float, *, clock: Callable[[], float] = time.time) -> list[str]:
        """Remove our user's stages that nothing was written to for `older_than` seconds; return their uuids.

        A stage that cannot be looked at or removed is left alone.
        """
        gone = []
        for path in self._named(_STAGE_PREFIX):
            try:
                if self._own.owns(path) and clock() - last_change(path) > older_than:
                    remove_tree(path)
                    gone.append(path.name.removeprefix(_STAGE_PREFIX))
            except (OSError, StorageError) as error:  # others may remove it, too
                logger.debug("the stage %s is left alone: %s", path, error)
        return gone

    def _make_folder(self) -> Path:
        self._own.root.mkdir(parents=True, exist_ok=True)
        return self._own.make(unfinished_folder())

    def _folders(self) -> Iterator[Path]:
        """Give the folders that may hold something of ours, the likeliest first: the root is listed last, if at all."""
        first = self._own.find(unfinished_folder())
        if first is not None:
            yield first
        yield self._own.root
        yield from (folder for folder in self._own.find_all(unfinished_folder()) if folder != first)

    def _stages(self, uuid: str) -> Iterator[Path]:
        name = _STAGE_PREFIX + check_uuid(uuid)
        with storage_errors("look for", self._own.root / name):
            yield from (folder / name for folder in self._folders() if self._own.owns(folder / name))

    def _named(self, prefix: str) -> list[Path]:
        """Return what has a name with this prefix, folder by folder, sorted by name."""
        found = []
        with storage_errors("list", self._own.root):
            for folder in self._folders():
                with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
                    found += sorted(folder / entry.name for entry in entries if entry.name.startswith(prefix))
        return found

    def _is_mark(self, path: Path) -> bool:
        """Whether our user has made this empty file, under this name."""
        try:
            status = path.lstat()
            plain = stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_size == 0
            return plain and self._own.made(status)
        except OSError:
            return False


def describe_stage(stage: Path) -> ManifestPart:
    """Force all files of a stage to disk and describe them; a manifest that is there from before is left out."""
    found = files.walk(stage)
    entries = {}
    for name in found.files:
        if name != MANIFEST_NAME:
            files.sync_file(stage / name)
            entries[name] = files.describe(stage / name)
    part = ManifestPart(entries, found.empty_directories)
    sync_folders(stage, part)
    return part


def folders_of(names: Iterable[str], directories: Iterable[str]) -> set[str]:
    """Return the folders in which these files are, and their folders, by relative path; the root is `.`."""
    inner = {str(folder) for name in names for folder in PurePosixPath(name).parents}
    return {".", *inner, *directories, *(str(above) for name in directories for above in PurePosixPath(name).parents)}


def sync_folders(stage: Path, part: ManifestPart) -> None:
    """Force the entries of all folders of a part to disk."""
    for folder in sorted(folders_of(part.files, part.directories)):
        sync_directory(stage / folder)


def compare_stage(uuid: str, stage: Path, part: ManifestPart) -> None:
    """Check that a stage holds what the ranks' parts say, by name and size: each rank digested its own files.

    Files are looked up by name: on a network file system this node may list those of others with a delay.

    Raises:
        CheckpointError: A file is missing, of another size, or in no rank's part.
    """
    for name, entry in part.files.items():
        try:
            size = (stage / name).lstat().st_size
        except FileNotFoundError:
            raise CheckpointError(f"{name} of checkpoint {uuid} was stored by a rank and is not in {stage}") from None
        if size != entry.size:
            raise CheckpointError(f"{name} of checkpoint {uuid} has {size} bytes, {entry.size} were stored by its rank")
    extra = set(files.walk(stage).files) - part.files.keys() - {METADATA_NAME, MANIFEST_NAME}
    if extra:
        raise CheckpointError(
            f"{min(extra)} is in {stage}, but no rank has stored it ({len(extra)} such files)",
            hint="write all files before the block of store_path() ends, or before upload() is called",
        )


def check_uuid(uuid: str) -> str:
    """Return the name of a checkpoint.

    Raises:
        CheckpointError: The name is not valid; it could lead out of the store.
    """
    if not is_uuid(uuid):
        raise CheckpointError(f"not the name of a checkpoint: {uuid[:80]!r}")
    return uuid


def is_uuid(name: str) -> bool:
    """Whether a checkpoint may have this name."""
    return _UUID.fullmatch(name) is not None


def refuse_foreign_manifest(path: Path) -> None:
    """Let a manifest of detlab's own pass (a restored checkpoint that is stored again), refuse any other."""
    try:
        with os.fdopen(files.open_regular(path), "rb") as stream:
            document = json.load(stream)
    except (OSError, ValueError):
        document = None
    if not (isinstance(document, dict) and document.keys() >= {"format", "uuid", "files", "directories"}):
        raise CheckpointError(
            f"{MANIFEST_NAME} at the top of a checkpoint is written by detlab: name your file differently "
            "or put it into a folder"
        )


def refuse_foreign_metadata(path: Path) -> None:
    """Let the metadata of a checkpoint pass (a restored one that is stored again); refuse all other content.

    Raises:
        CheckpointError: It is a file of the user's own, which would be lost.
    """
    try:
        with os.fdopen(files.open_regular(path), "rb") as stream:
            document = json.load(stream)
    except (OSError, ValueError, RecursionError):
        document = None
    if not (isinstance(document, dict) and type(document.get("steps_completed")) is int):
        raise CheckpointError(
            f"{METADATA_NAME} at the top of a checkpoint is where its metadata is written, and yours would be lost",
            hint="name your file differently, put it into a folder, or leave it out with a selector; what is to be in"
            " the metadata is given to store_path() and upload()",
        )


def remove_tree(path: Path) -> None:
    """Remove a folder with all that is in it; harmless if it is gone."""
    with storage_errors("remove", path), contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path)


@contextlib.contextmanager
def storage_errors(verb: str, path: Path) -> Iterator[None]:
    """Turn errors of the operating system in the block into one that says what could not be done.

    Args:
        verb: What was to be done, for the message: `read`, `write`, `make`.
        path: What it was to be done to.

    Raises:
        StorageDenied: The block raised an OSError of permissions.
        StorageError: The block raised another OSError.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _DENIED:
            raise _denied(verb, path, error) from error
        if error.errno == errno.ENAMETOOLONG:
            where = str(error.filename or path)
            raise StorageError(
                f"cannot {verb} {where[:200]} …: its path has {len(os.fsencode(where))} bytes,"
                " too many for this system",
                hint="use a folder with a shorter path",
            ) from error
        raise StorageError(f"cannot {verb} {path}: {error}") from error


def _denied(verb: str, path: Path, error: OSError) -> StorageDenied:
    """Return the error for what this user may not do: which folder refuses it, whose that is, and what helps."""
    reads = verb in {"read", "list", "look for"}
    refused = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else path
    where, missing = _nearest((refused if reads else path).parent)
    status = where.stat()
    me, on = _user(os.geteuid()), f"on {platform.node()}"
    if error.errno == errno.EROFS:
        advice = f"It is on a file system that is mounted read-only {on}: mount it writable"
    elif not os.access(where, os.X_OK):
        advice = f"Let that user enter it, {on}: chmod o+x {word(where)}"
    elif missing:
        advice = (
            f"{missing} does not exist. Is a disk not mounted? Else make it, {on}: mkdir -p -m 1777 {word(missing)}"
        )
    elif reads:
        advice = f"Let that user read it, {on}: chmod o+rx {word(where)}"
    else:
        advice = f"Let that user write there, {on}: chmod 1777 {word(where)}"
    facts = f"{where} belongs to {_user(status.st_uid)}, mode {stat.S_IMODE(status.st_mode):04o}; this is {me}"
    return StorageDenied(
        f"cannot {verb} {path}: {os.strerror(error.errno or 0)}: {facts}",
        hint=f"{advice}; or name another folder in checkpoint_storage",
    )


def _nearest(folder: Path) -> tuple[Path, Path | None]:
    """Return a folder, or the nearest above it that can be looked at; and the folder if it surely does not exist."""
    for place in (folder, *folder.parents):
        with contextlib.suppress(OSError):
            place.stat()
            missing = place != folder and os.access(place, os.X_OK)
            return place, folder if missing else None
    return Path("/"), None


def _user(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


def _mark_name(uuid: str, owner: str, run: int) -> str:
    if not _OWNER.fullmatch(owner):
        raise StorageError(f"not the name of an owner of checkpoints: {owner!r}")
    if run < 1:
        raise StorageError(f"the runs of {owner} are counted from 1, not {run}")
    return f"{_MARK_PREFIX}{owner}.{run:d}.{check_uuid(uuid)}"


def last_change(path: Path) -> float:
    """Return when something in a folder was last written, in seconds since the epoch."""

    def fail(error: OSError) -> None:
        raise error

    newest = path.lstat().st_mtime
    for folder, _, names in os.walk(path, onerror=fail):
        for name in names:
            newest = max(newest, (Path(folder) / name).lstat().st_mtime)
    return newest

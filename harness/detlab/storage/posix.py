"""Checkpoint stores on a file system: `shared_fs` and `directory`."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Self

from detlab.errors import CheckpointError, CheckpointMissing, CheckpointUnreadable, StorageError
from detlab.files import sync_directory, write_atomic
from detlab.schemas.wire import CheckpointFile
from detlab.storage import files
from detlab.storage.base import ManifestNotWritten, Selector
from detlab.storage.manifest import (
    MANIFEST_NAME,
    METADATA_NAME,
    MOST_MANIFEST,
    Manifest,
    ManifestPart,
    check_size,
    plain_path,
)
from detlab.storage.own_folders import OwnFolders, unfinished_folder
from detlab.storage.ownership import FOLDER, MOST_RECORD, Guard, StorageHolder
from detlab.storage.unfinished import (
    Unfinished,
    check_uuid,
    compare_stage,
    describe_stage,
    folders_of,
    is_uuid,
    refuse_foreign_manifest,
    refuse_foreign_metadata,
    storage_errors,
    sync_folders,
)
from detlab.trees import bytes_below, remove_below, remove_files_below

if TYPE_CHECKING:
    from detlab.schemas.expconf.blocks.storage import DirectoryConfig, SharedFSConfig


class PosixStorage:
    """Checkpoints as folders `<root>/<uuid>/`.

    The stage is `<root>/.unfinished-<uid>/.stage-<uuid>/`, on the same file system, so that training code writes its
    files once and `publish` is one rename. Folders are private to their owner (mode 0700); others who may list the root
    see names, and those of checkpoints only once they are published.

    Args:
        root: Where the checkpoints lie; made when something is written.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._own = OwnFolders(root)
        self._unfinished = Unfinished(self._own)
        self._doubtful: set[str] = set()
        self._guard = Guard(str(root))

    def held_by(self, holder: StorageHolder | None) -> Self:
        """Have every change check first that this installation of a cluster owns what is here; return the store."""
        self._guard = Guard(str(self.root), holder)
        return self

    def _check_owned(self, owner: int | None = None) -> None:
        """Refuse to change what another installation owns; each user of the file system has a record of their own."""
        with storage_errors("read", self.root / FOLDER):
            self._guard.check(_Records(self._own, owner), make=owner is None or owner == os.geteuid())

    def stage(self, uuid: str) -> Path:
        """Return the stage of `uuid`, made if it is missing."""
        return self._unfinished.make_stage(uuid)

    def upload(self, source: Path, uuid: str, *, selector: Selector | None = None) -> ManifestPart:
        """Copy files into the stage; see `StorageManager.upload`.

        Raises:
            CheckpointError: The source is not a directory, or contains what a checkpoint cannot hold.
        """
        if not source.is_dir():
            raise CheckpointError(f"{source} is not a directory that could be uploaded")
        self._check_owned()
        with storage_errors("read", source):
            found = files.walk(source, selector)
        chosen = [name for name in found.files if selector is None or selector(name)]
        if MANIFEST_NAME in chosen:
            refuse_foreign_manifest(source / MANIFEST_NAME)
            chosen.remove(MANIFEST_NAME)
        if METADATA_NAME in chosen:
            refuse_foreign_metadata(source / METADATA_NAME)
        empty = files.chosen_folders(found.empty_directories, selector)
        stage = self.stage(uuid)
        with self._making_durable(uuid, stage):
            for folder in sorted(folders_of(chosen, empty)):
                (stage / folder).mkdir(mode=0o700, parents=True, exist_ok=True)
            part = ManifestPart({name: files.copy(source / name, stage / name) for name in chosen}, empty)
            sync_folders(stage, part)
        return part

    def seal(self, uuid: str, *, node: int = 0) -> ManifestPart:
        """Describe the stage, which is one for all nodes; see `StorageManager.seal`."""
        if node != 0:
            return ManifestPart()
        stage = self._staged(uuid)
        if (stage / MANIFEST_NAME).exists():
            refuse_foreign_manifest(stage / MANIFEST_NAME)
        if (stage / METADATA_NAME).exists():
            refuse_foreign_metadata(stage / METADATA_NAME)
        with self._making_durable(uuid, stage):
            return describe_stage(stage)

    def publish(self, uuid: str, metadata: Mapping[str, Any], part: ManifestPart | None = None) -> Manifest:
        """Make the staged files a checkpoint; see `StorageManager.publish`.

        Raises:
            CheckpointError: The metadata cannot be JSON, nothing is staged, or the stage does not match `part`.
        """
        stage, final = self._staged(uuid), self._path(uuid)
        self._check_owned()
        try:
            encoded = json.dumps(metadata, indent=2).encode()
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"the metadata of checkpoint {uuid} cannot be JSON: {error}") from error
        self._refuse_doubtful(uuid)
        if part is None:
            part = self.seal(uuid)
        with storage_errors("write", stage):
            (stage / MANIFEST_NAME).unlink(missing_ok=True)  # of the checkpoint that this one was made from
            compare_stage(uuid, stage, part)
            with _repeatable():
                write_atomic(stage / METADATA_NAME, encoded, mode=None, durable=True)
            entries = {**part.files, METADATA_NAME: files.describe(stage / METADATA_NAME)}
            manifest = Manifest.of(uuid, entries, metadata, part.directories)
            with _repeatable():
                write_atomic(stage / MANIFEST_NAME, manifest.to_bytes(), mode=None, durable=True)
            stage.rename(final)
            sync_directory(self.root)
        return manifest

    def discard(self, uuid: str) -> None:
        """Remove a stage; harmless if there is none."""
        self._unfinished.discard(uuid)
        self._doubtful.discard(uuid)

    def manifest(self, uuid: str) -> Manifest:
        """Read the manifest of a published checkpoint.

        Raises:
            CheckpointMissing: There is no complete checkpoint of this uuid.
            CheckpointError: What is there is no manifest.
        """
        try:
            with self._reading(uuid, MANIFEST_NAME) as descriptor:
                check_size(f"{MANIFEST_NAME} of checkpoint {uuid}", os.fstat(descriptor).st_size)
                data = _read(descriptor, MOST_MANIFEST)
        except CheckpointMissing as error:
            raise CheckpointMissing(
                f"there is no complete checkpoint {uuid} in {self.root}: it has no {MANIFEST_NAME}"
            ) from error
        return Manifest.from_bytes(data, uuid=uuid)

    @contextlib.contextmanager
    def restore_path(self, uuid: str, manifest: Manifest, *, selector: Selector | None = None) -> Iterator[Path]:
        """Yield the checkpoint's own folder after verifying it: read it, do not write into it."""
        path = self._path(uuid)
        for name, entry in manifest.files.items():
            if selector is None or selector(name):
                self._verify(uuid, name, entry)
        yield path

    def download(self, uuid: str, target: Path, manifest: Manifest, *, selector: Selector | None = None) -> list[str]:
        """Copy verified files; see `StorageManager.download`."""
        done = []
        with storage_errors("make", target):
            target.mkdir(parents=True, exist_ok=True)
            for name in files.chosen_folders(manifest.directories, selector):
                _inside(target, name).mkdir(parents=True, exist_ok=True)
        with storage_errors("write", target):
            for name, entry in manifest.files.items():
                if selector is None or selector(name):
                    self._fetch(uuid, _inside(target, name), name, entry)
                    done.append(name)
        files.check_apart(target, done)
        return done

    def open_file(self, uuid: str, name: str, *, owner: int | None = None) -> BinaryIO:
        """Open one file of a checkpoint; see `StorageManager.open_file`. No link below the root is followed.

        Raises:
            CheckpointMissing: There is no such file, or it is not the owner's.
        """
        path = f"{check_uuid(uuid)}/{plain_path(name)}"
        try:
            descriptor = files.open_below(self.root, path)
        except OSError as error:
            raise CheckpointMissing(
                f"the file {name} of checkpoint {uuid} cannot be read: {error.strerror or error}"
            ) from error
        status = os.fstat(descriptor)
        if owner is not None and (status.st_uid != owner or status.st_nlink != 1):
            os.close(descriptor)
            raise CheckpointMissing(f"the file {name} of checkpoint {uuid} cannot be read: it is not its user's own")
        return os.fdopen(descriptor, "rb")

    def file_sizes(self, uuid: str, names: Iterable[str]) -> dict[str, int]:
        """Return the sizes of those files that can be seen from here; see `StorageManager.file_sizes`."""
        sizes = {}
        if self._path(uuid).is_dir():  # else each name would be looked for in vain
            for name in names:
                with contextlib.suppress(CheckpointMissing), self.open_file(uuid, name) as file:
                    sizes[name] = os.fstat(file.fileno()).st_size
        return sizes

    def uuids(self) -> list[str]:
        """Return the checkpoints that have a manifest; see `StorageManager.uuids`."""
        with storage_errors("list", self.root), contextlib.suppress(FileNotFoundError):
            names = [path.name for path in self.root.iterdir()]
            return sorted(name for name in names if is_uuid(name) and self._is_published(name))
        return []

    def delete(self, uuid: str, *, owner: int | None = None) -> None:
        """Remove a checkpoint: its manifest first, so that a half-removed one is no checkpoint."""
        self._check_owned(owner)
        with storage_errors("remove", self._path(uuid)):
            remove_below(self.root, check_uuid(uuid), owner=owner, first=MANIFEST_NAME)

    def delete_files(self, uuid: str, names: Iterable[str], *, owner: int | None = None) -> None:
        """Remove some files of a checkpoint; its manifest stays as it was published."""
        paths = [plain_path(name) for name in names]
        self._check_owned(owner)
        with storage_errors("remove files of", self._path(uuid)):
            remove_files_below(self.root, check_uuid(uuid), paths, owner=owner)

    def put_file(self, source: Path, name: str) -> None:
        """Store one file that belongs to no checkpoint; the name's first folder is one of our user's own."""
        safe = _inside(self.root, name)
        self._check_owned()
        with storage_errors("write", safe):
            self.root.mkdir(parents=True, exist_ok=True)
            top, *rest = safe.relative_to(self.root).parts
            target = self._own.make(top).joinpath(*rest) if rest else safe
            target.parent.mkdir(parents=True, exist_ok=True)
            partial = files.partial_of(target)
            partial.unlink(missing_ok=True)
            files.copy(source, partial)
            partial.replace(target)

    def folders(self, names: Collection[str], *, owner: int | None = None) -> dict[str, int]:
        """Return the bytes in our folders of these names, or the owner's; see `detlab.storage.clearing`.

        A root that was never made has none; one on a file system that is not mounted is an error where that can be
        told.
        """
        self._check_mounted()
        with storage_errors("list", self.root):
            return {path.name: bytes_below(path) for path in self._own.named(names, owner)}

    def remove_folders(self, names: Collection[str], *, owner: int | None = None) -> None:
        """Remove folders that `folders` has found, with all that is in them."""
        self._check_owned(owner)
        for name in names:
            with storage_errors("remove", self.root / name):
                remove_below(self.root, name, owner=owner)

    def _check_mounted(self) -> None:
        """Check what can be told of the file system: nothing of a folder that is made when something is written."""

    def check(self) -> None:
        """Make the folder and write into it; see `StorageManager.check`. A full disk is waited for elsewhere."""
        self._unfinished.check()
        self._check_owned()

    def mark(self, uuid: str, owner: str, run: int) -> None:
        """Note that a run of `owner` writes `uuid`; see `StorageManager.mark`."""
        self._check_owned()
        self._unfinished.mark(uuid, owner, run)

    def unmark(self, uuid: str, owner: str, run: int) -> None:
        """Remove a mark; harmless if there is none."""
        self._unfinished.unmark(uuid, owner, run)

    def marked(self, owner: str) -> list[tuple[int, str]]:
        """Return the marks of `owner` that our user made, as run and uuid, oldest run first."""
        return self._unfinished.marked(owner)

    def sweep(self, older_than: float, *, clock: Callable[[], float] = time.time) -> list[str]:
        """Remove our user's stages that nothing was written to for `older_than` seconds; return their uuids."""
        self._check_owned()
        return self._unfinished.sweep(older_than, clock=clock)

    def notes(self) -> list[tuple[str, str, int]]:
        """Return uuid, owner and run of what our user has begun and not seen to be committed."""
        return self._unfinished.notes()

    def staged_sizes(self) -> dict[str, int]:
        """Return the bytes of our user's stages, by uuid."""
        return {uuid: bytes_below(path) for uuid, path in self._unfinished.stages().items()}

    def own_sizes(self) -> dict[str, int]:
        """Return the bytes of our user's checkpoints, by uuid."""
        self._check_mounted()
        with storage_errors("list", self.root), contextlib.suppress(FileNotFoundError):
            found = [path for path in self.root.iterdir() if is_uuid(path.name) and self._own.owns(path)]
            return {path.name: bytes_below(path) for path in found}
        return {}

    def _staged(self, uuid: str) -> Path:
        stage = self._unfinished.find_stage(uuid)
        if stage is None:
            # Made anew it would be empty, and a checkpoint without files would pass for complete.
            raise CheckpointError(
                f"nothing is staged for checkpoint {uuid} in {self.root / unfinished_folder()}",
                hint="see what removes files there; the last committed checkpoint is not touched",
            )
        return stage

    @contextlib.contextmanager
    def _making_durable(self, uuid: str, stage: Path) -> Iterator[None]:
        """Remember if something in the stage could not be written: it may be damaged from then on."""
        with storage_errors("write", stage):
            try:
                yield
            except OSError:
                self._doubtful.add(uuid)
                raise

    def _path(self, uuid: str) -> Path:
        return self.root / check_uuid(uuid)

    def _refuse_doubtful(self, uuid: str) -> None:
        """Refuse files that an fsync has failed for: the kernel may have dropped them, and says so only once."""
        if uuid in self._doubtful:
            raise CheckpointError(
                f"the files of checkpoint {uuid} could not all be forced to disk and may be damaged",
                hint="discard() the stage and write the files anew.",
            )

    def _is_published(self, uuid: str) -> bool:
        try:
            os.close(files.open_below(self.root, f"{uuid}/{MANIFEST_NAME}"))
        except OSError:
            return False
        return True

    @contextlib.contextmanager
    def _reading(self, uuid: str, name: str) -> Iterator[int]:
        """Open a file of a checkpoint, and say of an error of the operating system which file it was."""
        try:
            descriptor = files.open_below(self.root, f"{check_uuid(uuid)}/{plain_path(name)}")
            try:
                yield descriptor
            finally:
                os.close(descriptor)
        except FileNotFoundError as error:
            raise CheckpointMissing(f"{name} of checkpoint {uuid} cannot be read: {error}") from error
        except PermissionError as error:
            raise CheckpointUnreadable(f"{name} of checkpoint {uuid} cannot be read: {error}") from error
        except OSError as error:
            raise CheckpointError(f"{name} of checkpoint {uuid} cannot be read: {error}") from error

    def _verify(self, uuid: str, name: str, entry: CheckpointFile) -> None:
        with self._reading(uuid, name) as descriptor:
            actual, size = files.digest_of(descriptor)
        _compare(uuid, name, entry, actual, size)

    def _fetch(self, uuid: str, target: Path, name: str, entry: CheckpointFile) -> None:
        partial = files.partial_of(target)
        try:
            with self._reading(uuid, name) as descriptor:
                target.parent.mkdir(parents=True, exist_ok=True)
                partial.unlink(missing_ok=True)
                actual = files.copy_from(descriptor, partial, entry.mode)
                _compare(uuid, name, entry, actual.digest, actual.size)
                partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)


class _Records:
    """The records of who owns the checkpoints of one user: in a folder that only that user can have made.

    Args:
        folders: Of the root.
        owner: uid of the user; None: ourselves.
    """

    def __init__(self, folders: OwnFolders, owner: int | None) -> None:
        self._own, self._owner = folders, owner

    def read(self, name: str) -> bytes | None:
        folder = self._folder()
        if folder is None:
            return None
        try:
            descriptor = files.open_below(folder, name.rpartition("/")[2])
        except FileNotFoundError:
            return None
        try:
            return _read(descriptor, MOST_RECORD)
        finally:
            os.close(descriptor)

    def write(self, name: str, data: bytes, *, create: bool) -> bool:
        del create  # two that begin at once are of one installation: a copy waits to be told
        try:
            self._own.root.mkdir(parents=True, exist_ok=True)
            write_atomic(self._own.make(self._name) / name.rpartition("/")[2], data, mode=0o600, durable=True)
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EDQUOT}:  # a full disk is waited for elsewhere
                raise
        return True

    def _folder(self) -> Path | None:
        if self._owner is None:
            return self._own.find(self._name)
        return next(iter(self._own.named({self._name}, self._owner)), None)

    @property
    def _name(self) -> str:
        """The name of the folder: each user's has their uid, so that none stands in the way of another's."""
        return f"{FOLDER}-{os.geteuid() if self._owner is None else self._owner}"


class SharedFSStorage(PosixStorage):
    """`shared_fs`: a directory that every node sees under the same path.

    Args:
        host_path: Absolute directory.
        storage_path: Folder below it, relative or absolute.

    Raises:
        StorageError: The paths do not fit together.
    """

    def __init__(self, host_path: str | os.PathLike[str], storage_path: str | None = None) -> None:
        host = Path(host_path)
        if not host.is_absolute():
            raise StorageError(f"checkpoint_storage.host_path must be absolute, not {str(host)!r}")
        root = Path(os.path.normpath(host / storage_path)) if storage_path else host
        if not root.is_relative_to(os.path.normpath(host)):
            raise StorageError(f"checkpoint_storage.storage_path {storage_path!r} leads out of {host}")
        super().__init__(root)
        self._host = host

    def _check_mounted(self) -> None:
        if not self._host.is_dir():
            raise StorageError(
                f"{self._host} is not there: is it mounted on this machine?",
                hint="host_path of shared_fs is a directory of every node, also where nothing was stored yet",
            )

    @classmethod
    def config_model(cls) -> type[SharedFSConfig]:
        """Return the model of the block; see `StorageType.config_model`."""
        from detlab.schemas.expconf.blocks.storage import SharedFSConfig

        return SharedFSConfig

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Return the store of a block; see `StorageType.from_config`."""
        return cls(_required(config, "host_path"), config.get("storage_path"))


class DirectoryStorage(PosixStorage):
    """`directory`: a directory as the task sees it.

    Args:
        container_path: Absolute directory.

    Raises:
        StorageError: The path is not absolute.
    """

    def __init__(self, container_path: str | os.PathLike[str]) -> None:
        root = Path(container_path)
        if not root.is_absolute():
            raise StorageError(f"checkpoint_storage.container_path must be absolute, not {str(root)!r}")
        super().__init__(root)

    @classmethod
    def config_model(cls) -> type[DirectoryConfig]:
        """Return the model of the block; see `StorageType.config_model`."""
        from detlab.schemas.expconf.blocks.storage import DirectoryConfig

        return DirectoryConfig

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Return the store of a block; see `StorageType.from_config`."""
        return cls(_required(config, "container_path"))


def _required(config: Mapping[str, Any], key: str) -> str:
    value = config.get(key)
    if not isinstance(value, str) or not value:
        raise StorageError(f"checkpoint_storage.{key} is missing")
    return value


@contextlib.contextmanager
def _repeatable() -> Iterator[None]:
    """Say of an error that what was being written can be written again from memory, as if nothing had been."""
    try:
        yield
    except OSError as error:
        raise ManifestNotWritten(error.errno, error.strerror, error.filename) from error


def _compare(uuid: str, name: str, entry: CheckpointFile, digest: str, size: int) -> None:
    if size != entry.size:
        raise CheckpointError(f"{name} of checkpoint {uuid} is altered: {size} bytes, {entry.size} were stored")
    if digest != entry.digest:
        raise CheckpointError(
            f"{name} of checkpoint {uuid} is altered: its digest is {digest}, stored was {entry.digest}"
        )


def _inside(root: Path, name: str) -> Path:
    return root / plain_path(name)


def _read(descriptor: int, most: int) -> bytes:
    with os.fdopen(os.dup(descriptor), "rb") as stream:
        return stream.read(most)

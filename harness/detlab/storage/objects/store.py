"""`ObjectStorage`: a `StorageManager` over any client of an object store."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import logging
import os
import re
import tempfile
import time
import uuid as uuids
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Self

from detlab.errors import CheckpointError, CheckpointMissing, StorageError
from detlab.schemas.wire import CheckpointFile
from detlab.storage import files
from detlab.storage.base import ManifestNotWritten, Selector
from detlab.storage.manifest import MANIFEST_NAME, METADATA_NAME, Manifest, ManifestPart, plain_path
from detlab.storage.objects import transfers
from detlab.storage.objects.client import ObjectExists, ObjectMissing, Objects, StoreAway
from detlab.storage.objects.pending import PROBE, PendingObjects
from detlab.storage.objects.transfers import FileToFetch, ObjectReader, Patience
from detlab.storage.own_folders import OwnFolders
from detlab.storage.ownership import MOST_RECORD, Guard, StorageHolder
from detlab.storage.unfinished import (
    check_uuid,
    is_uuid,
    last_change,
    refuse_foreign_manifest,
    refuse_foreign_metadata,
    remove_tree,
    storage_errors,
)

logger = logging.getLogger("detlab.storage")

_LONGEST_KEY = 1024
"""Bytes, in S3 and Google Cloud Storage."""
_CLAIMS = ".writing"
_MUST_ESCAPE = re.compile(r"[\x00-\x1f\x7f]|%(?=[01][0-9A-Fa-f]|7[Ff]|25)")


class ObjectStorage:
    """Checkpoints as objects `<uuid>/<path>`, with `<uuid>/manifest.json` last.

    A checkpoint without its manifest is none. Objects are created, never replaced (those that are sent in parts
    by whoever has created a claim), so that of two writers of one uuid one is told at its first file that differs, and
    the manifest is one writer's. The stage is a folder on this node;
    what is in it is sent by `seal`. Names are keys as they are, with control characters as `%0A`.

    Args:
        objects: The client; its root is that of the checkpoints.
        patience: Seconds for which uploads, downloads and the publication go on while the store does not answer.
        writer: Who writes, for claims on large objects; all that give one name write the same bytes, as copies do, and
            any of them goes on where another was killed. By default this object alone.
    """

    def __init__(self, objects: Objects, *, patience: float = 3600.0, writer: str | None = None) -> None:
        self.objects = objects
        self._patience = Patience(patience)
        self._me = (writer or uuids.uuid4().hex).encode()
        self._stored: dict[str, ManifestPart] = {}
        self._pending = PendingObjects(objects)
        place = hashlib.sha256(objects.where.encode()).hexdigest()[:16]
        self._folder = f"detlab-stages-{os.geteuid()}", place
        self._guard = Guard(objects.where)

    def held_by(self, holder: StorageHolder | None) -> Self:
        """Have every change check first that this installation of a cluster owns what is here; return the store."""
        self._guard = Guard(self.objects.where, holder)
        return self

    def again(self, objects: Objects | None = None, *, patience: float) -> ObjectStorage:
        """Return this store with another patience, or by another client, for the same holder."""
        return ObjectStorage(objects or self.objects, patience=patience).held_by(self._guard.holder)

    def _check_owned(self) -> None:
        self._guard.check(_Records(self.objects))

    def stage(self, uuid: str) -> Path:
        """Return the folder on this node for the files of `uuid`, made if it is missing."""
        with storage_errors("make", path := self._stage_path(uuid)):
            root = OwnFolders(Path(tempfile.gettempdir())).make(self._folder[0])
            path = root / self._folder[1] / uuid
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path

    def upload(self, source: Path, uuid: str, *, selector: Selector | None = None) -> ManifestPart:
        """Send files; see `StorageManager.upload`.

        Raises:
            CheckpointError: The source is not a directory, contains what a checkpoint cannot hold, or another writer
                has stored something else under this uuid.
        """
        check_uuid(uuid)
        if not source.is_dir():
            raise CheckpointError(f"{source} is not a directory that could be uploaded")
        with storage_errors("read", source):
            found = files.walk(source, selector)
            chosen = [name for name in found.files if selector is None or selector(name)]
            if MANIFEST_NAME in chosen:
                refuse_foreign_manifest(source / MANIFEST_NAME)
            if METADATA_NAME in chosen:
                refuse_foreign_metadata(source / METADATA_NAME)
            # That of the checkpoint from which this one was made; its own is written by `publish`.
            chosen = [name for name in chosen if name not in {MANIFEST_NAME, METADATA_NAME}]
            wanted = {name: (source / name, self._key(uuid, name)) for name in chosen}
            self._patience.until_done(self._check_owned, f"checkpoint {uuid}")
            self._patience.until_done(lambda: self._begin(uuid), f"checkpoint {uuid}")
            sent = transfers.upload(self.objects, wanted, self._patience, partial(self._claim, uuid))
        part = ManifestPart(sent, files.chosen_folders(found.empty_directories, selector))
        before = self._stored.get(uuid, ManifestPart())
        directories = tuple(sorted({*before.directories, *part.directories}))
        self._stored[uuid] = ManifestPart({**before.files, **part.files}, directories)
        return part

    def seal(self, uuid: str, *, node: int = 0) -> ManifestPart:
        """Send what is in the folder of `stage`; each node has its own. See `StorageManager.seal`."""
        stage = self._stage_path(uuid)
        if not stage.is_dir():
            # Made anew it would be empty, and a checkpoint without files would pass for complete.
            raise CheckpointError(
                f"nothing is staged for checkpoint {uuid} in {stage} on node {node} of the trial",
                hint="see what removes files there; the last committed checkpoint is not touched",
            )
        return self.upload(stage, uuid)

    def publish(self, uuid: str, metadata: Mapping[str, Any], part: ManifestPart | None = None) -> Manifest:
        """Make what was sent a checkpoint, by its manifest; see `StorageManager.publish`.

        Raises:
            CheckpointError: The metadata cannot be JSON, nothing was sent, or what is there does not match `part`.
            StorageError: There is a checkpoint of this uuid already, or the store cannot be written.
        """
        check_uuid(uuid)
        try:
            encoded = json.dumps(metadata, indent=2).encode()
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"the metadata of checkpoint {uuid} cannot be JSON: {error}") from error
        if part is None:
            part = self._all_of_mine(uuid)
        self._refuse_unsent(uuid, part)
        with self._repeatable(uuid):
            what = f"the publication of checkpoint {uuid}"
            self._patience.until_done(self._check_owned, what)
            self._patience.until_done(lambda: self._compare(uuid, part), what)
            entry = transfers.describe_bytes(encoded)
            manifest = Manifest.of(uuid, {**part.files, METADATA_NAME: entry}, metadata, part.directories)
            for name, data in ((METADATA_NAME, encoded), (MANIFEST_NAME, manifest.to_bytes())):
                create = partial(transfers.put_same, self.objects, self._key(uuid, name), data)
                self._patience.until_done(create, what)
        self._forget(uuid)
        with contextlib.suppress(StorageError):  # claims that stay are removed with the checkpoint
            self.objects.delete(self._claims(uuid, part.files))
        return manifest

    def discard(self, uuid: str) -> None:
        """Remove what was sent of a checkpoint that was not published, and its folder on this node."""
        remove_tree(self._stage_path(uuid))  # first: the store may be away
        if not self._is_published(uuid):
            self.objects.delete(info.key for info in self.objects.list(f"{uuid}/"))
        self._forget(uuid)

    def manifest(self, uuid: str) -> Manifest:
        """Read the manifest of a published checkpoint.

        Raises:
            CheckpointMissing: There is no complete checkpoint of this uuid.
            CheckpointError: What is there is no manifest.
        """
        key = self._key(uuid, MANIFEST_NAME)
        try:
            data = self._patience.until_done(lambda: self.objects.get(key), f"reading {MANIFEST_NAME} of {uuid}")
        except ObjectMissing as error:
            raise CheckpointMissing(
                f"there is no complete checkpoint {uuid} in {self.objects.where}: it has no {MANIFEST_NAME}"
            ) from error
        return Manifest.from_bytes(data, uuid=uuid)

    @contextlib.contextmanager
    def restore_path(self, uuid: str, manifest: Manifest, *, selector: Selector | None = None) -> Iterator[Path]:
        """Yield a folder on this node with the verified files, which is removed when the block ends."""
        check_uuid(uuid)
        with tempfile.TemporaryDirectory(prefix="detlab-restored-", ignore_cleanup_errors=True) as folder:
            self.download(uuid, Path(folder), manifest, selector=selector)
            yield Path(folder)

    def download(self, uuid: str, target: Path, manifest: Manifest, *, selector: Selector | None = None) -> list[str]:
        """Fetch verified files; see `StorageManager.download`. Files that are there and right are left as they are."""
        names = [name for name in manifest.files if selector is None or selector(name)]
        wanted = [
            FileToFetch(name, self._key(uuid, name), target / plain_path(name), manifest.files[name]) for name in names
        ]
        with storage_errors("write", target):
            target.mkdir(parents=True, exist_ok=True)
            for name in files.chosen_folders(manifest.directories, selector):
                (target / plain_path(name)).mkdir(parents=True, exist_ok=True)
            transfers.download(self.objects, uuid, wanted, self._patience)
            files.check_apart(target, names)
        return names

    def open_file(self, uuid: str, name: str, *, owner: int | None = None) -> BinaryIO:
        """Open one file of a checkpoint, read by ranges; see `StorageManager.open_file`. Objects have no uid."""
        key = self._key(uuid, name)
        try:
            self.objects.head(self._key(uuid, MANIFEST_NAME))
            size = self.objects.head(key).size
        except ObjectMissing as error:
            raise CheckpointMissing(f"the file {name} of checkpoint {uuid} cannot be read: {error.message}") from error
        return io.BufferedReader(ObjectReader(self.objects, key, size, Patience(0.0)), 64 * 1024)

    def file_sizes(self, uuid: str, names: Iterable[str]) -> dict[str, int]:
        """Return the sizes of those files that are there; see `StorageManager.file_sizes`."""
        return self._sizes(uuid, names) if self._is_published(uuid) else {}

    def remains(self, uuid: str, names: Iterable[str]) -> dict[str, int]:
        """Return the sizes of all that is listed under a uuid, by path, published or not.

        For whoever has removed it, and its manifest first: `file_sizes` sees nothing without that.
        """
        known = {self._key(uuid, name): name for name in names}
        listed = self.objects.list(f"{check_uuid(uuid)}/")
        return {known.get(info.key, info.key.removeprefix(f"{uuid}/")): info.size for info in listed}

    def uuids(self) -> list[str]:
        """Return the checkpoints that have a manifest; all objects are listed for that."""
        found = (info.key.split("/") for info in self.objects.list(""))
        return sorted({key[0] for key in found if len(key) == 2 and key[1] == MANIFEST_NAME and is_uuid(key[0])})

    def delete(self, uuid: str, *, owner: int | None = None) -> None:
        """Remove a checkpoint: its manifest first, so that a half-removed one is no checkpoint."""
        self._check_owned()
        manifest = self._key(uuid, MANIFEST_NAME)
        keys: set[str] = set()
        with contextlib.suppress(ObjectMissing, CheckpointError):  # a list may lag behind, so the names count, too
            known = Manifest.from_bytes(self.objects.get(manifest), uuid=uuid)
            keys = {self._key(uuid, name) for name in known.files} | self._claims(uuid, known.files)
        self.objects.delete([manifest])
        self.objects.delete(keys | {info.key for info in self.objects.list(f"{uuid}/")})

    def delete_files(self, uuid: str, names: Iterable[str], *, owner: int | None = None) -> None:
        """Remove some files of a checkpoint; its manifest stays as it was published."""
        self._check_owned()
        self.objects.delete([self._key(uuid, name) for name in names])

    def put_file(self, source: Path, name: str) -> None:
        """Store one file that belongs to no checkpoint, replacing what was there."""
        key = _key(plain_path(name))
        self._patience.until_done(self._check_owned, name)
        with storage_errors("read", source):
            transfers.replace(self.objects, source, key, self._patience)

    def folders(self, names: Collection[str], *, owner: int | None = None) -> dict[str, int]:
        """Return the bytes below each of these names; see `detlab.storage.clearing`. Objects have no uid."""
        found = {name: [info.size for info in self.objects.list(f"{_key(plain_path(name))}/")] for name in names}
        return {name: sum(sizes) for name, sizes in found.items() if sizes}

    def remove_folders(self, names: Collection[str], *, owner: int | None = None) -> None:
        """Remove all objects below these names."""
        self._check_owned()
        for name in names:
            self.objects.delete([info.key for info in self.objects.list(f"{_key(plain_path(name))}/")])

    def mark(self, uuid: str, owner: str, run: int) -> None:
        """Note that a run of `owner` writes `uuid`; see `StorageManager.mark`."""
        self._check_owned()
        self._pending.mark(check_uuid(uuid), owner, run)

    def unmark(self, uuid: str, owner: str, run: int) -> None:
        """Remove a mark; harmless if there is none."""
        self._pending.unmark(check_uuid(uuid), owner, run)

    def marked(self, owner: str) -> list[tuple[int, str]]:
        """Return the marks of `owner` as run and uuid, oldest run first."""
        return self._pending.marked(owner)

    def notes(self) -> Iterator[tuple[str, str, int]]:
        """Give uuid, owner and run of all that was begun and not seen to be committed."""
        return self._pending.notes()

    def sweep(self, older_than: float, *, clock: Callable[[], float] = time.time) -> list[str]:
        """Remove what was begun and not published for `older_than` seconds, also the stages on this node; return uuids.

        In the store, only what is marked is looked at: to list all objects takes minutes where there are many.
        """
        self._check_owned()
        gone = self._sweep_stages(older_than, clock)
        for uuid, key, begun in list(self._pending.all()):
            if clock() - begun <= older_than:
                continue
            if not self._is_published(uuid):
                newest = max((info.modified for info in self.objects.list(f"{uuid}/")), default=begun)
                if clock() - newest <= older_than:
                    continue
                self.discard(uuid)
                gone.append(uuid)
                self.objects.delete([key])
            elif self._pending.is_nobodys(key):  # a trial's own says that its commit never came
                self.objects.delete([key])
        return sorted(set(gone))

    def _sweep_stages(self, older_than: float, clock: Callable[[], float]) -> list[str]:
        """Remove the stages that killed processes have left in the temporary directory of this node."""
        gone = []
        for root in OwnFolders(Path(tempfile.gettempdir())).find_all(self._folder[0]):
            for stage in sorted((root / self._folder[1]).glob("*")):
                try:
                    if is_uuid(stage.name) and clock() - last_change(stage) > older_than:
                        remove_tree(stage)
                        gone.append(stage.name)
                except (OSError, StorageError) as error:  # another process may remove it, too
                    logger.debug("the stage %s is left alone: %s", stage, error)
        return gone

    def check(self) -> None:
        """Find out by a few requests whether the store is there, knows us and lets us write.

        Raises:
            StoreAway: It does not answer just now.
            StorageError: It is not there, or does not let us, in its own words.
        """
        self.objects.check()
        self._check_owned()
        self.objects.put(PROBE, b"")
        self.objects.delete([PROBE])

    def _key(self, uuid: str, name: str) -> str:
        return _key(f"{check_uuid(uuid)}/{plain_path(name)}")

    def _stage_path(self, uuid: str) -> Path:
        folders = OwnFolders(Path(tempfile.gettempdir()))
        root = folders.find(self._folder[0]) or folders.root / self._folder[0]
        return root / self._folder[1] / check_uuid(uuid)

    def _begin(self, uuid: str) -> None:
        """Refuse a uuid that is published, and note that it is being written."""
        if self._is_published(uuid):
            raise _published(uuid, self.objects.where)
        self._pending.begin(uuid)

    def _claim(self, uuid: str, key: str) -> None:
        """Let one process alone send the parts of an object, so that a second one cannot replace what is published.

        A claim is removed after the publication; whoever gets it then finds the manifest.
        """
        claim = _claim_on(uuid, key)
        try:
            transfers.put_same(self.objects, claim, self._me)
        except ObjectExists as error:
            raise transfers.another_writer(self.objects.where, key) from error
        if self._is_published(uuid):
            self.objects.delete([claim])
            raise _published(uuid, self.objects.where)

    def _claims(self, uuid: str, entries: Mapping[str, CheckpointFile]) -> set[str]:
        large = (name for name, entry in entries.items() if entry.size > transfers.PART)
        return {_claim_on(uuid, self._key(uuid, name)) for name in large}

    def _is_published(self, uuid: str) -> bool:
        try:
            self.objects.head(self._key(uuid, MANIFEST_NAME))
        except ObjectMissing:
            return False
        return True

    def _all_of_mine(self, uuid: str) -> ManifestPart:
        """Return what this process has sent, with what is in the stage."""
        if self._stage_path(uuid).is_dir():
            self.seal(uuid)
        if uuid not in self._stored:
            raise CheckpointError(f"nothing is staged for checkpoint {uuid} in {self.objects.where}")
        return self._stored[uuid]

    def _refuse_unsent(self, uuid: str, part: ManifestPart) -> None:
        """Refuse files that were written into the stage after it was sealed."""
        stage = self._stage_path(uuid)
        if not stage.is_dir():
            return
        with storage_errors("read", stage):
            extra = set(files.walk(stage).files) - part.files.keys() - {METADATA_NAME, MANIFEST_NAME}
        if extra:
            raise CheckpointError(
                f"{min(extra)} is in {stage}, but no rank has stored it ({len(extra)} such files)",
                hint="write all files before the block of store_path() ends, or before upload() is called",
            )

    def _compare(self, uuid: str, part: ManifestPart) -> None:
        """Check that what the ranks' parts say is there, by name and size: each rank digested what it sent."""
        sizes = self._sizes(uuid, part.files)
        for name, entry in part.files.items():
            if name == METADATA_NAME:
                continue
            if name not in sizes:
                raise CheckpointError(
                    f"{name} of checkpoint {uuid} was stored by a rank and is not in {self.objects.where}"
                )
            if sizes[name] != entry.size:
                raise CheckpointError(
                    f"{name} of checkpoint {uuid} has {sizes[name]} bytes, {entry.size} were stored by its rank"
                )

    def _sizes(self, uuid: str, names: Iterable[str]) -> dict[str, int]:
        """Return the sizes of what is there: from a list, and, where that lags behind, of each object."""
        keys = {self._key(uuid, name): name for name in names}
        listed = {info.key: info.size for info in self.objects.list(f"{uuid}/")}
        sizes = {name: listed[key] for key, name in keys.items() if key in listed}
        for key, name in keys.items():
            if key not in listed:
                with contextlib.suppress(ObjectMissing):
                    sizes[name] = self.objects.head(key).size
        return sizes

    @contextlib.contextmanager
    def _repeatable(self, uuid: str) -> Iterator[None]:
        """Say that what was sent is not lost if the store goes away before the manifest is there."""
        try:
            yield
        except ObjectExists as error:
            raise _published(uuid, self.objects.where) from error
        except StoreAway as error:
            raise StorageError(error.message, hint=error.hint) from ManifestNotWritten(error.message)

    def _forget(self, uuid: str) -> None:
        """Remove what is on this node of a checkpoint, and the note that it is being written."""
        self._stored.pop(uuid, None)
        remove_tree(self._stage_path(uuid))
        with contextlib.suppress(StorageError):  # a note that stays is looked at by `sweep`
            self._pending.end(uuid)


class _Records:
    """The records of who owns the checkpoints below a prefix, as objects.

    Args:
        objects: The client.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def read(self, name: str) -> bytes | None:
        try:
            return bytes(self._objects.get_range(name, 0, MOST_RECORD))
        except ObjectMissing:
            return None

    def write(self, name: str, data: bytes, *, create: bool) -> bool:
        try:
            self._objects.put(name, data, create=create)
        except ObjectExists:
            return False
        return True


def _key(path: str) -> str:
    """Return the key of a path: itself, but for control characters, which no key may have.

    Raises:
        CheckpointError: It is longer than stores allow.
    """
    key = _MUST_ESCAPE.sub(lambda found: f"%{ord(found[0]):02X}", path)
    if len(key.encode()) > _LONGEST_KEY:
        raise CheckpointError(
            f"the path {path[:80]!r} … has {len(key.encode())} bytes: an object store takes {_LONGEST_KEY}",
            hint="shorten it, or leave the file out with a selector",
        )
    return key


def _claim_on(uuid: str, key: str) -> str:
    return f"{uuid}/{_CLAIMS}/{hashlib.sha256(key.encode()).hexdigest()[:32]}"


def _published(uuid: str, where: str) -> StorageError:
    return StorageError(
        f"checkpoint {uuid} is in {where} already: another process has published it, and it is never replaced",
        hint="store this one under another uuid",
    )

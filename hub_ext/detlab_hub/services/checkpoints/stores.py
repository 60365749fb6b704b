"""Which checkpoint storages the master opens, and for what: `ACCESS` is the table, and nothing opens one past it.

A `checkpoint_storage` block is a user's word. The master calls nobody whom a user names: it opens file systems that it
sees, and the cluster's own object stores, which the operator has named (`Settings.cluster_stores`). Of a block that
names one of those only the prefix is the user's; everything else that is used is the operator's own block. All other
stores are opened by tasks, with the rights of their owner, and by people.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from detlab import storage
from detlab.errors import StorageError
from detlab.schemas.expconf.blocks.storage import COMMON
from detlab.storage import StorageManager
from detlab.storage.objects.kinds import AzureStorage, GCSStorage, S3Storage
from detlab.storage.objects.store import ObjectStorage
from detlab.storage.ownership import StorageHolder
from detlab.storage.posix import PosixStorage

_OF_FILES = frozenset({"shared_fs", "directory"})
_OF_OBJECTS: Mapping[str, type[S3Storage | GCSStorage | AzureStorage]] = {
    "s3": S3Storage,
    "gcs": GCSStorage,
    "azure": AzureStorage,
}
_PLACES = {
    "s3": ("bucket", "endpoint_url"),
    "gcs": ("bucket", "endpoint_url"),
    "azure": ("container", "account_url", "connection_string"),
}
"""Keys that say where a store is: what is missing in a block is not taken from the operator's."""
_NOT_OF_THE_STORE = frozenset({"type", "prefix", *COMMON})


class NamedStore(StrEnum):
    """Whose store a block names."""

    CLUSTER = "the cluster's object store"
    FILES = "file system"
    USERS = "a user's own store"
    FSSPEC = "fsspec"


class Who(StrEnum):
    """Who opens a store."""

    MASTER = "the master"
    TASK = "a task of the owner"
    CLIENT = "the client, with its own keys"
    NOBODY = "nobody"


class StoreOperation(StrEnum):
    """What is done with the files of checkpoints and experiments."""

    WRITE = "save, restore and check before the first step"
    COMMIT = "commit: compare the sizes with the manifest"
    READ = "download and verify through the master, or with `--mode task`"
    READ_DIRECT = "download and verify with `--mode direct`"
    UNDELETE = "undelete: look whether the files are there"
    DELETE = "`det checkpoint delete`, `rm`: remove files"
    COLLECT = "garbage collection, and what leaves the trash after it"
    REMOVE_EXPERIMENT = "delete an experiment: remove its checkpoints"
    EVENT_FILES = "remove event files"
    TENSORBOARD = "show event files"
    CHECK = "`det config check --storage`"
    COMPARE = "`det storage check`: list what is there, and remove what was never committed"


def _row(cluster: Who, files: Who, users: Who) -> dict[NamedStore, Who]:
    return {NamedStore.CLUSTER: cluster, NamedStore.FILES: files, NamedStore.USERS: users, NamedStore.FSSPEC: users}


ACCESS: Mapping[StoreOperation, Mapping[NamedStore, Who]] = {
    StoreOperation.WRITE: _row(Who.TASK, Who.TASK, Who.TASK),
    StoreOperation.COMMIT: _row(Who.MASTER, Who.MASTER, Who.NOBODY),
    StoreOperation.READ: _row(Who.MASTER, Who.MASTER, Who.TASK),
    StoreOperation.READ_DIRECT: _row(Who.CLIENT, Who.CLIENT, Who.CLIENT),
    StoreOperation.UNDELETE: _row(Who.MASTER, Who.MASTER, Who.NOBODY),
    StoreOperation.DELETE: _row(Who.TASK, Who.MASTER, Who.TASK),
    StoreOperation.COLLECT: _row(Who.TASK, Who.TASK, Who.TASK),
    StoreOperation.REMOVE_EXPERIMENT: _row(Who.MASTER, Who.MASTER, Who.TASK),
    StoreOperation.EVENT_FILES: _row(Who.MASTER, Who.MASTER, Who.TASK),
    StoreOperation.TENSORBOARD: _row(Who.TASK, Who.TASK, Who.TASK),
    StoreOperation.CHECK: _row(Who.CLIENT, Who.CLIENT, Who.CLIENT),
    StoreOperation.COMPARE: _row(Who.TASK, Who.TASK, Who.TASK),
}
"""StoreOperation x store -> who opens the store. docs/reference/storage-access.md shows it."""


class NotTheClusters(StorageError):
    """A store that the master does not open: only its owner's tasks, and people, do."""

    default_code = "storage.not_the_clusters"


@dataclass(frozen=True)
class OpenStore:
    """A store that the master opens for one operation: made by `opened_by_master` alone.

    Attributes:
        block: What is opened: a file system's block, or the operator's with a user's prefix.
        holder: The installation that changes it; None: nobody is asked.
    """

    block: Mapping[str, Any]
    holder: StorageHolder | None = None

    @property
    def of_objects(self) -> bool:
        """Whether it is an object store."""
        return self.block.get("type") in _OF_OBJECTS

    def open(self) -> StorageManager:
        """Return the store.

        Raises:
            StorageError: The block cannot be used.
        """
        kind = _OF_OBJECTS.get(str(self.block.get("type")))
        store = storage.from_config(self.block) if kind is None else kind.for_service(self.block)
        return store.held_by(self.holder) if isinstance(store, PosixStorage | ObjectStorage) else store


def of_artifacts(folder: Path) -> OpenStore:
    """Return the store of what runs have logged: the master's own folder, which no block of a user names."""
    return OpenStore({"type": "directory", "container_path": str(folder)})


def kind_of(block: Mapping[str, Any], operators: Sequence[Mapping[str, Any]]) -> NamedStore:
    """Return whose store a block names.

    Args:
        block: The `checkpoint_storage` block, which is a user's word.
        operators: `Settings.cluster_stores`.
    """
    kind = block.get("type")
    if kind in _OF_FILES:
        return NamedStore.FILES
    if kind == "fsspec":
        return NamedStore.FSSPEC
    return NamedStore.USERS if _operators_own(block, operators) is None else NamedStore.CLUSTER


def opened_by_master(
    operation: StoreOperation,
    block: Mapping[str, Any],
    operators: Sequence[Mapping[str, Any]],
    holder: StorageHolder | None = None,
) -> OpenStore | None:
    """Return the store of a block as the master opens it for an operation; None: it is not the master's to open.

    Args:
        operation: What for.
        block: The `checkpoint_storage` block.
        operators: `Settings.cluster_stores`.
        holder: `Settings.holder`, for what changes the store.
    """
    kind = kind_of(block, operators)
    if ACCESS[operation][kind] is not Who.MASTER:
        return None
    return OpenStore(block if kind is NamedStore.FILES else _operators_own(block, operators) or {}, holder)


def readable(block: Mapping[str, Any], operators: Sequence[Mapping[str, Any]]) -> OpenStore:
    """Return the store of a block for a download.

    Raises:
        StorageError: It is not the master's to open; says how to read it.
    """
    found = opened_by_master(StoreOperation.READ, block, operators)
    if found is None:
        raise NotTheClusters(
            "the master does not open this checkpoint's storage: it is not one of the cluster's own",
            hint="its owner reads it by a task: det checkpoint download UUID --mode task; others with their own keys:"
            " --mode direct (they are sent to the address in its checkpoint_storage); an operator adds stores of the"
            " cluster's own in c.DetHub.checkpoint_stores",
        )
    return found


def _operators_own(block: Mapping[str, Any], operators: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return an operator's block with this block's prefix; None: the block names another store, keys or place."""
    for own in operators:
        kind = str(own.get("type"))
        if kind not in _OF_OBJECTS or block.get("type") != kind:
            continue
        same_place = all((block.get(key) or None) == (own.get(key) or None) for key in _PLACES[kind])
        rest = [key for key, value in block.items() if value is not None and key not in _NOT_OF_THE_STORE]
        if same_place and all(block[key] == own.get(key) for key in rest) and _is_below(block, own):
            return {**own, "prefix": block.get("prefix")}
    return None


def _is_below(block: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
    """Whether a block's prefix is the operator's, or below it; compared by whole parts."""
    outer, inner = _parts(own.get("prefix")), _parts(block.get("prefix"))
    return inner is not None and outer is not None and inner[: len(outer)] == outer


def _parts(prefix: Any) -> list[str] | None:
    """Return the parts of a prefix; None: it is none."""
    if prefix is None:
        return []
    text = prefix.strip("/") if isinstance(prefix, str) else "."
    parts = text.split("/") if text else []
    return None if any(part in {"", ".", ".."} for part in parts) else parts

"""From a `checkpoint_storage` block to a store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from detlab.errors import StorageError
from detlab.storage.base import StorageManager
from detlab.storage.posix import DirectoryStorage, SharedFSStorage

_LATER = {"s3": "S3", "gcs": "Google Cloud Storage", "azure": "Azure Blob Storage"}
_SCHEMES = {"s3": "s3", "gs": "gcs", "ms": "azure"}


def from_config(config: Mapping[str, Any]) -> StorageManager:
    """Return the store that a `checkpoint_storage` block of an experiment config describes.

    Raises:
        StorageError: The block names no store of this release.
    """
    kind = config.get("type")
    match kind:
        case "shared_fs":
            return SharedFSStorage(_required(config, "host_path"), config.get("storage_path"))
        case "directory":
            return DirectoryStorage(_required(config, "container_path"))
    if kind in _LATER:
        raise _not_yet(str(kind))
    raise StorageError(f"checkpoint_storage.type {kind!r} is unknown: use shared_fs or directory")


def from_string(where: str) -> StorageManager:
    """Return the store for a directory path (object-store addresses are recognised and refused).

    Raises:
        StorageError: It is an address of a store that this release has not.
    """
    scheme, separator, _ = where.partition("://")
    if not separator:
        return SharedFSStorage(Path(where).absolute())
    if scheme in _SCHEMES:
        raise _not_yet(_SCHEMES[scheme])
    raise StorageError(f"checkpoint storage {where!r} is neither a directory nor a known address")


def _required(config: Mapping[str, Any], key: str) -> str:
    value = config.get(key)
    if not isinstance(value, str) or not value:
        raise StorageError(f"checkpoint_storage.{key} is missing")
    return value


def _not_yet(kind: str) -> StorageError:
    return StorageError(
        f"checkpoint storage on {_LATER[kind]} is not in this release",
        hint="Use checkpoint_storage: {type: shared_fs, host_path: …} or {type: directory, container_path: …}.",
    )

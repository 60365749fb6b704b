"""From a `checkpoint_storage` block to a store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from detlab.errors import StorageError
from detlab.schemas.storage_types import STORAGES
from detlab.storage.base import StorageManager, StorageType
from detlab.storage.posix import SharedFSStorage

_SCHEMES = {"s3": "s3", "gs": "gcs", "ms": "azure"}


def from_config(config: Mapping[str, Any]) -> StorageManager:
    """Return the store that a `checkpoint_storage` block of an experiment config describes.

    Raises:
        StorageError: No store of this type is installed, or the block lacks what its store needs.
    """
    return storage_type(config.get("type")).from_config(config)


def storage_type(name: object) -> StorageType:
    """Return what makes stores of a type.

    Raises:
        StorageError: No store of this type is installed; the message lists those that are.
    """
    if name is None:
        raise StorageError(
            "checkpoint_storage.type is missing", hint=f"name an installed one: {', '.join(STORAGES.names())}"
        )
    found: StorageType = STORAGES.load(name)
    if not isinstance(found, StorageType):
        raise StorageError(
            f"the checkpoint storage of type {name!r} has no config_model() and from_config()",
            hint=f"its entry point in {STORAGES.group} must name a class like detlab.storage.SharedFSStorage",
        )
    return found


def from_string(where: str) -> StorageManager:
    """Return the store for a directory path (object-store addresses are recognised and refused).

    Raises:
        StorageError: It is the address of an object store.
    """
    scheme, separator, _ = where.partition("://")
    if not separator:
        return SharedFSStorage(Path(where).absolute())
    if scheme in _SCHEMES:
        raise StorageError(
            f"checkpoint storage {where!r} is an address, not a directory",
            hint=f"give a block instead: checkpoint_storage={{'type': '{_SCHEMES[scheme]}', …}}",
        )
    raise StorageError(f"checkpoint storage {where!r} is neither a directory nor a known address")

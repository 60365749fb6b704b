"""Checkpoint storages as the master opens them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detlab import storage
from detlab.errors import StorageError
from detlab.storage import StorageManager

_OF_TASKS = "fsspec"


def from_config(config: Mapping[str, Any]) -> StorageManager:
    """Return the store of a block, which is a user's word.

    One of type `fsspec` could name the master's own files, or have it use its own keys: only tasks and users open it.

    Raises:
        StorageError: The master does not open this type, or the block cannot be used.
    """
    if config.get("type") == _OF_TASKS:
        raise StorageError(
            "the master does not open checkpoint storages of type 'fsspec': they run with the rights of who opens them",
            hint="read it from where its files can be read: det checkpoint download UUID --mode direct",
        )
    return storage.from_config(config)

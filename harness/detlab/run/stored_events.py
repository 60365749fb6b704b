"""Event files that trials uploaded to an object store, mirrored into a folder for a TensorBoard."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from detlab.errors import CheckpointError, DetlabError
from detlab.schemas.expconf.raw.secret_keys import MASK
from detlab.storage.config import from_config
from detlab.storage.manifest import plain_path
from detlab.storage.objects.client import ObjectInfo, Objects
from detlab.storage.objects.store import ObjectStorage

logger = logging.getLogger("detlab.tensorboard")

_TYPES = ("s3", "gcs", "azure")
_BLOCK = 8 * 1024 * 1024


def open_objects(block: Mapping[str, Any]) -> Objects | None:
    """Return the objects of a `checkpoint_storage` block of the user's own; None if it is no object store.

    The master shows a block without its secrets, so that the credentials are those of this task's environment or node.
    """
    if block.get("type") not in _TYPES:
        return None
    try:
        store = from_config({key: value for key, value in block.items() if value is not None and value != MASK})
    except DetlabError as problem:
        logger.warning("event files of the checkpoint storage are not shown: %s", problem.message)
        return None
    return store.objects if isinstance(store, ObjectStorage) else None


class StoredEvents:
    """Fetches what is new of the event files below a name, as often as it is asked to.

    Args:
        objects: Where they are.
        most: Bytes that are fetched in all.
    """

    def __init__(self, objects: Objects, most: int) -> None:
        self._objects = objects
        self._left = most

    def copy(self, name: str, target: Path) -> None:
        """Fetch what is new into a folder; files keep their names, and only grow.

        Raises:
            StorageError: The store cannot be read.
            OSError: The folder cannot be written.
        """
        for info in sorted(self._objects.list(f"{name}/"), key=lambda info: info.key):
            place = _place(info.key.removeprefix(f"{name}/"), target)
            if place is not None and self._left > 0:
                self._fetch(info, place)

    def _fetch(self, info: ObjectInfo, place: Path) -> None:
        have = place.stat().st_size if place.exists() else 0
        if info.size <= have:
            return
        if info.size - have > self._left:
            logger.warning("%s and later files are not shown: there is too much of them", info.key)
            self._left = 0
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("ab") as file:
            while have < info.size:
                found = self._objects.get_range(info.key, have, min(info.size, have + _BLOCK))
                if not found:  # it was replaced by a shorter one
                    return
                file.write(found)
                have += len(found)
                self._left -= len(found)


def _place(relative: str, target: Path) -> Path | None:
    """Return where a file goes; None for what is no event file or would go elsewhere."""
    try:
        path = target / plain_path(relative)
    except CheckpointError:
        return None
    return path if "tfevents" in path.name else None

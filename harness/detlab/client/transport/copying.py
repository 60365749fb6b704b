"""Copying a checkpoint into another storage."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from detlab.client.transport.direct import at_once
from detlab.errors import CheckpointError, CheckpointMissing, StorageError
from detlab.schemas.wire import CheckpointFile, CheckpointView
from detlab.storage import METADATA_NAME, StorageManager, from_config, from_string

_OBJECT_STORES = ("s3", "gs", "az", "ms")


def store_of(where: str | Mapping[str, Any]) -> StorageManager:
    """Return the storage that a person named.

    Args:
        where: A `checkpoint_storage` block, as a mapping or as JSON or YAML text `{type: s3, bucket: b}`; an address as
            `s3://bucket/prefix`, `gs://…`, `az://container/prefix`, or another one for fsspec; or a folder.

    Raises:
        StorageError: It is none of these, or cannot be used.
    """
    if isinstance(where, Mapping):
        return from_config(where)
    if where.lstrip().startswith("{"):
        return from_config(_block(where))
    scheme, separator, _ = where.partition("://")
    if separator and scheme not in _OBJECT_STORES:
        return from_config({"type": "fsspec", "url": where})
    return from_string(where if separator else str(Path(where).expanduser()))


def _block(text: str) -> Mapping[str, Any]:
    import yaml  # costs 6 ms, which other commands need not spend

    try:
        block = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise StorageError(f"the storage block cannot be read: {error}") from None
    inner = block.get("checkpoint_storage", block)
    if not isinstance(inner, dict):
        raise StorageError("the storage block cannot be read: checkpoint_storage is no mapping")
    return inner


def copied(view: CheckpointView, folder: Path, store: StorageManager) -> str:
    """Store the verified files of a checkpoint under its uuid in another storage; return the new manifest's digest.

    What is there already and right stays, also of a copy that was killed; that leaves no checkpoint there.

    Args:
        view: The checkpoint.
        folder: All of its files.
        store: The other storage.

    Raises:
        CheckpointError: Another checkpoint has this uuid there, or what was stored differs.
        StorageError: The storage cannot be written.
    """
    try:
        manifest = at_once(store).manifest(view.uuid)
    except CheckpointMissing:
        metadata, store = view.metadata, _for_copies(store, view)
        if METADATA_NAME in view.files:  # as it was committed; what people changed later is the master's
            metadata = json.loads((folder / METADATA_NAME).read_bytes())
        try:
            part = store.upload(folder, view.uuid, selector=(view.files.keys() - {METADATA_NAME}).__contains__)
            _compare(view, {**view.files, **part.files})
            manifest = store.publish(view.uuid, metadata, part)
        except StorageError:
            with suppress(StorageError):  # what failed matters more than what is left
                store.discard(view.uuid)
            raise
    _compare(view, manifest.files)
    return manifest.digest


def _for_copies(store: StorageManager, view: CheckpointView) -> StorageManager:
    from detlab.storage.objects.store import ObjectStorage

    if not isinstance(store, ObjectStorage):
        return store
    digests = sorted(f"{path}={file.digest}" for path, file in view.files.items())
    writer = "copy of " + hashlib.sha256("\n".join(digests).encode()).hexdigest()
    return ObjectStorage(store.objects, writer=writer)


def _compare(view: CheckpointView, there: Mapping[str, CheckpointFile]) -> None:
    for path, file in view.files.items():
        found = there.get(path)
        if found is None or (found.digest, found.size) != (file.digest, file.size):
            raise CheckpointError(
                f"{path} of checkpoint {view.uuid} is not the file that was committed",
                hint="Look at both: det checkpoint verify "
                f"{view.uuid}; if the other storage has another checkpoint of this uuid, remove that one first",
            )

"""Copying a checkpoint into another storage."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from detlab.errors import CheckpointError, CheckpointMissing, StorageError
from detlab.schemas.wire import CheckpointFile, CheckpointView
from detlab.storage import METADATA_NAME, from_config

_SCHEMES = {"s3": ("s3", "bucket"), "gs": ("gcs", "bucket"), "gcs": ("gcs", "bucket")}


def block_of(where: str | Mapping[str, Any]) -> dict[str, Any]:
    """Return the `checkpoint_storage` block for what a person wrote.

    Args:
        where: A block, as a mapping or as JSON or YAML text `{type: s3, bucket: b}`; `s3://bucket/prefix`,
            `gs://bucket/prefix`, `azure://container`, another address for `fsspec`; or a folder.

    Raises:
        StorageError: It is none of these.
    """
    if isinstance(where, Mapping):
        return dict(where)
    if where.lstrip().startswith("{"):
        try:
            block = yaml.safe_load(where)
        except yaml.YAMLError as error:
            raise StorageError(f"the storage block cannot be read: {error}") from None
        if not isinstance(block, dict):
            raise StorageError(f"not a storage block: {where}")
        return block.get("checkpoint_storage", block) if "type" not in block else block
    if "://" not in where:
        return {"type": "directory", "container_path": str(Path(where).expanduser().absolute())}
    parts = urlsplit(where)
    prefix = parts.path.strip("/")
    if parts.scheme in _SCHEMES:
        kind, key = _SCHEMES[parts.scheme]
        return {"type": kind, key: parts.netloc} | ({"prefix": prefix} if prefix else {})
    if parts.scheme == "azure" and not prefix:
        return {"type": "azure", "container": parts.netloc}
    return {"type": "fsspec", "url": where}


def copied(view: CheckpointView, folder: Path, block: Mapping[str, object]) -> str:
    """Store the verified files of a checkpoint under its uuid in another storage; return the new manifest's digest.

    What is there already and right stays. A writer that is interrupted leaves no checkpoint there.

    Args:
        view: The checkpoint.
        folder: All of its files.
        block: The `checkpoint_storage` block of the other storage.

    Raises:
        CheckpointError: Another checkpoint has this uuid there, or what was stored differs.
        StorageError: The storage cannot be written.
    """
    store = from_config(block)
    try:
        manifest = store.manifest(view.uuid)
    except CheckpointMissing:
        metadata = view.metadata
        if METADATA_NAME in view.files:  # as it was committed; what people changed later is the master's
            metadata = json.loads((folder / METADATA_NAME).read_bytes())
        try:
            part = store.upload(folder, view.uuid, selector=(view.files.keys() - {METADATA_NAME}).__contains__)
            _compare(view, {**view.files, **part.files})
            manifest = store.publish(view.uuid, metadata, part)
        except StorageError:
            store.discard(view.uuid)
            raise
    _compare(view, manifest.files)
    return manifest.digest


def _compare(view: CheckpointView, there: Mapping[str, CheckpointFile]) -> None:
    for path, file in view.files.items():
        found = there.get(path)
        if found is None or (found.digest, found.size) != (file.digest, file.size):
            raise CheckpointError(
                f"{path} of checkpoint {view.uuid} is not the file that was committed",
                hint="Look at both: det checkpoint verify "
                f"{view.uuid}; if the other storage has another checkpoint of this uuid, remove that one first",
            )

"""From a `checkpoint_storage` block to a store."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from detlab.errors import StorageError
from detlab.schemas.storage_types import STORAGES
from detlab.storage.base import StorageManager, StorageType
from detlab.storage.posix import SharedFSStorage

_SCHEMES = {"s3": "s3", "gs": "gcs", "az": "azure", "ms": "azure"}
_HOST_AND_PORT = re.compile(r"[\w.-]+:\d+(/|$)")


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
    """Return the store for a directory, as a path or `file:///path`, or for `s3://bucket/prefix`, `gs://…`, `az://…`.

    The address of an object store says nothing of credentials: the environment's are used.

    Raises:
        StorageError: It is an address of another kind, names no bucket, or has a query.
    """
    scheme, separator, rest = where.partition("://")
    scheme = scheme.lower()
    if not separator and not _HOST_AND_PORT.match(where):
        return SharedFSStorage(Path(where).absolute())
    if scheme == "file" and rest.startswith("/"):
        return SharedFSStorage(Path(rest))
    if scheme not in _SCHEMES:
        known = ", ".join(f"{name}://" for name in _SCHEMES)
        raise StorageError(
            f"checkpoint storage {where.partition('?')[0]!r} is neither a directory nor a known address",
            hint=f"addresses begin with {known}; for others give a block: checkpoint_storage={{'type': …}}",
        )
    if "?" in rest or "#" in rest:
        raise StorageError(
            f"checkpoint storage {re.split('[?#]', where)[0]!r} is followed by a query, which an address cannot have",
            hint="give credentials by the environment, or a block: checkpoint_storage={'type': …, 'access_key': …}",
        )
    bucket, _, prefix = rest.partition("/")
    if scheme in {"az", "ms"}:
        return from_config({"type": "azure", **_azure_parts(scheme, bucket, prefix)})
    return from_config({"type": _SCHEMES[scheme], "bucket": bucket, "prefix": prefix})


def _azure_parts(scheme: str, first: str, rest: str) -> dict[str, Any]:
    """Return container, prefix and account of `az://container/prefix`, or of Determined's `ms://account/container`."""
    if scheme == "az":
        text = os.environ.get("AZURE_STORAGE_CONNECTION_STRING")
        account = os.environ.get("AZURE_STORAGE_ACCOUNT_NAME") or os.environ.get("AZURE_STORAGE_ACCOUNT", "")
        if not text and not account:
            raise StorageError(
                f"az://{first} does not say in which account the container is",
                hint="set AZURE_STORAGE_ACCOUNT_NAME or AZURE_STORAGE_CONNECTION_STRING, or give a block",
            )
        url = f"https://{account}.blob.core.windows.net"
        return {"container": first, "prefix": rest, "connection_string": text, "account_url": url}
    container, _, prefix = rest.partition("/")
    host = first if "." in first or ":" in first else f"{first}.blob.core.windows.net"
    return {"container": container, "prefix": prefix, "account_url": f"https://{host}"}

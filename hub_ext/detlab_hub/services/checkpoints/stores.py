"""Checkpoint storages as the master opens them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from detlab import storage
from detlab.errors import StorageError
from detlab.storage import StorageManager

OF_OBJECTS = frozenset({"s3", "gcs", "azure"})
"""Types of object stores, whose files this master reaches wherever it runs, if it has keys."""
_OF_TASKS = "fsspec"
_KEYS = {"s3": ("access_key",), "azure": ("credential", "connection_string", "account_url")}
"""Per type whose requests carry credentials: what a block has that brings its own."""
_PLACES = ("type", "endpoint_url", "account_url", "connection_string")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_AZURE = re.compile(
    r"https://[a-z0-9]+\.(blob|dfs)\.core\.(windows\.net|chinacloudapi\.cn|usgovcloudapi\.net)/?", re.IGNORECASE
)
_WITHIN = {
    "connection_string": re.compile(r"(AccountKey|SharedAccessSignature)\s*=\s*\S", re.IGNORECASE),
    "account_url": re.compile(r"[?&]sig=\S"),
}


def keeps_own_keys(block: Mapping[str, Any], operators: Mapping[str, Any]) -> bool:
    """Whether the master's own credentials go to no server that only a user has named.

    A block without keys is opened with those of the master's machine, which each request carries: a token, or a
    signature with a session's token. Sent to the cloud's own servers or to the operator's store they are safe.

    Args:
        block: The `checkpoint_storage` block, which is a user's word.
        operators: That of the operator: `Settings.default_checkpoint_storage`.
    """
    kind = str(block.get("type"))
    if any(_brings_keys(key, block.get(key)) for key in _KEYS.get(kind, ())):
        return True
    operators_server = all(block.get(key) == operators.get(key) for key in _PLACES)
    if kind == "s3":  # the names become part of the host's name where no endpoint is given
        plain = all(_NAME.fullmatch(str(block[key])) for key in ("bucket", "region") if block.get(key))
        named = {os.environ.get("AWS_ENDPOINT_URL"), os.environ.get("AWS_ENDPOINT_URL_S3")}  # the operator's word
        return operators_server or block["endpoint_url"] in named if block.get("endpoint_url") else plain
    if kind == "azure":
        return operators_server or _AZURE.fullmatch(str(block.get("account_url"))) is not None
    return True


def check_own_keys(block: Mapping[str, Any], operators: Mapping[str, Any]) -> None:
    """Check what `keeps_own_keys` says.

    Raises:
        StorageError: They would go elsewhere.
    """
    if not keeps_own_keys(block, operators):
        raise StorageError(
            "the master does not send its own credentials to a server that only this config names",
            hint="read it from where its files can be read: det checkpoint download UUID --mode direct; or give the"
            " block keys of its own, or have the operator name that server in c.DetHub.checkpoint_storage",
        )


def _brings_keys(name: str, value: Any) -> bool:
    if name in _WITHIN:
        return isinstance(value, str) and _WITHIN[name].search(value) is not None
    return bool(value)


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

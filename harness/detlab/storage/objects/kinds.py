"""The types `s3`, `gcs` and `azure` of `checkpoint_storage`. Nothing is imported here before a store is made."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, Self

from detlab.errors import StorageError
from detlab.storage.objects.client import Objects
from detlab.storage.objects.store import ObjectStorage

if TYPE_CHECKING:
    from detlab.schemas.expconf.blocks.storage import AzureConfig, GCSConfig, S3Config

_CLIENTS = 16
"""Clients, each with its connections, that a process keeps; the least used goes first."""
_AMBIENT = ("AWS_", "AZURE_", "GOOGLE_")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class _Clients:
    """Clients by what they are made from, so that requests share connections; keys are digests, not secrets."""

    def __init__(self) -> None:
        self._found: OrderedDict[str, Objects] = OrderedDict()
        self._lock = Lock()

    def get(self, made_from: Sequence[Mapping[str, Any]], make: Callable[[], Objects]) -> Objects:
        ambient = sorted((key, value) for key, value in os.environ.items() if key.startswith(_AMBIENT))
        text = json.dumps([os.getpid(), *map(dict, made_from), ambient], sort_keys=True, default=str)
        name = hashlib.sha256(text.encode()).hexdigest()
        with self._lock:
            if name not in self._found:
                self._found[name] = make()
                while len(self._found) > _CLIENTS:
                    self._found.popitem(last=False)
            self._found.move_to_end(name)
            return self._found[name]


_clients = _Clients()


class _BucketStorage(ObjectStorage):
    """A store that is opened by its block, with a client that requests share."""

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Return the store of a block; see `StorageType.from_config`."""
        return cls(cls._objects(config, {}))

    @classmethod
    def for_service(cls, config: Mapping[str, Any]) -> Self:
        """Return the store as the master opens it, for many people: see `obstores.BRIEF`."""
        from detlab.storage.objects.obstores import BRIEF

        return cls(cls._objects(config, BRIEF), patience=0.0)

    @staticmethod
    def _objects(config: Mapping[str, Any], how: Mapping[str, Any]) -> Objects:
        """Return the client of a block; `how` overrides how requests are sent."""
        raise NotImplementedError


class S3Storage(_BucketStorage):
    """`s3`: a bucket of Amazon S3, or of a store that speaks like it."""

    @classmethod
    def config_model(cls) -> type[S3Config]:
        """Return the model of the block; see `StorageType.config_model`."""
        from detlab.schemas.expconf.blocks.storage import S3Config

        return S3Config

    @staticmethod
    def _objects(config: Mapping[str, Any], how: Mapping[str, Any]) -> Objects:
        from detlab.storage.objects.obstores import s3_objects

        _check(config, "bucket")
        return _clients.get([config, how], lambda: s3_objects(config, **how))


class GCSStorage(_BucketStorage):
    """`gcs`: a bucket of Google Cloud Storage."""

    @classmethod
    def config_model(cls) -> type[GCSConfig]:
        """Return the model of the block; see `StorageType.config_model`."""
        from detlab.schemas.expconf.blocks.storage import GCSConfig

        return GCSConfig

    @staticmethod
    def _objects(config: Mapping[str, Any], how: Mapping[str, Any]) -> Objects:
        from detlab.storage.objects.obstores import gcs_objects

        _check(config, "bucket")
        return _clients.get([config, how], lambda: gcs_objects(config, **how))


class AzureStorage(_BucketStorage):
    """`azure`: a container of Azure Blob Storage."""

    @classmethod
    def config_model(cls) -> type[AzureConfig]:
        """Return the model of the block; see `StorageType.config_model`."""
        from detlab.schemas.expconf.blocks.storage import AzureConfig

        return AzureConfig

    @staticmethod
    def _objects(config: Mapping[str, Any], how: Mapping[str, Any]) -> Objects:
        from detlab.storage.objects.obstores import azure_objects

        _check(config, "container")
        return _clients.get([config, how], lambda: azure_objects(config, **how))


def _check(config: Mapping[str, Any], key: str) -> None:
    """Refuse a block that leads nowhere, or elsewhere than it seems to."""
    if not isinstance(config.get(key), str) or not config[key]:
        raise StorageError(f"checkpoint_storage.{key} is missing")
    if "/" in config[key] or _CONTROL.search(config[key]):
        raise StorageError(
            f"checkpoint_storage.{key} {config[key][:80]!r} is not the name of one",
            hint="give the name alone, without s3:// and without a path; folders go into prefix",
        )
    prefix = config.get("prefix") or ""
    parts = str(prefix).strip("/").split("/")
    if prefix and (_CONTROL.search(str(prefix)) or any(part in {"", ".", ".."} for part in parts)):
        raise StorageError(
            f"checkpoint_storage.prefix {str(prefix)[:80]!r} cannot be used",
            hint="it has an empty part, '.', '..' or a control character; give folders as in team/checkpoints",
        )

"""Which types of checkpoint storage are installed: names only, until one is used.

An entry point of the group `detlab.storages` names the class of a storage (`detlab.storage.StorageType`). It is here,
below `detlab.storage`, because the experiment config finds the keys of a type by the same names.
"""

from __future__ import annotations

from typing import Any

from detlab.errors import StorageError
from detlab.plugins import Plugins

STORAGES: Plugins[Any] = Plugins(
    "detlab.storages",
    "checkpoint storage of type",
    {
        "azure": "detlab.storage.objects.kinds:AzureStorage",
        "directory": "detlab.storage.posix:DirectoryStorage",
        "fsspec": "detlab.storage.objects.fsspecs:FsspecStorage",
        "gcs": "detlab.storage.objects.kinds:GCSStorage",
        "s3": "detlab.storage.objects.kinds:S3Storage",
        "shared_fs": "detlab.storage.posix:SharedFSStorage",
    },
    StorageError,
)

"""Which types of checkpoint storage are installed: names only, until one is used.

An entry point of the group `detlab.storages` names the class of a storage (`detlab.storage.StorageType`). It is here,
below `detlab.storage`, because the experiment config finds the keys of a type by the same names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
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

FOLDER = ".owner"
"""Where a storage keeps the records of who owns what is in it."""
_NOT_IN_NAMES = re.compile(r"[^0-9A-Za-z_-]")


@dataclass(frozen=True, slots=True)
class StorageHolder:
    """An installation of a cluster.

    Attributes:
        cluster: Id of the cluster, which its copies have, too.
        instance: What no copy has: it is made when an installation begins, and anew when it takes over.
        epoch: Higher for each that takes over.
    """

    cluster: str
    instance: str
    epoch: int = 0

    @property
    def record(self) -> str:
        """The name of the record of this cluster."""
        return f"{FOLDER}/{_NOT_IN_NAMES.sub('_', self.cluster)[:100]}"
